"""The report of an opening: findings, losses and repairs (spec 8)."""

from __future__ import annotations

from kstore.arguments import MAX64
from kstore.errors import visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.later import later

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from kstore.log.recovery.repairs import Repairs
    from kstore.log.recovery.steps import Code, OpeningFinding, Step
else:
    later(globals(), {"kstore.log.recovery.steps": "Code"})


class DataLossWarning(UserWarning):
    """Records are lost: recovery removed records that were undamaged, had been flushed, or came before
    undamaged ones. The removed bytes are kept in .cut files.

    Or log start offsets are lost, so that deleted records may be readable again. The damaged
    log-start-offset-checkpoint is kept as a .cut file, too. kstore.open can read a .cut file, or the whole
    log with recover=False.
    """


class Gaps:
    """Steps about gaps between segments, and about damaged snapshots. Each kind is found at its first use:
    gaps, because that reads all segments."""

    def __init__(
        self, find: Callable[[], list[Step]] = list, find_snapshots: Callable[[], list[Step]] = list
    ) -> None:
        self._finds: list[Callable[[], list[Step]] | None] = [find, find_snapshots]
        self._found: list[tuple[Step, ...]] = [(), ()]

    def _kind(self, at: int) -> tuple[Step, ...]:
        find = self._finds[at]
        if find is not None:
            self._found[at] = tuple(find())
            self._finds[at] = None  # release its segments
        return self._found[at]

    @property
    def between(self) -> tuple[Step, ...]:
        """The steps about gaps, without actions. CorruptFileError, OSError."""
        return self._kind(0)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, without actions. CorruptFileError, OSError."""
        return self._kind(0) + self._kind(1)


class Recovery(NamedTuple):
    """The report of an opening: what was found and repaired. For a log that is open for reading: what an
    opening for writing would repair.

    `clean`: whether the log was closed cleanly. `findings`: everything that was found. `losses`: removed
    bytes that contain records, as sentences: undamaged batches after damage, damage before them, and flushed
    records. An opening for writing keeps them in .cut files, and warns with DataLossWarning.
    `truncated_bytes`: how many bytes recovery removed. `recovered_segments`: the base offsets of the segments
    that it read. `written`: whether the files were changed. `missing`: lost offsets between segments, as
    sentences. Finding them reads every segment; if a log is open for reading, this happens at the first use
    or when records are first read.
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
        """Lost offsets between segments, as sentences."""
        return self.missing_between(0, MAX64)

    def missing_between(self, start: int, stop: int) -> list[str]:
        """Lost offsets between segments from start to stop (exclusive), as sentences."""
        return [
            f"{step.file}: {step.text(done=True)}"
            for step in self.gaps.between
            if step.is_loss and step.offsets[0] < stop and start < step.offsets[1]
        ]

    @property
    def lost_starts(self) -> list[str]:
        """The reasons why the log start offset is unknown, as sentences."""
        return self._told(self.steps, lambda: (Code.LOG_START_UNKNOWN, Code.LOG_START_BEYOND_END))

    @property
    def lost_producers(self) -> list[str]:
        """The reasons why producers are forgotten, as sentences."""
        return self._told(self.gaps.steps, lambda: (Code.PRODUCERS_FORGOTTEN,))

    @staticmethod
    def _told(steps: tuple[Step, ...], codes: Callable[[], tuple[Code, ...]]) -> list[str]:
        """The steps with these codes, which are imported only if there are steps."""
        return [f"{step.file}: {step.text(done=True)}" for step in steps if step.code in codes()]

    @property
    def findings(self) -> list[OpeningFinding]:
        """Everything that differs from the state after a clean shutdown; damage first, its consequences
        after."""
        steps = [step for step in (*self.steps, *self.gaps.steps) if step.code.kind]
        behind = sorted((s for s in steps if s.code is Code.BEHIND_DAMAGE), key=lambda step: step.file)
        steps = [step for step in steps if step.code is not Code.BEHIND_DAMAGE] + behind
        return [step.finding(done=self.written) for step in steps]

    def with_step(self, step: Step) -> Self:
        """This Recovery with one more step."""
        return self._replace(steps=(*self.steps, step))

    def run(self, repairs: Repairs) -> Self:
        """Run the steps in order, and return the Recovery after them. OSError."""
        for step in self.steps:
            if step.action is not None:
                step.action.run(repairs)
        return self.shown()._replace(written=True)

    def shown(self) -> Self:
        """This Recovery without the actions, which reference indexes."""
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
    """The first three losses, and the number of others."""
    more = [f"and {len(losses) - 3} more"] if len(losses) > 3 else []
    return "; ".join([*losses[:3], *more])
