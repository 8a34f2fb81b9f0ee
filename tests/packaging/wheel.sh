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
"$work/venv/bin/python" - <<'END'
import pathlib, sys, sysconfig

package = pathlib.Path(sysconfig.get_path("platlib"), "kstore")
files = [path for path in package.rglob("*") if path.is_file()]
cached = sum(path.stat().st_size for path in files if path.suffix == ".pyc")
size = sum(path.stat().st_size for path in files) - cached
print(f"the package: {size:,} bytes, and {cached:,} of bytecode, which Python makes when it first imports it")
sys.exit("more than 5 MB: is there debug information in it?" if size > 5_000_000 else 0)
END
cp -r tests pyproject.toml include "$work/"  # the tests, and no kstore beside them
mkdir "$work/elsewhere"
cd "$work/elsewhere"
PYTHONPATH="$work" PATH="$work/venv/bin:$PATH" pytest -q -p no:cacheprovider -c "$work/pyproject.toml" --rootdir "$work" \
    "$work/tests/golden" "$work/tests/capi"
"$work/venv/bin/kstore" --version
