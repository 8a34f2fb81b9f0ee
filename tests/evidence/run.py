"""Run as `python -m tests.evidence.run MINUTES [NAME…]`, which `make evidence` does: each search gets its
part of the time.

What was tried and what was found is written to docs/evidence.md. A failure prints what its test says and how
to run it again; the exit code is 1 then.
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

from tests.evidence.page import Row, write_page
from tests.evidence.searches import SEARCHES, Search

FUZZING = "fuzzing"
FUZZING_SHARE = 4
PAGE = Path("docs/evidence.md")


def run_piece(search: Search, row: Row) -> bool:
    """Tries one piece more; whether there may be another. A failure is printed."""
    chosen = {"EFFORT": str(search.effort), "SEED": str(random.randrange(1, 1 << 30))}
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **chosen}
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "0"]
        command += ["-n", str(os.cpu_count()), "--show-capture=no"]
        # which knows properties of a test
        command += ["-o", "junit_family=xunit1", f"--junitxml={report.name}"]
        command += [f"--hypothesis-seed={chosen['SEED']}", *search.tests]
        begun = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        row.seconds += time.monotonic() - begun
        suite = ElementTree.parse(report.name).getroot()
    row.pieces += 1
    properties = [found for found in suite.iter("property") if found.get("name") == "tried"]
    row.tried += sum(int(found.attrib["value"]) for found in properties)
    cases = list(suite.iter("testcase"))
    wrong = [
        case.get("name", "") for kind in ("failure", "error") for case in cases if case.find(kind) is not None
    ]
    row.failures += len(wrong)
    row.skipped = next((found.get("message", "") for found in suite.iter("skipped")), "")
    if wrong:
        again = " ".join(f"{name}={value}" for name, value in chosen.items())
        print(done.stdout[-20_000:], flush=True)
        print(
            f"{search.name}: again with {again} pytest {' '.join(search.tests)}: {', '.join(wrong)}",
            flush=True,
        )
    return not search.once and row.tried > 0


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
    names = arguments[1:] or [*(search.name for search in SEARCHES), FUZZING]
    shares = {search.name: search.share for search in SEARCHES} | {FUZZING: FUZZING_SHARE}
    unknown = set(names) - set(shares)
    if unknown:
        print(
            f"no search is named {', '.join(sorted(unknown))}: there are {', '.join(shares)}", file=sys.stderr
        )
        return 2
    whole = sum(shares[name] for name in names)
    rows = []
    for search in [search for search in SEARCHES if search.name in names]:
        row = Row(search.name, search.what)
        rows.append(row)
        until = time.monotonic() + 60 * minutes * search.share / whole
        while run_piece(search, row) and time.monotonic() + row.seconds / row.pieces < until:
            pass
        print(row, flush=True)
    if FUZZING in names:
        row = Row(FUZZING, "bytes and directories made by chance, under AddressSanitizer and UBSan")
        rows.append(row)
        run_fuzzers(int(60 * minutes * FUZZING_SHARE / whole), row)
        print(row, flush=True)
    write_page(PAGE, rows)
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
