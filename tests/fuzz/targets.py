"""The fuzzers of the C headers: which there are, and how they are built."""

import os
import shutil
import subprocess
from pathlib import Path

import kstore

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
NOT_FUZZERS = ("replay.c",)
TARGETS = sorted(path.stem for path in HERE.glob("*.c") if path.name not in NOT_FUZZERS)
FLAGS = ["-std=gnu11", "-g", "-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Wno-unused-function"]
SANITIZERS = "address,undefined"


class CannotFuzzError(Exception):
    """What is missing, in a sentence."""


def compile_for(
    target: str, directory: Path, compiler: str, sanitizers: str, *more: Path, include: Path | None = None
) -> Path:
    """Builds a fuzzer; its program. `include`: other headers. CannotFuzzError if the compiler cannot."""
    program = directory / target
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [compiler, *FLAGS, f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    command += [
        f"-I{include or kstore.get_include()}",
        str(HERE / f"{target}.c"),
        *map(str, more),
        "-o",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode or done.stderr:
        raise CannotFuzzError(f"{' '.join(command)} says: {done.stderr.strip()}")
    return program


def with_libfuzzer(target: str, directory: Path, include: Path | None = None) -> Path:
    """A program of libFuzzer, which only clang has."""
    clang = os.environ.get("CLANG") or shutil.which("clang")
    if clang is None:
        raise CannotFuzzError(
            "fuzzing needs clang with libFuzzer: install clang (Debian: apt-get install clang)"
        )
    return compile_for(target, directory, clang, f"fuzzer,{SANITIZERS}", include=include)


def with_replay(target: str, directory: Path, include: Path | None = None) -> Path:
    """A program that takes each file named to it, changed a little, by any compiler."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise CannotFuzzError("no C compiler: install gcc (Debian: apt-get install gcc)")
    return compile_for(target, directory, compiler, SANITIZERS, HERE / "replay.c", include=include)


def kept(target: str) -> list[Path]:
    """The files of its corpus in the repository."""
    return sorted((CORPUS / target).glob("*"))
