"""What loading a log found, and did about it (spec 8)."""

from collections.abc import Callable
from typing import NamedTuple, Self

from kstore.arguments import MAX64
from kstore.errors import visible
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.steps import Code, Finding, Step


class DataLossWarning(UserWarning):
    """Recovery removed records that were undamaged, had been flushed, or lay before undamaged ones. What was
    removed is kept in .cut files. Or log start offsets are lost, so that records which were deleted may be
    readable again; the damaged log-start-offset-checkpoint is kept as a .cut file, too.

    kstore.open can read a .cut file, or the whole log with recover=False.
    """


class Gaps:
    """The steps about gaps between segments, found when they are first asked for: that reads all segments."""

    def __init__(self, find: Callable[[], list[Step]] = list) -> None:
        self._find: Callable[[], list[Step]] | None = find
        self._found: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, none of which has an action. CorruptFileError, OSError."""
        find = self._find
        if find is not None:
            self._found = tuple(find())
            self._find = None  # with the segments that it has
        return self._found


class Recovery(NamedTuple):
    """What opening a log found, and what was done about it. A log that is opened for reading shows what would
    be done.

    `clean`: whether the log was closed cleanly. `findings`: everything that was found. `losses`: what
    recovery removes (or would) and someone may miss, as sentences: undamaged batches after damage, damage
    before them, and records that had been flushed. Opening for writing keeps those bytes in .cut files, and
    warns with DataLossWarning. `truncated_bytes`: how many bytes recovery cut off. `recovered_segments`: base
    offsets of the segments that it walked. `written`: whether the files were changed. `missing`: offsets
    between segments that were there once, as sentences. Of a log that is opened for reading they are looked
    for when they are first asked for, or records are first read, since that looks at every segment.
    """

    clean: bool
    recovery_point: int
    written: bool
    recovered_segments: list[int]
    truncated_bytes: int
    losses: list[str]
    steps: tuple[Step, ...] = ()
    gaps: Gaps = Gaps()

    @property
    def missing(self) -> list[str]:
        """What is missing between segments."""
        return self.missing_between(0, MAX64)

    def missing_between(self, start: int, stop: int) -> list[str]:
        """What is missing between segments of the offsets start to stop (exclusive)."""
        return [
            f"{step.file}: {step.text(done=True)}"
            for step in self.gaps.steps
            if step.is_loss and step.offsets[0] < stop and start < step.offsets[1]
        ]

    @property
    def lost_starts(self) -> list[str]:
        """Why the log start offset is not known, as sentences."""
        codes = (Code.LOG_START_UNKNOWN, Code.LOG_START_BEYOND_END)
        return [f"{step.file}: {step.text(done=True)}" for step in self.steps if step.code in codes]

    @property
    def findings(self) -> list[Finding]:
        """What is not as a clean shutdown leaves it: damage first, and what is lost with it behind."""
        steps = [step for step in (*self.steps, *self.gaps.steps) if step.code.kind]
        behind = sorted((s for s in steps if s.code is Code.BEHIND_DAMAGE), key=lambda step: step.file)
        steps = [step for step in steps if step.code is not Code.BEHIND_DAMAGE] + behind
        return [step.finding(done=self.written) for step in steps]

    def run(self, repairs: Repairs) -> Self:
        """Carries the steps out, in order; the Recovery after that. OSError."""
        for step in self.steps:
            if step.action is not None:
                step.action.run(repairs)
        return self.shown()._replace(written=True)

    def shown(self) -> Self:
        """This Recovery without actions, which hold indexes."""
        return self._replace(steps=tuple(step._replace(action=None) for step in self.steps))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields[:6], self, strict=False))
        return f"Recovery({shown})"

    def __str__(self) -> str:
        findings = self.findings
        how = "after a clean shutdown" if self.clean else f"recovered from offset {self.recovery_point} on"
        how += "" if self.written or not findings else ", in memory only"
        lines = [f"{how}: {'1 finding' if len(findings) == 1 else f'{len(findings)} findings'}"]
        lines += [f"  {f.kind}: {f.file}: {f.text}" for f in findings]
        texts = "\n".join(lines)
        lines += [
            f"  lost: {loss}" for loss in [*self.losses, *self.missing] if loss.split(": ")[-1] not in texts
        ]
        return "\n".join(map(visible, lines))


def in_short(losses: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = [f"and {len(losses) - 3} more"] if len(losses) > 3 else []
    return "; ".join([*losses[:3], *more])
