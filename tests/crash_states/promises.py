"""What the driver of a log knows about it: what was written, what must be there, what must not come back.

A value is `%06d` of a number that is used once, and padding, so a record tells which append it is from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Written:
    """One record that somebody has begun to append. `era`: how often the log had been cut at its end before."""

    offset: int
    era: int


@dataclass(frozen=True)
class Promise:
    """What holds after a power cut at one moment. Numbers are of values."""

    doing: str = "opening"
    durable: dict[int, int] = field(
        default_factory=dict
    )  # offset -> number: there, if at or above the log start
    gone: frozenset[int] = frozenset()  # numbers that must not be there
    start_least: int = 0
    start_most: int = 0
    end_least: int = 0
    written: dict[int, Written] = field(
        default_factory=dict
    )  # by number; it only grows, and all Promises share it
    cuts: tuple[int, ...] = (0,)  # where each era began: older records end there
    jumps: frozenset[int] = frozenset()  # where the log may go on though it does not reach there
    kept: tuple[int | None, ...] = (None,)  # one of these is what is kept of an option

    def __str__(self) -> str:
        return (
            f"while {self.doing}: {len(self.durable)} durable records up to {max(self.durable, default=-1)}, "
            f"start {self.start_least} to {self.start_most}, end from {self.end_least}"
        )


class Promises:
    """Keeps the Promise of a log up to date. Before an operation what it may take away is withdrawn; after it has
    returned, what it promises is added."""

    def __init__(self, now: Promise | None = None) -> None:
        now = now or Promise()
        self.now = replace(now, written=dict(now.written))
        self.number = max(now.written, default=0)

    def _change(self, **changes: object) -> None:
        self.now = replace(self.now, **changes)  # type: ignore[arg-type]

    def next_values(self, count: int, offset: int, pad: int = 40) -> list[bytes]:
        """Values for records that are about to be appended from `offset` on."""
        numbers = range(self.number + 1, self.number + 1 + count)
        self.number += count
        for i, number in enumerate(numbers):
            self.now.written[number] = Written(offset + i, len(self.now.cuts) - 1)
        return [value_of(number, pad) for number in numbers]

    def begin(
        self,
        doing: str,
        *,
        below: int | None = None,
        start_least: int | None = None,
        start_most: int = 0,
        end_least: int | None = None,
        from_: int = 0,
    ) -> None:
        """An operation begins that may take away what is not `below` this offset, or what is below `from_`; and may put
        the log start between these, the log end as low as `end_least`, or `below`."""
        now = self.now
        durable = {o: n for o, n in now.durable.items() if (below is None or o < below) and o >= from_}
        self._change(
            doing=doing,
            durable=durable,
            start_least=now.start_least if start_least is None else min(now.start_least, start_least),
            start_most=max(now.start_most, start_most),
            end_least=min(o for o in (now.end_least, below, end_least) if o is not None),
        )

    def durable(self, shown: dict[int, int], below: int) -> None:
        """Of what the log shows, everything below this offset is on the disk. What the log has cut off at its end, or
        found cut off, must not come back from now on."""
        durable = self.now.durable | {o: n for o, n in shown.items() if o < below}
        self._change(durable=durable, gone=self.now.gone | self._ghosts(below))

    def _ghosts(self, below: int) -> set[int]:
        """Records that an era has ended, where what the log has in their place is durable."""
        era = len(self.now.cuts) - 1
        cut = self.now.cuts[era]
        if below < cut:
            return set()
        return {n for n, w in self.now.written.items() if w.era < era and w.offset >= cut}

    def cut(self, offset: int) -> None:
        """The log ends here from now on, for a while at least: whatever comes is of another era."""
        self._change(cuts=(*self.now.cuts, offset))

    def jump(self, offset: int) -> None:
        """The next record may get this offset, whatever lies before it."""
        self._change(jumps=self.now.jumps | {offset})

    def remove(self, *, from_: int | None = None, below: int = 0) -> None:
        """Records from an offset on, or below one, are gone for good."""
        gone = {
            n
            for n, w in self.now.written.items()
            if (from_ is not None and w.offset >= from_) or w.offset < below
        }
        durable = {o: n for o, n in self.now.durable.items() if n not in gone}
        self._change(gone=self.now.gone | gone, durable=durable)

    def bounds(self, *, start: int | None = None, end: int | None = None) -> None:
        """The log start offset is this one, durably; the log end offset is this one at least."""
        if start is not None:
            self._change(start_least=start, start_most=start)
        if end is not None:
            self._change(end_least=end)

    def keep(self, *values: int | None) -> None:
        """One of these is what is kept of an option."""
        self._change(kept=values)

    def idle(self) -> None:
        """The operation has returned."""
        self._change(doing=f"after {self.now.doing}")


def value_of(number: int, pad: int = 40) -> bytes:
    return b"%06d" % number + b"." * pad


def number_of(value: bytes | None) -> int:
    """The number in a value; -1 for what no driver has made."""
    text = (value or b"")[:6]
    return int(text) if len(text) == 6 and text.isdigit() else -1


def complaints(
    promise: Promise,
    shown: Iterable[tuple[int, bytes | None]],
    start: int,
    end: int,
    extra: frozenset[int] = frozenset(),
) -> list[str]:
    """What is wrong with a log that shows these records, from `start` to `end`. `extra`: numbers that may be there too."""
    wrong = []
    there: dict[int, int] = {}
    last = -1
    for offset, value in shown:
        number = number_of(value)
        if offset <= last:
            wrong.append(f"offset {offset} follows {last}")
        last = offset
        there[offset] = number
        if number in extra:
            continue
        written = promise.written.get(number)
        if written is None or value != value_of(number, len(value or b"") - 6):
            wrong.append(f"offset {offset} shows {value!r}, which was never written")
        elif written.offset != offset:
            wrong.append(f"offset {offset} shows value {number}, which was written at {written.offset}")
        elif number in promise.gone:
            wrong.append(f"offset {offset} shows value {number} again, which was removed")
    if last >= end:
        wrong.append(f"offset {last} is shown, the log ends at {end}")
    for offset, number in promise.durable.items():
        if offset >= start and there.get(offset) != number:
            found = f"{there[offset]} is there" if offset in there else "nothing is there"
            wrong.append(f"offset {offset}, durable with value {number}: {found}")
    wrong += _mixed(promise, there)
    if not promise.start_least <= start <= promise.start_most:
        wrong.append(f"the log starts at {start}, not from {promise.start_least} to {promise.start_most}")
    if end < promise.end_least:
        wrong.append(f"the log ends at {end}, below {promise.end_least}, which was promised")
    return wrong


def _mixed(promise: Promise, there: dict[int, int]) -> list[str]:
    """Records of an era that had ended, shown together with newer ones where those are."""
    eras = {o: promise.written[n].era for o, n in there.items() if n in promise.written}
    newest = max(eras.values(), default=0)
    wrong = []
    for offset, era in eras.items():
        limit = min(promise.cuts[era + 1 : newest + 1], default=offset + 1)
        if offset >= limit:
            wrong.append(
                f"offset {offset} shows a record from before the log was cut at {limit}, beside newer ones"
            )
    return wrong
