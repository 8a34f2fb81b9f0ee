#!/bin/sh
# Builds an sdist and a wheel from that sdist, installs the wheel in a new environment, and tests it in a directory
# without the checkout: its size, the command, tests/golden; with the argument `full` also tests/capi and
# tests/conformance.
set -eu
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m build --quiet --outdir "$work/dist" .   # the sdist, and the wheel from it
python -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --upgrade "pip>=25.1"
"$work/venv/bin/pip" install --quiet --group "$here/pyproject.toml:test" "setuptools>=77" "cython>=3.3,<4" \
    "$work"/dist/*.whl
"$work/venv/bin/python" - <<'END_OF_PROGRAM'
import pathlib, sys, sysconfig

package = pathlib.Path(sysconfig.get_path("platlib"), "kstore")
files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
size = sum(path.stat().st_size for path in files)
print(f"the package: {size:,} bytes without bytecode")
sys.exit("more than 7 MB: does it contain debug information?" if size > 7_000_000 else 0)
END_OF_PROGRAM
"$work/venv/bin/kstore" --version
cp -r tests pyproject.toml include "$work/"  # the tests, and no package kstore beside them
mkdir "$work/elsewhere"
cd "$work/elsewhere"
run() {
    PYTHONPATH="$work" PATH="$work/venv/bin:$PATH" pytest -q -p no:cacheprovider -c "$work/pyproject.toml" \
        --rootdir "$work" "$@"
}
if [ "${1:-}" = full ]; then
    run "$work/tests/golden" "$work/tests/capi" "$work/tests/conformance"
else
    run -m "not nightly" "$work/tests/golden"
fi
