"""Run as `python -m tests.coverage [ARGUMENT…]`, which `make coverage` does: the lines of kstore that tests
reach.

The arguments are those of pytest. The tests run with a copy of the sources below build/coverage: gcov counts
the lines of Cython and C, coverage.py those of Python. The ordinary build is not touched. Lines of a process
that is killed do not count. The lines that were missed are in build/coverage/missed.json.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPY = ROOT / "build/coverage"
CONFIGURATION = """[run]
source = kstore
parallel = true
patch = subprocess
data_file = {0}/.coverage
"""
Lines = dict[str, dict[int, int]]  # for each file and line, how often it ran


def build() -> None:
    """Brings the sources in the copy up to date, and compiles what changed."""
    COPY.mkdir(parents=True, exist_ok=True)
    unbuilt = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("kstore", "include"):
        shutil.copytree(ROOT / name, COPY / name, dirs_exist_ok=True, ignore=unbuilt)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, COPY)
    for old in (*COPY.rglob("*.gcda"), *COPY.glob(".coverage*")):
        old.unlink()
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=COPY, env={**os.environ, "KSTORE_BUILD": "coverage"}, check=True)


def run_tests(arguments: list[str]) -> int:
    configuration = COPY / "coverage.ini"
    configuration.write_text(CONFIGURATION.format(COPY))
    wanted = [str(ROOT / each) if (ROOT / each).exists() else each for each in arguments]
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "3000"]
    place = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command = [
        sys.executable,
        "-P",
        "-m",
        "coverage",
        "run",
        f"--rcfile={configuration}",
        *pytest,
        *place,
        *wanted,
    ]
    return subprocess.run(
        command, cwd=COPY, env={**os.environ, "PYTHONPATH": f"{COPY}:{ROOT}"}, check=False
    ).returncode


def compiled_lines() -> Lines:
    found: Lines = defaultdict(Counter)
    for notes in COPY.rglob("*.gcno"):
        command = ["gcov", "--json-format", "--stdout", str(notes.relative_to(COPY))]
        said = subprocess.run(command, cwd=COPY, capture_output=True, check=True).stdout
        for file in json.loads(said)["files"]:
            path = Path(os.path.relpath(COPY / file["file"], COPY)).as_posix()
            if path.startswith(("kstore/", "include/")):
                for line in file["lines"]:
                    found[path][line["line_number"]] += line["count"]
    return found


def python_lines() -> Lines:
    coverage = [sys.executable, "-m", "coverage"]
    rc = f"--rcfile={COPY / 'coverage.ini'}"
    subprocess.run([*coverage, "combine", "--quiet", rc], cwd=COPY, check=True)
    subprocess.run([*coverage, "json", "--quiet", rc, "-o", "python.json"], cwd=COPY, check=True)
    files = json.loads((COPY / "python.json").read_text())["files"]
    return {
        path: {**dict.fromkeys(each["missing_lines"], 0), **dict.fromkeys(each["executed_lines"], 1)}
        for path, each in files.items()
    }


def report(lines: Lines) -> None:
    missed = {path: sorted(line for line, count in of.items() if not count) for path, of in lines.items()}
    (COPY / "missed.json").write_text(json.dumps(missed, indent=1, sort_keys=True))

    def share(paths: list[str]) -> str:
        total = sum(len(lines[path]) for path in paths)
        gone = sum(len(missed[path]) for path in paths)
        return f"{total - gone:6} of {total:6} lines  {100 * (total - gone) / max(total, 1):6.2f} %"

    for path in sorted(lines, key=lambda path: len(missed[path])):
        if missed[path]:
            print(f"{share([path])}  {path}")
    print(f"{share([path for path in lines if path.endswith('.py')])}  Python")
    print(f"{share([path for path in lines if not path.endswith('.py')])}  Cython and C")
    print(
        f"{share(list(lines))}  all; the lines that were missed are in {COPY.relative_to(ROOT)}/missed.json"
    )


def main() -> int:
    build()
    status = run_tests(sys.argv[1:])
    report({**compiled_lines(), **python_lines()})
    return status


if __name__ == "__main__":
    sys.exit(main())
