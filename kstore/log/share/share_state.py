"""The state of a share group in a partition: which records are delivered, and what comes next. No I/O.

An update is the only thing that changes a state. All other functions are questions, or return the update that
a decision leads to, so that the caller can store it first.
"""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

# Kafka's delivery states, as its share-state records have them
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
STATES = frozenset((AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED))
FOREVER = 2**63 - 1
MOST_DELIVERIES = 2**15 - 1  # an int16


class InFlight(NamedTuple):
    """A record that was delivered and is not done.

    `until`: the time in ms at which the lock of `worker` expires if the record is acquired, else the time
    from which on it is available.
    """

    state: int
    delivery_count: int
    worker: int
    until: int


class StateBatch(NamedTuple):
    """A change of all records of a range, as in Kafka's records, with the worker and the time of InFlight."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    worker: int = 0
    until: int = 0


class Update(NamedTuple):
    """A change of a state, or with `is_snapshot` a whole state.

    `start_offset`: all records below it are done; -1 if it does not change. `leader_epoch` and `generation`
    are those of the log position at the end of the delivered records; -1 if they do not change.
    """

    batches: tuple[StateBatch, ...]
    start_offset: int = -1
    leader_epoch: int = -1
    generation: int = -1
    is_snapshot: bool = False


class ShareState:
    """What a share group has done in a partition.

    Records below `end` were delivered; those of them that are not in `in_flight` are done, so a slow record
    keeps nothing but itself.
    """

    def __init__(self) -> None:
        self.end = 0
        self.leader_epoch = -1
        self.generation = -1
        self.in_flight: dict[int, InFlight] = {}  # by offset, in ascending order
        self._due = FOREVER  # no record in flight becomes available before this time

    # ---- questions -----------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The offset of the first record that is not done."""
        return next(iter(self.in_flight), self.end)

    def available(self, now: int, dead: Collection[int]) -> tuple[int, InFlight] | None:
        """The first record that was delivered and is to be delivered again: it was released, its lock has
        expired, or its worker is dead."""
        if now < self._due:
            return None
        due = FOREVER
        for offset, known in self.in_flight.items():
            if known.until <= now or (known.state == ACQUIRED and known.worker in dead):
                return offset, known
            due = min(due, known.until)
        self._due = due
        return None

    def due_in_ms(self, now: int) -> int:
        """In how many ms a record in flight may become available, unless its worker dies."""
        return max(self._due - now, 0)

    def look_again(self) -> None:
        """A worker has died: the next call of `available` looks at all records."""
        self._due = 0

    def workers(self) -> set[int]:
        """The workers that have acquired records."""
        return {known.worker for known in self.in_flight.values() if known.state == ACQUIRED}

    def holds(self, offset: int, delivery_count: int, worker: int) -> bool:
        """Whether a worker has still acquired a record, by its delivery of this number."""
        known = self.in_flight.get(offset)
        return known is not None and known[:3] == (ACQUIRED, delivery_count, worker)

    # ---- decisions -----------------------------------------------------------------------------------------

    def acquire(
        self, offset: int, worker: int, until: int, leader_epoch: int = -1, generation: int = -1
    ) -> Update:
        """Deliver a record to a worker. Offsets between the end and a new record have no record."""
        known = self.in_flight.get(offset)
        count = 1 if known is None else min(known.delivery_count + 1, MOST_DELIVERIES)
        batch = StateBatch(offset, offset, ACQUIRED, count, worker, until)
        if offset <= self.end:
            return Update((batch,), -1, leader_epoch, generation)
        gap = StateBatch(self.end, offset - 1, ARCHIVED, 0)
        return Update((gap, batch), -1, leader_epoch, generation)

    def finish(self, offset: int, state: int) -> Update:
        """End a record in flight: ACKNOWLEDGED or ARCHIVED."""
        batch = StateBatch(offset, offset, state, self.in_flight[offset].delivery_count)
        return Update((batch,), self._start_without(offset))

    def release(self, offset: int, until: int) -> Update:
        """Make a record in flight available again, from a time on."""
        count = self.in_flight[offset].delivery_count
        return Update((StateBatch(offset, offset, AVAILABLE, count, 0, until),))

    def renew(self, offset: int, until: int) -> Update:
        """Set the time at which the lock of an acquired record expires."""
        known = self.in_flight[offset]
        return Update((StateBatch(offset, offset, ACQUIRED, known.delivery_count, known.worker, until),))

    def snapshot(self) -> Update:
        """The whole state."""
        batches, at = [], self.start
        for offset, known in self.in_flight.items():
            if at < offset:
                batches.append(StateBatch(at, offset - 1, ACKNOWLEDGED, 0))
            batches.append(StateBatch(offset, offset, *known))
            at = offset + 1
        if at < self.end:
            batches.append(StateBatch(at, self.end - 1, ACKNOWLEDGED, 0))
        return Update(tuple(batches), self.start, self.leader_epoch, self.generation, is_snapshot=True)

    def truncated(self, end: int, leader_epoch: int, generation: int) -> Update:
        """The state of a log that has lost all records from an offset on: others may have their offsets."""
        kept = ShareState()
        kept.apply(self.snapshot())
        kept.in_flight = {offset: known for offset, known in self.in_flight.items() if offset < end}
        kept.end = min(self.end, end)
        return kept.snapshot()._replace(leader_epoch=leader_epoch, generation=generation)

    def _start_without(self, offset: int) -> int:
        """The start once a record is done; -1 if that is as it was."""
        offsets = iter(self.in_flight)
        return next(offsets, self.end) if next(offsets, -1) == offset else -1

    # ---- changes -------------------------------------------------------------------------------------------

    def apply(self, update: Update) -> None:
        """Take in an update. ValueError for one that no state leads to. Applying it again changes nothing."""
        in_flight = self.in_flight
        if update.is_snapshot:
            in_flight.clear()
            self.end, self._due = update.start_offset, FOREVER
        for batch in update.batches:
            first, last, state, count, worker, until = batch
            if last < first:
                raise ValueError(f"{batch} has no record")
            if state in (AVAILABLE, ACQUIRED):
                if first != last or (first not in in_flight and first < self.end):
                    raise ValueError(f"{batch} is of records that are done")
                in_flight[first] = InFlight(state, count, worker, until)
                self._due = min(self._due, until)
            elif first == last:
                in_flight.pop(first, None)
            else:
                self._drop(first, last + 1)
            self.end = max(self.end, last + 1)
        if update.start_offset > self.start:
            self._drop(0, update.start_offset)
            self.end = max(self.end, update.start_offset)
        if update.generation >= 0 or update.leader_epoch >= 0:
            self.leader_epoch, self.generation = update.leader_epoch, update.generation

    def _drop(self, first: int, stop: int) -> None:
        for offset in [offset for offset in self.in_flight if first <= offset < stop]:
            del self.in_flight[offset]
