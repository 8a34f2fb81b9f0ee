#!/bin/sh
# Lines of Cython and Python that the given tests run, in a copy of the sources: its build is slow, and keeps each .c
# beside its .pyx, where the plugin of coverage looks for it. The ordinary build is not touched.
set -eu
here=$(pwd)
copy="$here/build/coverage"
rm -rf "$copy" && mkdir -p "$copy"
tar -c --exclude='*.so' --exclude=__pycache__ setup.py pyproject.toml README.md LICENSE include kstore | tar -x -C "$copy"
cd "$copy"
KSTORE_BUILD=coverage python setup.py --quiet build_ext --inplace
for each; do
    shift
    if [ -e "$here/$each" ]; then set -- "$@" "$here/$each"; else set -- "$@" "$each"; fi
done
status=0
PYTHONPATH="$copy:$here" python -P -m coverage run -m pytest -q -p no:cacheprovider --timeout 3000 \
    -c "$here/pyproject.toml" --rootdir "$here" "$@" || status=$?  # the report is of use all the same
python -m coverage report --skip-covered --sort cover
python -m coverage html --quiet --directory "$here/build/coverage-html"
echo "line by line: build/coverage-html/index.html"
exit $status
