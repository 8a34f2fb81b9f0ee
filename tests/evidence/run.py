"""Run as `python -m tests.evidence.run MINUTES [NAME…]`, which `make evidence` does: every search has its part of the time.

What was tried and what was found is written to docs/evidence.md; a failure prints what its test says, and the exit code is 1.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from tests.evidence.lanes import LANES, Lane
from tests.evidence.page import Row, write_page

FUZZING = "fuzzing"
FUZZING_SHARE = 4


def run_piece(lane: Lane, row: Row) -> bool:
    """Tries one piece more; whether there may be another. A failure is printed."""
    seed = random.randrange(1, 1 << 30)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **lane.piece}
    if lane.seed:
        environment[lane.seed] = str(seed)
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "0"]
        command += ["--show-capture=no", "-o", "junit_family=xunit1"]  # which knows properties of a test
        command += [f"--junitxml={report.name}", f"--hypothesis-seed={seed}", *lane.tests]
        begun = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        row.seconds += time.monotonic() - begun
        suite = ElementTree.parse(report.name).getroot()
    row.pieces += 1
    row.tried += sum(
        int(found.attrib["value"]) for found in suite.iter("property") if found.get("name") == "tried"
    )
    wrong = [case.get("name", "") for case in suite.iter("testcase") if case.find("failure") is not None]
    wrong += [case.get("name", "") for case in suite.iter("testcase") if case.find("error") is not None]
    row.failures += len(wrong)
    row.skipped = next((found.get("message", "") for found in suite.iter("skipped")), "")
    if wrong:
        print(done.stdout[-20_000:], flush=True)
        print(f"{lane.name}: again with {lane.seed or 'seed'}={seed}: {', '.join(wrong)}", flush=True)
    return not lane.once and row.tried > 0


def run_fuzzers(seconds: int, row: Row) -> None:
    """All fuzzers, for so long in all."""
    command = [sys.executable, "-m", "tests.fuzz.run", str(seconds)]
    begun = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    row.seconds += time.monotonic() - begun
    row.pieces += 1
    row.tried += sum(int(n) for n in re.findall(r": (\d+) (?:runs|cases)", done.stdout))
    row.failures += done.returncode != 0
    row.skipped = ", ".join(re.findall(r"^(\w+): skipped", done.stdout, re.MULTILINE))
    if done.returncode:
        print(done.stdout, flush=True)


def main(arguments: list[str]) -> int:
    minutes = float(arguments[0])
    names = arguments[1:] or [*(lane.name for lane in LANES), FUZZING]
    shares = {lane.name: lane.share for lane in LANES} | {FUZZING: FUZZING_SHARE}
    whole = sum(shares[name] for name in names)
    rows = []
    for lane in [lane for lane in LANES if lane.name in names]:
        row = Row(lane.name, lane.what)
        rows.append(row)
        until = time.monotonic() + 60 * minutes * lane.share / whole
        while run_piece(lane, row) and time.monotonic() + row.seconds / row.pieces < until:
            pass
        print(row, flush=True)
    if FUZZING in names:
        row = Row(FUZZING, "bytes, directories and calls made by chance, under AddressSanitizer and UBSan")
        rows.append(row)
        run_fuzzers(int(60 * minutes * FUZZING_SHARE / whole), row)
        print(row, flush=True)
    write_page(Path("docs/evidence.md"), rows)
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
