"""Run as `python -m tests.nightly [PART…]`, which `make nightly` does: every test that `make test` has no
time for.

`--list` prints the parts. `--one` runs one part, which is how CI gets through all of them: a part whose
sources the newest commit changed, otherwise any; the hash of the commit chooses. EFFORT, 5 by default and 1
with `--one`, says how much each part tries. A failing part does not stop the others. The exit code is 1 if
one failed.
"""

import os
import subprocess
import sys
import time
from typing import NamedTuple

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
MAKE = ("make", "--no-print-directory")


class Part(NamedTuple):
    """A part of the nightly tests. `sources`: a change below one of these paths makes CI prefer this part."""

    name: str
    what: str
    command: tuple[str, ...]
    sources: tuple[str, ...] = ()
    in_ci: bool = True  # whether it fits into CI: at EFFORT=1 it takes at most four minutes on two processors


WHOLE = (  # folders of which another part runs all
    "kafka", "broker", "spark", "crash_states", "power_cuts", "crash", "interrupts", "include", "capi",
    "performance",
)  # fmt: skip
PARTS = (
    Part(
        "kafka",
        "Kafka's own classes read and recover what kstore wrote, and the reverse",
        (*PYTEST, "tests/kafka"),
        ("kstore/log", "kstore/engine/append", "tests/kafka"),
    ),
    Part(
        "broker",
        "a real broker and its clients on directories of kstore, and the reverse",
        (*PYTEST, "tests/broker"),
        ("kstore/store", "kstore/log/files", "tests/broker"),
    ),
    Part(
        "spark",
        "Spark's readers, writers and streams",
        (*PYTEST, "-n", "2", "tests/spark"),
        ("kstore/spark", "tests/spark"),
    ),
    Part(
        "spark-cluster",
        "the same on a cluster of two workers",
        (*PYTEST, "tests/spark", "--spark-master", "cluster"),
        in_ci=False,
    ),
    Part("spark-4.0", "the same with Spark 4.0", (*MAKE, "test-spark", "VERSION=4.0.1"), in_ci=False),
    Part("spark-3.5", "the same with Spark 3.5", (*MAKE, "test-spark", "VERSION=3.5.9"), in_ci=False),
    Part(
        "sanitizers",
        "damaged bytes under AddressSanitizer and UBSan",
        ("sh", "tests/hostile/asan.sh"),
        ("kstore/engine", "include"),
        in_ci=False,
    ),
    Part(
        "crash-states",
        "every state that a power cut may leave of recorded lives; real file systems",
        (*PYTEST, "-n", "2", "tests/crash_states", "tests/power_cuts", "tests/crash"),
        ("kstore/log", "kstore/store", "kstore/testing", "tests/crash_states"),
    ),
    Part(
        "remote",
        "logs in S3 (moto's server, by s3fs) and in HDFS (a small one of Hadoop's, by hdfs-native)",
        (*PYTEST, "tests/remote/test_s3.py", "tests/remote/test_hdfs.py"),
        ("kstore/remote", "tests/remote"),
    ),
    Part(
        "browser",
        "the page of a report in a real browser: console, movement, contrast, keyboard",
        (*PYTEST, "tests/reporting/test_browser.py"),
        ("kstore/reporting", "tests/reporting"),
    ),
    Part(
        "interrupts",
        "signals, forks and failing allocations at points of every operation",
        (*PYTEST, "-n", "2", "tests/interrupts"),
        ("kstore/log", "kstore/engine/append", "tests/interrupts"),
    ),
    Part(
        "fuzzing",
        "bytes and directories made by chance, under sanitizers",
        (sys.executable, "-m", "tests.fuzz.run"),
        ("include", "kstore/engine", "tests/fuzz"),
        in_ci=False,
    ),
    Part(
        "package",
        "an sdist and a wheel, and the tests against the installed wheel",
        ("sh", "tests/packaging/wheel.sh", "full"),
        ("setup.py", "pyproject.toml"),
    ),
    Part(
        "docs",
        "the site builds without warnings",
        (*MAKE, "docs"),
        ("docs", "mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "include/FORMAT.md"),
    ),
    Part(
        "headers",
        "the C headers with several compilers and under sanitizers, and a foreign project against them",
        (*PYTEST, "tests/include", "tests/capi"),
        ("include", "tests/include", "tests/capi"),
    ),
    Part(
        "instructions",
        "instructions for each record, against those recorded",
        (*PYTEST, "tests/performance"),
        ("kstore/engine", "include"),
    ),
    Part(
        "rest",
        "what else is marked as nightly",
        (*PYTEST, "-n", "2", "-m", "nightly", *(f"--ignore=tests/{name}" for name in WHOLE)),
        ("kstore",),
    ),
    Part(
        "more",
        "the tests of `make test`, with more effort",
        (*PYTEST, "-n", "2", "-m", "not nightly"),
        in_ci=False,
    ),
)


def one_for(commit: str, changed: list[str]) -> Part:
    """The part that CI runs for a commit which changed these files."""
    fit = [part for part in PARTS if part.in_ci]
    meant = [part for part in fit if any(path.startswith(part.sources) for path in changed if part.sources)]
    chosen = meant or fit
    return chosen[int(commit[:8], 16) % len(chosen)]


def newest_commit() -> tuple[str, list[str]]:
    """The hash of the newest commit and the files that it changed."""
    command = ("git", "show", "--format=%H", "--name-only", "--first-parent", "HEAD")
    commit, _, *changed = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return commit, changed


def run(part: Part, effort: str) -> tuple[int, float]:
    """The exit code of a part, and the seconds that it took."""
    print(f"\n==== {part.name}: {part.what} (EFFORT={effort})", flush=True)
    begun = time.monotonic()
    done = subprocess.run(part.command, env=os.environ | {"EFFORT": effort}, check=False)
    return done.returncode, time.monotonic() - begun


def main(arguments: list[str]) -> int:
    if "--list" in arguments:
        print(*(f"{part.name:14} {part.what}" for part in PARTS), sep="\n")
        return 0
    effort = os.environ.get("EFFORT") or ("1" if "--one" in arguments else "5")
    named = [part for part in PARTS if part.name in arguments]
    unknown = set(arguments) - {part.name for part in named} - {"--one"}
    if unknown:
        print(f"no part is named {', '.join(sorted(unknown))}: see --list", file=sys.stderr)
        return 2
    parts = named or ([one_for(*newest_commit())] if "--one" in arguments else list(PARTS))
    rows = [(part.name, *run(part, effort)) for part in parts]
    print("\n==== nightly")
    for name, code, seconds in rows:
        print(f"{name:14} {'passed' if code == 0 else f'failed ({code})':12} {seconds / 60:6.1f} min")
    return int(any(code for _, code, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
