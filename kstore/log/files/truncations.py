"""The last truncations of a log, which number its generations. Readers detect by them that records before
their position were removed.

Kafka uses leader epochs for this, but a log without a controller has only one epoch.
"""

from __future__ import annotations

import time

from kstore.arguments import MAX64
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kstore.errors import CorruptCheckpointError

_MOST = 64  # entries
# ns between numbers: more than 1 ms, the precision of the times of older commits
_NUMBERS_APART = 2_000_000
_LATEST = 9 * 10**18  # ns since 1970, in the year 2255: no later number could be larger


class Truncations(NamedTuple):
    """The truncations of a log.

    number: the generation of the log, which is the number of the last truncation, or 0. Numbers are times in
    nanoseconds since 1970, so they rise even if the file was lost or an older copy restored.

    entries: (number, offset, stable offset) of each truncation. The offset is that of the first removed
    record. The stable offset is lower if the truncation opened a transaction again that begins there: readers
    of committed records may have skipped it as aborted. Numbers and offsets rise, because a truncation
    removes earlier entries at higher offsets.

    damage: why the truncations are not known: their file cannot be read. The number is -1 then.

    pending: "records" if the last truncation may be incomplete, "all" if it also removes all records and
    continues at its offset, "recovery" if recovery begins a generation where it ends the log, else "". The
    next opening for writing completes it.

    recoveries: the numbers of those that recovery has begun: the records behind them were lost, not removed.
    """

    entries: tuple[tuple[int, int, int], ...] = ()
    pending: str = ""
    number: int = 0
    damage: CorruptCheckpointError | OSError | None = None
    recoveries: tuple[int, ...] = ()

    @classmethod
    def unknown(cls, damage: CorruptCheckpointError | OSError) -> Truncations:
        """The truncations of a log whose file cannot be read."""
        damage.add_note(
            "so it is not known whether records before this position were truncated. Put the file back from "
            "a backup, or go on from an offset instead of a position"
        )
        return cls(number=-1, damage=damage)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Truncations:
        """From the content of a manifest. ValueError, TypeError."""
        entries = tuple(
            (_offset(n), _offset(at), _offset(stable)) for n, at, stable in content.get("truncations", ())
        )
        if list(entries) != sorted(set(entries)) or (entries and entries[-1][0] > _LATEST):
            raise ValueError(f"truncations {entries!r:.200}")
        if (pending := content.get("pending", "")) not in ("", "records", "all", "recovery"):
            raise ValueError(f"a pending truncation of {pending!r:.80}")
        recoveries = tuple(map(_offset, content.get("recoveries", ())))
        return cls(entries, pending, entries[-1][0], recoveries=recoveries) if entries else cls()

    def content(self) -> dict[str, object]:
        """The truncations in the content of a manifest: nothing if there are none."""
        if not self.entries:
            return {}
        found: dict[str, object] = {"truncations": self.entries, "pending": self.pending}
        return found | {"recoveries": self.recoveries} if self.recoveries else found

    @property
    def offset(self) -> int:
        """The offset of the last truncation, or -1."""
        return self.entries[-1][1] if self.entries else -1

    def since(self, number: int, isolation: str) -> int:
        """The lowest offset from which records were removed, or became readable, after the truncation of this
        number; -1 if there is none.

        A pending truncation does not count: no record is appended before it is complete. If the truncations
        are not known, `damage` is raised for a number of when they were.
        """
        if self.damage is not None and self.number < number < MAX64:
            raise self.damage.with_traceback(None)
        at = 2 if isolation == "read_committed" else 1
        entries = self.entries[:-1] if self.pending else self.entries
        return min((entry[at] for entry in entries if entry[0] > number), default=-1)

    def removed_since(self, number: int) -> int:
        """The lowest offset from which a truncation after that of this number has removed records, or may
        have; 2^63 - 1 if there is none. What recovery has cut off does not count."""
        entries = (entry for entry in self.entries if entry[0] > number and entry[0] not in self.recoveries)
        return min((entry[1] for entry in entries), default=MAX64)

    def expecting(self, offset: int, pending: str) -> Truncations:
        """The truncations with a pending one at an offset."""
        return self._and_one(self.entries, offset, offset, pending, pending == "recovery")

    def carried_out(self, stable_offset: int) -> Truncations:
        """The truncations after the pending one is complete. A transaction that an earlier one has opened
        again is still open, so its stable offset counts on."""
        offset = self.entries[-1][1]
        kept = tuple(entry for entry in self.entries[:-1] if entry[1] < offset)
        replaced = self.entries[len(kept) :]
        stable = min(stable_offset, *(entry[2] for entry in replaced))
        removed = [entry[0] for entry in replaced if entry[1] == offset and entry[0] not in self.recoveries]
        return self._and_one(kept, offset, stable, "", not removed)

    def without_pending(self) -> Truncations:
        """The truncations without the pending one. Later numbers are still greater than its number."""
        return self._replace(entries=self.entries[:-1], pending="") if self.pending else self

    def _and_one(
        self,
        kept: tuple[tuple[int, int, int], ...],
        offset: int,
        stable: int,
        pending: str,
        is_recovery: bool,
    ) -> Truncations:
        if len(kept) >= _MOST:
            # merge the two oldest: a reader between them may be reported a lower offset than necessary
            (_, first, first_stable), (number, *_) = kept[:2]
            kept = ((number, first, first_stable), *kept[2:])
        last = max(self.number + _NUMBERS_APART, time.time_ns()), offset, stable
        numbers = {entry[0] for entry in kept}
        recoveries = [number for number in self.recoveries if number in numbers]
        recoveries += [last[0]] * is_recovery
        return Truncations((*kept, last), pending, last[0], recoveries=tuple(recoveries))


NO_TRUNCATIONS = Truncations()


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX64:
        raise ValueError(value)
    return value
