"""Instructions that each work takes, counted by callgrind, which does not look at the clock."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kstore

HERE = Path(__file__).parent


def is_possible() -> bool:
    return shutil.which("valgrind") is not None


def count(directory: Path) -> dict[str, float]:
    """Instructions a record. callgrind writes its counts, and begins anew, at each call of getppid()."""
    out = directory / "counted"
    command = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}"]
    done = subprocess.run(
        [*command, sys.executable, str(HERE / "work.py")],
        check=False,
        cwd=directory,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"ended with {done.returncode}:\n{done.stderr[-2000:]}")
    works = [line.split() for line in done.stdout.splitlines()]
    return {
        # the first part is what came before; then a work and what lies between two by turns
        name: _total(Path(f"{out}.{2 + 2 * i}")) / int(records)
        for i, (name, records) in enumerate(works)
    }


def _path() -> str:
    """kstore as the tests see it: from a wheel, or from here."""
    return str(Path(kstore.__file__).parents[1])


def _total(part: Path) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", part.read_text(), re.MULTILINE)
    assert found, f"nothing counted in {part}"
    return int(found[1])
