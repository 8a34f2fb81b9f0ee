"""What a log or a store shows, and whether that is its state before, after or within an operation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import kstore


class Broken(AssertionError):
    """What must hold does not."""


def require(truth: object, text: str) -> None:
    """Broken with this text unless it is true."""
    if not truth:
        raise Broken(text)


@dataclass
class Shown:
    """A partition as a reader sees it. `committed`: values of read_committed. `groups`: their positions."""

    start: int = 0
    end: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    groups: dict[str, int] = field(default_factory=dict)
    epochs: set[tuple[int, int]] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{short(self.records)} from {self.start} to {self.end}"

    @classmethod
    def of(cls, log: kstore.PartitionLog) -> "Shown":
        """What a log shows, read in more than one way."""
        read = [(record.offset, bytes(record.value)) for record in log.records()]
        shown = cls(log.log_start_offset, log.log_end_offset, dict(read))
        offsets = [offset for offset, _ in read]
        require(offsets == sorted(set(offsets)), f"{shown}: offsets do not rise: {offsets}")
        require(all(shown.start <= o < shown.end for o in offsets), f"{shown}: records lie outside")
        require(len(set(shown.records.values())) == len(read), f"{shown}: a value is there twice")
        for offset, value in read:
            require(bytes(log.get(offset).value) == value, f"{shown}: get({offset}) differs")
            require(log.find(offset=offset).offset == offset, f"{shown}: find({offset}) differs")
        keys = {record.key: record.offset for record in log.records() if record.key is not None}
        found = {key: getattr(log.last(key), "offset", None) for key in keys}
        require(found == keys, f"{shown}: last() finds {found}, not {keys}")
        shown.committed = {bytes(record.value) for record in log.records(isolation="read_committed")}
        shown.groups = {group: position.offset for group, position in log.cursors().items()}
        # An epoch without records is forgotten, as in Kafka.
        shown.epochs = {entry for entry in log.leader_epochs if entry[1] < shown.end}
        return shown


Topics = dict[str, tuple[int, object]]  # number of partitions, retention_bytes
Extras = dict[bytes, tuple[str, int | None]]  # of a value: its log, and its offset if it is acknowledged


@dataclass
class State:
    """What a store shows, or a log: then without topics, and with the one log "t-0"."""

    logs: dict[str, Shown] = field(default_factory=dict)
    topics: Topics = field(default_factory=dict)


@dataclass
class Between:
    """What a log or store may show: `before`, `after`, or a state between them.

    `exact`: start and end are those of `after`. `compacts`: records are removed one by one.
    """

    before: State
    after: State
    exact: bool = False
    compacts: bool = False

    def check(self, found: State, extras: Extras, *, whole: bool = True) -> None:
        """Broken unless `found` is one of these. `extras`: values that were appended meanwhile by others. Not
        `whole`: a change of topics may be half done."""
        either = (self.before.topics, self.after.topics)
        fits = found.topics in either or (
            not whole and any(found.topics.items() <= topics.items() for topics in either)
        )
        require(fits, f"the topics are {found.topics}, not one of {either}")
        for name, shown in found.logs.items():
            meanwhile = {value: offset for value, (log, offset) in extras.items() if log == name}
            before, after = (state.logs.get(name, Shown()) for state in (self.before, self.after))
            wrong = self._compare(before, after, shown, meanwhile)
            require(not wrong, f"{name} shows {shown}: {'; '.join(wrong)}")

    def narrowed(self, now: State, *, usable: bool, pending: bool) -> "Between":
        """What may be shown later, if the log shows `now`: that, or more of the operation unless usable."""
        logs = {
            name: shown if usable else replace(self.before.logs.get(name, Shown()), records=shown.records)
            for name, shown in now.logs.items()
        }
        after = self.after.logs | (now.logs if usable and not pending else {})
        exact = usable and not pending
        before = State(self.before.logs | logs, self.before.topics)
        return Between(before, State(after, self.after.topics), exact, self.compacts)

    def _compare(
        self, before: Shown, after: Shown, found: Shown, extras: Mapping[bytes, int | None]
    ) -> list[str]:
        wrong = []
        old, new, own = [
            {offset: value for offset, value in shown.records.items() if value not in extras}
            for shown in (before, after, found)
        ]
        either = old | new
        expected = {value: offset for offset, value in either.items()}
        for offset, value in own.items():
            earlier = sum(extra is None or extra < offset for extra in extras.values())
            if value not in expected or not 0 <= offset - expected[value] <= earlier:
                wrong.append(f"offset {offset} has the value {value[:5]!r}, not of {expected.get(value)}")
        kept = {o: v for o, v in old.items() if new.get(o) == v}
        gone = {o for o, v in kept.items() if v not in own.values()}
        if gone:
            wrong.append(f"acknowledged, and gone: {short(gone)}")
        deletes = kept != old or before.start != after.start
        acked = {offset: value for value, offset in extras.items() if offset is not None}
        lost = [offset for offset, value in acked.items() if found.records.get(offset) != value]
        if lost and not deletes:
            wrong.append(f"acknowledged meanwhile, and gone: {short(lost)}")
        order = [value for _, value in sorted(either.items())]
        places = [order.index(value) for value in own.values() if value in order]
        if places and not self.compacts and places != list(range(places[0], places[0] + len(places))):
            wrong.append(f"records in the middle are gone, of {short(either)}")
        wrong += self._compare_bounds(before, after, found, kept, len(extras))
        wrong += _compare_committed(before, after, found, extras)
        for group in before.groups | after.groups | found.groups:
            allowed = before.groups.get(group), after.groups.get(group)
            if found.groups.get(group) not in allowed:
                wrong.append(f"{group} is at {found.groups.get(group)}, not one of {allowed}")
        one, other, own_epochs = (_epochs_from(found.start, shown.epochs) for shown in (before, after, found))
        if not extras and not one & other <= own_epochs <= one | other:
            wrong.append(f"the leader epochs are {found.epochs}, of {one | other}")
        return wrong

    def _compare_bounds(
        self, before: Shown, after: Shown, found: Shown, kept: dict[int, bytes], more: int
    ) -> list[str]:
        most = max(before.end, after.end)
        starts = min(before.start, after.start), min(kept, default=most)
        # A truncation to the inside of a batch may have ended where the batch begins.
        last = max(kept, default=found.start - 1) + 1
        ends = min(before.end, last if after.end < before.end else after.end), most + more
        if self.exact:
            # A log without records may start at its end when it is opened again: no file tells of what is
            # below.
            moves = more if after.start != before.start or not kept else 0
            starts = after.start, (after.start if kept else after.end) + moves
            ends = after.end, after.end + more
        elif before.start == after.start and kept:
            starts = before.start, before.start
        wrong = []
        if not starts[0] <= found.start <= starts[1]:
            wrong.append(f"it starts at {found.start}, not from {starts[0]} to {starts[1]}")
        if not ends[0] <= found.end <= ends[1]:
            wrong.append(f"it ends at {found.end}, not from {ends[0]} to {ends[1]}")
        return wrong


def _compare_committed(
    before: Shown, after: Shown, found: Shown, extras: Mapping[bytes, int | None]
) -> list[str]:
    wrong = []
    values = set(found.records.values())
    if found.committed - (before.committed | after.committed | extras.keys()) or found.committed - values:
        wrong.append("read_committed gives records that are aborted, open or not there")
    if not extras and before.committed & after.committed & values - found.committed:
        wrong.append("read_committed misses records that are committed")
    by_marker = (after.committed - before.committed) & set(before.records.values())
    if found.committed & by_marker not in (set(), by_marker):
        wrong.append("a part of a transaction is committed")
    return wrong


def _epochs_from(start: int, epochs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The leader epochs that are left when a log starts there: the last one below it starts there, too."""
    first = {max(offset, start): epoch for epoch, offset in sorted(epochs)}
    return {(epoch, offset) for offset, epoch in first.items()}


def short(offsets: Iterable[int]) -> str:
    """Offsets as ranges."""
    parts: list[list[int]] = []
    for offset in sorted(offsets):
        if parts and parts[-1][1] == offset - 1:
            parts[-1][1] = offset
        else:
            parts.append([offset, offset])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in parts) or "nothing"


def fail_softly(error: BaseException) -> None:
    """Broken if an error of kstore has no message: a refusal must have a reason."""
    require(str(error), f"{type(error).__name__} without a message")


Refusal: Any = (kstore.KstoreError, OSError)
