"""docs/evidence.md: the table of the last run, in the page that explains it."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

HEADER = "| search | what is tried | tried | failures | minutes |\n|---|---|---|---|---|\n"
BEGIN, END = "<!-- the last run -->\n", "<!-- its end -->\n"


@dataclass
class Row:
    """What came out of one search."""

    name: str
    what: str
    pieces: int = 0
    tried: int = 0
    failures: int = 0
    seconds: float = 0.0
    skipped: str = ""  # why something was not tried

    def __str__(self) -> str:
        tried = f"{self.tried:,}" + (f" (not tried: {self.skipped})" if self.skipped else "")
        return f"| {self.name} | {self.what} | {tried} | {self.failures} | {self.seconds / 60:.1f} |"


def write_page(page: Path, rows: Iterable[Row]) -> None:
    """Puts the rows in the place of those of the run before. A search that was not run keeps its row."""
    text = page.read_text("utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    kept = {m[1]: m[0] for m in re.finditer(r"^\| ([^|]+?) \|.*\|$", text[begin:end], re.MULTILINE)}
    kept = {name: line for name, line in kept.items() if name not in ("search", "---")}
    new = {row.name: f"{str(row)[:-1]}| {_when()} |" for row in rows}
    lines = "".join(f"{line}\n" for line in (kept | new).values())
    head = HEADER.replace("minutes |\n", "minutes | of |\n").replace("---|\n", "---|---|\n")
    page.write_text(f"{text[:begin]}{head}{lines}{text[end:]}", "utf-8")


def _when() -> str:
    """The day, the state of the sources, and the machine."""
    command = ["git", "rev-parse", "--short=9", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    commit = found.stdout.strip() or "no commit"
    day = datetime.now(UTC).date()
    return f"{day}, {commit}, Linux {platform.release().split('-')[0]}, {os.cpu_count()} processors"
