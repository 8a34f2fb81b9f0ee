"""What the fuzzers in Python share: chance that can be repeated, a clock, and what is left of a failure.

What is being tried lies in a file, so that it is known when the process has died.
"""

import random
import shutil
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

FINDINGS = Path("build/fuzz/findings")


class Case:
    """One attempt: `chance` is its own, and tells by its number what it does."""

    def __init__(self, name: str, seed: str, scratch: Path, seeds: Sequence[bytes]) -> None:
        self.name = name
        self.seed = seed
        self.scratch = scratch
        self.seeds = seeds
        self.chance = random.Random(seed)

    def keep(self, data: bytes) -> None:
        """Writes what is being tried where it is found after a crash."""
        (self.scratch / "trying").write_bytes(data)

    def log_of(self, data: bytes) -> Path:
        """A partition with these bytes for its .log."""
        directory = self.scratch / "t-0"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / f"{0:020}.log").write_bytes(data)
        return directory


def drive(
    name: str, seeds: Sequence[bytes], attempt: Callable[[Case], None], arguments: Sequence[str]
) -> int:
    """Attempts until the time is over: the exit code. `arguments`: a number to begin with, and how many
    seconds; or a case that a failure has named."""
    warnings.simplefilter("ignore")
    first, seconds = arguments[0], float(arguments[1]) if len(arguments) > 1 else 0.0
    end, number = time.monotonic() + seconds, 0
    ram = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(dir=ram if ram.is_dir() else None))
    print(f"{name}: in {scratch}", flush=True)
    while True:
        case = Case(name, f"{first}.{number}" if seconds else first, scratch, seeds)
        (scratch / "case").write_text(case.seed)
        try:
            attempt(case)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            traceback.print_exc()
            FINDINGS.mkdir(parents=True, exist_ok=True)
            kept = FINDINGS / f"{name}-{case.seed}"
            if (scratch / "trying").exists():
                shutil.copy(scratch / "trying", kept)
            print(
                f"{name}: case {case.seed} failed: python -m tests.fuzz.{name} {case.seed}; {kept}",
                flush=True,
            )
            return 1
        number += 1
        if time.monotonic() >= end:
            break
    shutil.rmtree(scratch)
    print(f"{name}: {number} cases", flush=True)
    return 0
