"""Run as `python -m tests.fuzz.run [SECONDS] [NAME…]`, which `make fuzz` does: every fuzzer gets an equal
part of the time, which is two minutes times EFFORT if it is not given.

The C headers run under libFuzzer with AddressSanitizer and UBSan; codecs, directories and a broker's
positions in Python, with the same sanitizers in the extension modules. What is found is in
build/fuzz/findings, and the exit code is 1. What libFuzzer learns stays in build/fuzz/corpus. `--keep` puts
the smallest of it into tests/fuzz/corpus.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.fuzz import seeds, targets
from tests.fuzz.driver import FINDINGS
from tests.helpers.effort import times

BUILD = Path("build/fuzz")
IN_PYTHON = ("codecs", "directories", "positions")
MOST_BYTES = 4096
KEPT_BYTES = 300  # of a file in the repository
KEPT_FILES = 20  # of a fuzzer


def run_c(target: str, seconds: int, keep: bool) -> int:
    """One fuzzer of the headers; its exit code."""
    program = targets.with_libfuzzer(target, BUILD)
    corpus = BUILD / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    seeds.write(target, BUILD / "seeds" / target)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    given = [str(BUILD / "seeds" / target), str(targets.CORPUS / target)]
    options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", "-timeout=25", "-rss_limit_mb=2048"]
    options += ["-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{target}-"]
    command = [str(program), *options, str(corpus), *[name for name in given if Path(name).is_dir()]]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    runs = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    print(f"{target}: {runs[0].split()[-1] if runs else '?'} runs, exit code {done.returncode}", flush=True)
    if done.returncode:
        print(done.stderr[-5000:])
    elif keep:
        keep_corpus(target, program, corpus)
    return done.returncode


def keep_corpus(target: str, program: Path, corpus: Path) -> None:
    """Puts small files that reach other places than each other into the repository."""
    kept = targets.CORPUS / target
    kept.mkdir(parents=True, exist_ok=True)
    small = BUILD / "small" / target
    small.mkdir(parents=True, exist_ok=True)
    for path in corpus.iterdir():
        if path.stat().st_size <= KEPT_BYTES:
            (small / path.name).write_bytes(path.read_bytes())
    subprocess.run([str(program), "-merge=1", str(kept), str(small)], capture_output=True, check=True)
    files = sorted(kept.iterdir(), key=lambda path: path.stat().st_size)
    chosen = {files[i * len(files) // KEPT_FILES] for i in range(KEPT_FILES)} if files else set()
    for path in set(files) - chosen:
        path.unlink()


def sanitized() -> dict[str, str]:
    """The environment in which Python has extension modules with the sanitizers; they are built first, with
    gcc."""
    environment = {**os.environ, "KSTORE_BUILD": "asan"}
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-lib",
        "build/asan",
        "--build-temp",
        "build/asan-temp",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise targets.CannotFuzzError(
            f"the build with sanitizers needs gcc and Cython: {done.stderr.strip()[-300:]}"
        )
    libraries = [
        subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(Path("build/asan").resolve()), str(Path.cwd()))),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def run_python(name: str, seconds: int, seed: int, environment: dict[str, str]) -> int:
    """One fuzzer in Python; its exit code."""
    command = [sys.executable, "-P", "-m", f"tests.fuzz.{name}", str(seed), str(seconds)]
    return subprocess.run(command, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    seconds = float(arguments.pop(0)) if arguments and arguments[0].replace(".", "").isdigit() else times(120)
    names = [name for name in arguments if not name.startswith("-")] or [*targets.TARGETS, *IN_PYTHON]
    share = max(int(seconds) // len(names), 1)
    seed = random.randrange(1 << 30)
    BUILD.mkdir(parents=True, exist_ok=True)
    failed = []
    environment: dict[str, str] | None = None
    for name in names:
        try:
            if name in IN_PYTHON:
                environment = environment or sanitized()
                code = run_python(name, share, seed, environment)
            else:
                code = run_c(name, share, "--keep" in arguments)
        except targets.CannotFuzzError as e:
            print(f"{name}: skipped: {e}")
            continue
        if code:
            failed.append(name)
    print(f"findings of {', '.join(failed)} in {FINDINGS}" if failed else "no findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
