"""The result of a check: findings, and what was read."""

from __future__ import annotations

from kstore.errors import visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.page import notebook_table

if TYPE_CHECKING:
    from typing import Any

SEVERITIES = ("lost", "damaged", "suspicious", "note")  # the worst first


class Finding(NamedTuple):
    """A finding of a check.

    `code` is a stable word; docs/checking.md has a table of all. `severity`: "lost" (records are lost),
    "damaged" (bytes are wrong, or a program that needs them fails), "suspicious" (wrong, unless there is a
    reason that is not in the directory), "note" (nothing is wrong). `file`: a path. `position`: a byte of the
    file, or -1. `offsets`: the first and the last offset, or None.

    `meaning` and `remedy` are sentences. `stops_kafka`: whether a Kafka broker does not start, or does not
    use the log directory.
    """

    code: str
    severity: str
    file: str
    position: int
    offsets: tuple[int, int] | None
    meaning: str
    remedy: str
    stops_kafka: bool

    def __str__(self) -> str:
        where = self.file if self.position < 0 else f"{self.file}: at byte {self.position}"
        which = "" if self.offsets is None else f" (offsets {self.offsets[0]} to {self.offsets[1]})"
        stops = ". Kafka does not start on it" if self.stops_kafka else ""
        remedy = f". {self.remedy}" if self.remedy else ""
        return visible(f"{self.severity} {self.code}: {where}: {self.meaning}{which}{stops}{remedy}")


class Report(NamedTuple):
    """The result of kstore.check: the findings, the worst first, and what was read.

    `path`: the first path that was checked. `partitions` and `files`: their numbers. `bytes`: the number of
    bytes of .log files that were read. `seconds`: how long it took. str() returns a summary, and below it one
    line for each finding.
    """

    path: str
    findings: tuple[Finding, ...]
    partitions: int
    files: int
    bytes: int
    seconds: float

    @property
    def worst(self) -> str:
        """The severity of the worst finding; "" without findings."""
        return self.findings[0].severity if self.findings else ""

    @property
    def is_whole(self) -> bool:
        """Whether every finding is a note."""
        return not self.problems()

    def problems(self, severity: str = "suspicious") -> list[Finding]:
        """The findings of this severity or a worse one. ValueError for an unknown severity."""
        if severity not in SEVERITIES:
            raise ValueError(f"severity is one of {', '.join(SEVERITIES)}, not {severity!r}")
        worst = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return [finding for finding in self.findings if finding.severity in worst]

    def as_dict(self) -> dict[str, Any]:
        """The report as values for JSON."""
        return {
            "path": self.path,
            "is_whole": self.is_whole,
            "worst": self.worst,
            "partitions": self.partitions,
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "findings": [finding._asdict() for finding in self.findings],
        }

    @property
    def summary(self) -> str:
        """One line: the result, and what was read."""
        counts = {each: sum(f.severity == each for f in self.findings) for each in SEVERITIES}
        notes = counts.pop("note")
        wrong = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        stops = any(finding.stops_kafka for finding in self.findings)
        result = f"{wrong or 'whole'}{f', {notes} notes' if notes > 1 else ', 1 note' if notes else ''}"
        read = f"{_counted(self.partitions, 'partition')}, {_counted(self.files, 'file')}, {self.bytes} bytes"
        return visible(f"{self.path}: {result} ({read})") + ("; Kafka does not start on it" if stops else "")

    def _repr_html_(self) -> str:
        rows = [
            (f.severity, f.code, f.file, "" if f.position < 0 else f.position, f.meaning)
            for f in self.findings
        ]
        return notebook_table(self.summary, ("severity", "code", "file", "byte", "meaning"), rows)

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {finding}" for finding in self.findings)])


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """The findings without repetitions, the worst first, then by file and byte."""
    return tuple(
        sorted(dict.fromkeys(findings), key=lambda f: (SEVERITIES.index(f.severity), f.file, f.position))
    )


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
