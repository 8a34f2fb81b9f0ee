"""What a workload knows of its log: what was appended, what must be there, what must not come back.

A value is `%06d` of a number that is used once, and padding, so a record shows which append it is from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Written:
    """A record whose append has begun. `era`: how many truncations had ended before."""

    offset: int
    era: int


@dataclass(frozen=True)
class Expected:
    """What must hold after a power cut at one moment. Numbers are those of values."""

    doing: str = "opening"
    # offset -> number: shown, unless below the log start
    durable: dict[int, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()  # numbers that must not be shown
    start_least: int = 0
    start_most: int = 0
    end_least: int = 0
    # by number; it only grows, all moments share it
    written: dict[int, Written] = field(default_factory=dict)
    cuts: tuple[int, ...] = (0,)  # where each era began: records of older eras end there
    jumps: frozenset[int] = frozenset()  # offsets that may follow a gap
    kept: tuple[int | None, ...] = (None,)  # the values that a kept option may have

    def __str__(self) -> str:
        return (
            f"while {self.doing}: {len(self.durable)} durable records up to {max(self.durable, default=-1)}, "
            f"start {self.start_least} to {self.start_most}, end from {self.end_least}"
        )


class Book:
    """Keeps `now`, what must hold, up to date.

    Before an operation begins, the book withdraws what the operation may remove. When it has returned, the
    book adds what it guarantees.
    """

    def __init__(self, now: Expected | None = None) -> None:
        now = now or Expected()
        self.now = replace(now, written=dict(now.written))
        self.number = max(now.written, default=0)

    def change(self, **changes: object) -> None:
        """Replaces fields of `now`."""
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
        from_: int = 0,
        start_least: int | None = None,
        start_most: int = 0,
        end_least: int | None = None,
    ) -> None:
        """An operation begins. Of the durable records it keeps those with `from_` <= offset < `below`; it may
        move the log start to between `start_least` and `start_most`, and the log end down to `end_least` or
        `below`."""
        now = self.now
        self.change(
            doing=doing,
            durable={o: n for o, n in now.durable.items() if (below is None or o < below) and o >= from_},
            start_least=now.start_least if start_least is None else min(now.start_least, start_least),
            start_most=max(now.start_most, start_most),
            end_least=min(o for o in (now.end_least, below, end_least) if o is not None),
        )

    def durable(self, shown: dict[int, int], below: int) -> None:
        """Records below this offset are on the disk. Those that they replaced must not come back."""
        gone, era = self.now.gone, len(self.now.cuts) - 1
        cut = self.now.cuts[era]
        if below >= cut:
            gone |= {n for n, w in self.now.written.items() if w.era < era and w.offset >= cut}
        self.change(durable=self.now.durable | {o: n for o, n in shown.items() if o < below}, gone=gone)

    def truncated(self, offset: int) -> None:
        """The log was cut off at this offset: later records are of another era."""
        self.change(cuts=(*self.now.cuts, offset))

    def jump(self, offset: int) -> None:
        """The next record may get this offset, whatever the log held before it."""
        self.change(jumps=self.now.jumps | {offset})

    def remove(self, *, from_: int | None = None, below: int = 0) -> None:
        """Records from an offset on, or below one, are deleted durably."""
        gone = {
            n
            for n, w in self.now.written.items()
            if (from_ is not None and w.offset >= from_) or w.offset < below
        }
        durable = {o: n for o, n in self.now.durable.items() if n not in gone}
        self.change(gone=self.now.gone | gone, durable=durable)

    def start(self, offset: int) -> None:
        """The log start offset is this one, durably."""
        self.change(start_least=offset, start_most=offset)


def value_of(number: int, pad: int = 40) -> bytes:
    return b"%06d" % number + b"." * pad


def number_of(value: bytes | None) -> int:
    """The number in a value; -1 for a value that no workload has made."""
    text = (value or b"")[:6]
    return int(text) if len(text) == 6 and text.isdigit() else -1


def complaints(
    expected: Expected,
    shown: Iterable[tuple[int, bytes | None]],
    start: int,
    end: int,
    extra: frozenset[int] = frozenset(),
) -> list[str]:
    """What is wrong with a log that shows these records from `start` to `end`, or `extra` numbers."""
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
        written = expected.written.get(number)
        if written is None or value != value_of(number, len(value or b"") - 6):
            wrong.append(f"offset {offset} shows {value!r}, which was never appended")
        elif written.offset != offset:
            wrong.append(f"offset {offset} shows value {number}, which was appended at {written.offset}")
        elif number in expected.gone:
            wrong.append(f"offset {offset} shows value {number}, which was removed")
    if last >= end:
        wrong.append(f"offset {last} is shown, the log ends at {end}")
    for offset, number in expected.durable.items():
        if offset >= start and there.get(offset) != number:
            found = f"value {there[offset]}" if offset in there else "no record"
            wrong.append(f"offset {offset} is durable with value {number}, and shows {found}")
    wrong += _mixed(expected, there)
    if not expected.start_least <= start <= expected.start_most:
        wrong.append(f"the log starts at {start}, not from {expected.start_least} to {expected.start_most}")
    if end < expected.end_least:
        wrong.append(f"the log ends at {end}, and {expected.end_least} is durable")
    return wrong


def _mixed(expected: Expected, there: dict[int, int]) -> list[str]:
    """Complaints about records of an era that had ended beside newer ones that replaced them."""
    eras = {o: expected.written[n].era for o, n in there.items() if n in expected.written}
    newest = max(eras.values(), default=0)
    return [
        f"offset {offset} shows a record from before a truncation, beside records from after it"
        for offset, era in eras.items()
        if offset >= min(expected.cuts[era + 1 : newest + 1], default=offset + 1)
    ]
