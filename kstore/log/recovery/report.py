"""What loading a log found, and did about it (spec 8)."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Finding(NamedTuple):
    """Something that is not as a clean shutdown leaves it.

    `kind` is a stable word: "torn_tail", "corrupt_batch", "beyond" (bytes or segments behind the end that recovery
    would remove), "leftover" (a .deleted, .cleaned or .swap file), "orphan" (an index without log), "missing_index",
    "broken_index", "split", "checkpoint". `position` and `size` are in bytes, -1 where they mean nothing.
    """

    kind: str
    file: str
    position: int
    size: int
    text: str


@dataclass
class Recovery:
    """What loading found, and did or (opened for reading, which writes nothing) would have done.

    `findings` has all of it. `losses` tells what recovery took away, or would, that somebody may miss: sound batches
    behind damage, and what had been flushed. A writer keeps those bytes in .cut files, and warns (DataLossWarning).
    """

    clean: bool
    recovery_point: int
    written: bool = False
    findings: list[Finding] = field(default_factory=list)
    recovered_segments: list[int] = field(default_factory=list)
    truncated_bytes: int = 0
    losses: list[str] = field(default_factory=list)

    def note(self, kind: str, file: str, position: int, size: int, text: str) -> None:
        """Adds a finding; `text` says what would be done, and says that it was where it is."""
        self.findings.append(
            Finding(kind, file, position, size, text.replace("would be", "was") if self.written else text)
        )

    def __str__(self) -> str:
        how = "after a clean shutdown" if self.clean else f"recovered from offset {self.recovery_point} on"
        how += "" if self.written or not self.findings else ", in memory only"
        lines = [f"{how}: {len(self.findings)} findings"]
        lines += [f"  {f.kind}: {f.file}: {f.text}" for f in self.findings]
        return "\n".join(lines)
