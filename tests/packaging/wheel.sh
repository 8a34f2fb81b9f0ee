#!/bin/sh
# The package as a stranger gets it: an sdist, a wheel built from that sdist, and the tests against the installed wheel,
# in a directory where no checkout is in the way.
set -eu
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m build --quiet --outdir "$work/dist" .   # the sdist, and the wheel from it
python -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --upgrade "pip>=25.1"
"$work/venv/bin/pip" install --quiet "$work"/dist/*.whl
"$work/venv/bin/pip" install --quiet --group "$here/pyproject.toml:test" "setuptools>=77" "cython>=3.3,<4"
size=$("$work/venv/bin/python" -c 'import sys, sysconfig, pathlib
package = pathlib.Path(sysconfig.get_path("platlib"), "kstore")
size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
print(f"the installed package: {size:,} bytes", file=sys.stderr)
print(size)')
[ "$size" -le 5000000 ] || { echo "more than 5 MB: is there debug information in it?"; exit 1; }
cp -r tests pyproject.toml include "$work/"  # the tests, and no kstore beside them
mkdir "$work/elsewhere"
cd "$work/elsewhere"
PYTHONPATH="$work" PATH="$work/venv/bin:$PATH" pytest -q -p no:cacheprovider -c "$work/pyproject.toml" --rootdir "$work" \
    "$work/tests/golden" "$work/tests/capi" "$work/tests/conformance"
"$work/venv/bin/kstore" --version
