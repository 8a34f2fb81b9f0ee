"""Producer states: last batches, open transactions, aborted transactions (spec 3.5, 6.6 to 6.8, 8.5)."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from kstore.arguments import MAX64
from kstore.engine.append.record_appender import Appended
from kstore.engine.record.batch import control_type, crc32c
from kstore.engine.segment.index import AbortedTxn
from kstore.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.producer_snapshot import ENTRY, HEADER, checked_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Any

    from kstore.engine.record.batch import Record, RecordBatch
    from kstore.engine.segment.segment import Segment

_MAX_SEQUENCE = 2**31 - 1
_MAX_EPOCH = 2**15 - 1
REMEMBERED_BATCHES = 5
ABORT, COMMIT = 0, 1


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer, by which a retry is recognised."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        n = self.last_sequence - self.offset_delta
        return n if n >= 0 else _MAX_SEQUENCE + n + 1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState:
    """The state of one producer id in a log."""

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        current_txn_first_offset: int | None = None,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches = deque(batches, maxlen=REMEMBERED_BATCHES)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, ProducerState) else NotImplemented

    def __repr__(self) -> str:
        return f"ProducerState({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def move_to(self, epoch: int) -> None:
        """Set the epoch; another epoch forgets the batches of the one before."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()

    def retried(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch that this one repeats, or None."""
        if batch.producer_epoch == self.producer_epoch:
            for known in self.batches:
                if (known.first_sequence, known.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return known
        return None


class Expiry(NamedTuple):
    """The rule of expiry: producers without an open transaction that have written nothing for so long (spec
    6.7)."""

    expiration_ms: int
    now_ms: int

    def is_over(self, state: ProducerState) -> bool:
        silent = self.now_ms - state.last_timestamp
        return state.current_txn_first_offset is None and silent >= self.expiration_ms


def read_snapshot(data: bytes, file: str = "") -> list[ProducerState]:
    """The producers in a .snapshot file. CorruptSnapshotError."""
    count = checked_count(data, file)
    states = []
    for slot in range(count):
        pid, epoch, sequence, last_offset, delta, timestamp, coordinator, txn = ENTRY.unpack_from(
            data, HEADER.size + slot * ENTRY.size
        )
        state = ProducerState(pid, epoch, coordinator, timestamp, txn if txn >= 0 else None)
        if last_offset >= 0:
            state.batches.append(BatchMetadata(sequence, last_offset, delta, timestamp))
        states.append(state)
    return states


def _java_order(states: list[ProducerState]) -> list[ProducerState]:
    """The order in which a Java HashMap iterates over these ids: that of Kafka's snapshots."""
    capacity = 16
    while len(states) > capacity * 3 // 4:
        capacity *= 2

    def bucket(state: ProducerState) -> int:
        folded = (state.producer_id ^ (state.producer_id >> 32)) & 0xFFFFFFFF
        return (folded ^ (folded >> 16)) & (capacity - 1)

    return sorted(states, key=bucket)


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    """Encode a .snapshot file, which has the last batch of each producer (spec 3.5)."""
    entries = []
    for state in _java_order(list(states)):
        last = state.batches[-1] if state.batches else BatchMetadata(-1, -1, 0, -1)
        txn = state.current_txn_first_offset
        entries.append(
            ENTRY.pack(
                state.producer_id,
                state.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                state.last_timestamp,
                state.coordinator_epoch,
                -1 if txn is None else txn,
            )
        )
    body = len(entries).to_bytes(4, "big") + b"".join(entries)
    return HEADER.pack(1, crc32c(body), len(entries)) + body[4:]


def _copied(state: ProducerState | None, producer_id: int) -> ProducerState:
    return ProducerState(producer_id) if state is None else ProducerState(**vars(state))


def _check(
    batch: RecordBatch,
    updated: ProducerState,
    current: ProducerState | None,
    origin: str,
    transaction_version: int,
) -> None:
    """Check epoch, sequence and transaction of a batch against the state of its producer."""
    pid, epoch = batch.producer_id, batch.producer_epoch
    if batch.is_control:
        _check_marker(batch, updated, transaction_version)
        return
    if epoch < updated.producer_epoch:
        raise InvalidProducerEpochError(
            f"producer {pid}: epoch {epoch} is below {updated.producer_epoch}, at offset {batch.base_offset}"
        )
    if origin == "client":
        _check_sequence(batch, updated, current)
    if updated.current_txn_first_offset is not None and not batch.is_transactional:
        raise InvalidTxnStateError(
            f"producer {pid}: a batch outside the transaction that it opened at offset "
            f"{updated.current_txn_first_offset}"
        )


def _check_sequence(batch: RecordBatch, updated: ProducerState, current: ProducerState | None) -> None:
    first = batch.base_sequence
    if batch.producer_epoch != updated.producer_epoch:
        follows, last = first == 0 or updated.producer_epoch == -1, -1
    else:
        if updated.batches:
            last = updated.batches[-1].last_sequence
        elif current is not None and current.producer_epoch == batch.producer_epoch and current.batches:
            last = current.batches[-1].last_sequence
        else:
            last = -1
        fresh = updated.producer_epoch == -1
        follows = fresh or first == last + 1 or (first == 0 and last == _MAX_SEQUENCE)
    if not follows:
        raise OutOfOrderSequenceError(
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}: sequence {first} does not follow "
            f"on {last}, at offset {batch.base_offset}"
        )


def _check_marker(batch: RecordBatch, updated: ProducerState, transaction_version: int) -> None:
    if batch.records_count == 0:
        return
    if transaction_version not in (0, 1, 2):
        raise ValueError(
            "append_batches of a transaction marker needs transaction_version, 0 to 2, not "
            f"{transaction_version}"
        )
    known, epoch = updated.producer_epoch, batch.producer_epoch
    # with version 2 every marker raises the epoch; an equal epoch is a retry of a stored marker
    retry = epoch == known and (updated.current_txn_first_offset is None or epoch == _MAX_EPOCH)
    if epoch < known or (transaction_version == 2 and epoch == known and not retry):
        raise InvalidProducerEpochError(
            f"producer {batch.producer_id}: a marker of epoch {epoch}, where {known} is known"
        )
    found = _marker_of(batch)
    value = found[1].value or b"" if found is not None else b""
    coordinator = int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1
    if coordinator < updated.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"producer {batch.producer_id}: coordinator epoch {coordinator} is below "
            f"{updated.coordinator_epoch}"
        )


def _marker_of(batch: RecordBatch) -> tuple[int, Record] | None:
    """The kind of a transaction marker, ABORT or COMMIT, and its record; None for another control batch.

    Kafka cannot load a log with another control record of a producer. In kstore its transaction stays open.
    """
    records, _ = batch.sound_records()  # Kafka ignores what follows the first record
    if not records:
        return None
    try:
        kind = control_type(records[0].key, batch.file, batch.position)
    except CorruptRecordError:
        return None
    return (kind, records[0]) if kind in (ABORT, COMMIT) else None


class OpenTransactions:
    """The first offsets of open transactions, with their producers, in a heap.

    One thread changes them; any thread may call `first()`, which may return an offset that is being removed.
    """

    def __init__(self, producers: Iterable[tuple[int, int]] = ()) -> None:
        self._producers = dict(producers)
        # a heap; a removed offset stays in it until it is the lowest
        self._offsets = sorted(self._producers)

    def add(self, first_offset: int, producer_id: int) -> None:
        if first_offset not in self._producers:
            heappush(self._offsets, first_offset)
        self._producers[first_offset] = producer_id

    def remove(self, first_offset: int) -> None:
        self._producers.pop(first_offset, None)
        while self._offsets and self._offsets[0] not in self._producers:
            heappop(self._offsets)

    def first(self) -> int | None:
        try:
            return self._offsets[0]
        except IndexError:
            return None

    def first_without(self, removed: Collection[int]) -> int | None:
        """The lowest offset that is not in `removed`."""
        offsets = self._offsets
        waiting = [(offset, 0) for offset in offsets[:1]]
        while waiting:
            offset, at = heappop(waiting)
            if offset in self._producers and offset not in removed:
                return offset
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(offsets):
                    heappush(waiting, (offsets[child], child))
        return None


class _Trial(OpenTransactions):
    """Open transactions after changes that leave the original as it is."""

    def __init__(self, others: OpenTransactions) -> None:
        super().__init__()
        self._others = others
        self._removed: set[int] = set()

    def remove(self, first_offset: int) -> None:
        super().remove(first_offset)
        self._removed.add(first_offset)

    def first(self) -> int | None:
        found = (super().first(), self._others.first_without(self._removed))
        return min((offset for offset in found if offset is not None), default=None)


class ProducerStates:
    """The states of all producers of a log, updated by applying its batches in order."""

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self.ongoing = OpenTransactions()
        self.end_offset = 0

    def restore(self, states: Iterable[ProducerState], end_offset: int) -> None:
        """Replace all states by those of a snapshot."""
        self.states = {state.producer_id: state for state in states}
        self.ongoing = OpenTransactions(
            (state.current_txn_first_offset, state.producer_id)
            for state in self.states.values()
            if state.current_txn_first_offset is not None
        )
        self.end_offset = end_offset

    def copy(self) -> ProducerStates:
        """An independent copy."""
        made = ProducerStates()
        made.restore(self.copied().values(), self.end_offset)
        return made

    def copied(self) -> dict[int, ProducerState]:
        """Independent copies of the present states, by producer id."""
        return {producer_id: _copied(state, producer_id) for producer_id, state in list(self.states.items())}

    def forget(self, expiry: Expiry) -> None:
        """Remove expired producers."""
        for producer_id in [pid for pid, state in self.states.items() if expiry.is_over(state)]:
            del self.states[producer_id]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction, or None."""
        return self.ongoing.first()

    def analyze(
        self, batches: Sequence[RecordBatch], origin: str, transaction_version: int = -1
    ) -> dict[int, Appended]:
        """Check batches before an append, without changing the states (spec 6.6).

        Returns the retries, by index: batches that are stored or repeat an earlier one of the call. (Kafka
        takes one batch of a client at a time.) With origin "replication" only control batches are checked, as
        by a follower.
        """
        updated: dict[int, ProducerState] = {}
        retries: dict[int, Appended] = {}
        for at, batch in enumerate(batches):
            if batch.producer_id < 0:
                continue
            if batch.is_control and batch.records(verify=False) and _marker_of(batch) is None:
                raise InvalidRecordError(
                    f"the control batch at offset {batch.base_offset}, of producer {batch.producer_id}, is "
                    "no transaction marker: its key is not that of ABORT or COMMIT"
                )
            if origin == "replication":
                continue
            current = self.states.get(batch.producer_id)
            working = updated.get(batch.producer_id)
            if working is None:
                working = updated[batch.producer_id] = _copied(current, batch.producer_id)
            if origin == "client" and (known := working.retried(batch)) is not None:
                retries[at] = Appended(known.first_offset, known.last_offset, 0, True)
                continue
            _check(batch, working, current, origin, transaction_version)
            if not batch.is_control:
                working.move_to(batch.producer_epoch)
                working.batches.append(
                    BatchMetadata(
                        batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
                    )
                )
                if batch.is_transactional and working.current_txn_first_offset is None:
                    working.current_txn_first_offset = batch.base_offset
        return retries

    def aborted_by(self, batches: Sequence[RecordBatch]) -> list[AbortedTxn]:
        """The transactions that batches would abort. The states do not change."""
        if not any(batch.is_control for batch in batches):
            return []
        trial = ProducerStates()
        trial.ongoing = _Trial(self.ongoing)
        aborted = []
        for batch in batches:
            if batch.producer_id >= 0:
                known = self.states.get(batch.producer_id)
                trial.states.setdefault(batch.producer_id, _copied(known, batch.producer_id))
                aborted.append(trial.apply(batch))
        return [transaction for transaction in aborted if transaction is not None]

    def apply(self, batch: RecordBatch) -> AbortedTxn | None:
        """Apply a batch with a producer id. Returns the transaction that it aborts, or None."""
        state = self.states.get(batch.producer_id)
        if state is None:
            state = self.states[batch.producer_id] = ProducerState(batch.producer_id)
        self.end_offset = batch.last_offset + 1
        if batch.is_control:
            return self._end(state, batch)
        state.move_to(batch.producer_epoch)
        first_offset = batch.last_offset - batch.last_offset_delta
        state.batches.append(
            BatchMetadata(
                batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
            )
        )
        state.last_timestamp = batch.max_timestamp
        if batch.is_transactional and state.current_txn_first_offset is None:
            state.current_txn_first_offset = first_offset
            self.ongoing.add(first_offset, batch.producer_id)
        return None

    def _end(self, state: ProducerState, batch: RecordBatch) -> AbortedTxn | None:
        """Apply a transaction marker, whatever its epochs, as Kafka does on replicas."""
        found = _marker_of(batch)
        if found is None:
            return None
        kind, marker = found
        first_offset = state.current_txn_first_offset
        aborted = None
        if first_offset is not None:
            self.ongoing.remove(first_offset)
            if kind == ABORT:
                stable = self.ongoing.first()
                aborted = AbortedTxn(
                    batch.producer_id,
                    first_offset,
                    batch.base_offset,
                    batch.last_offset + 1 if stable is None else stable,
                )
        state.move_to(batch.producer_epoch)
        value = marker.value or b""
        if len(value) >= 6:  # Kafka fails on a shorter value, which the log does not need
            state.coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True)
        state.last_timestamp = marker.timestamp
        state.current_txn_first_offset = None
        return aborted


def batches_of_producers(
    segment: Segment, start_offset: int, *, strict: bool = False, first_position: int = 0
) -> Iterable[RecordBatch]:
    """The batches of a segment, from start_offset on, that have a producer id, found by their headers. A
    batch must begin at `first_position`, where the search begins.

    strict: CorruptRecordError if offsets contradict each other, if bytes follow the last batch of a sealed
    segment, or if one of these batches is damaged. Otherwise they are used as they are, as in Kafka.
    """
    headers = segment.read_headers(first_position)
    if strict:
        _check_order(segment, headers)
    wanted = (headers["producer_id"] >= 0) & (headers["last_offset"] >= start_offset)
    for position in headers["position"][wanted].tolist():
        batch = segment.batch_at(position)
        if strict:
            batch.ensure_valid()
        yield batch


def _check_order(segment: Segment, headers: Any) -> None:
    """Raise CorruptRecordError unless the batches have rising offsets and fill a sealed segment."""
    if not len(headers):
        end = 0
    else:
        wrong = headers["last_offset"][:-1] >= headers["base_offset"][1:]
        at = int(wrong.argmax()) if wrong.any() else len(headers) - 1
        last = int(headers["last_offset"][at])
        following = segment.end_offset if at == len(headers) - 1 else int(headers["base_offset"][at + 1])
        if last >= following:
            raise CorruptRecordError(
                "offsets of a batch",
                file=segment.path,
                position=int(headers["position"][at]),
                offset=int(headers["base_offset"][at]),
                expected=f"a last offset below {following}, where the next batch begins",
                found=last,
            )
        end = int(headers["position"][-1] + headers["size"][-1])
    if end < segment.size and segment.end_offset < MAX64:
        raise CorruptRecordError(
            "a batch that ends behind the segment, and others follow",
            file=segment.path,
            position=end,
            expected="a whole batch",
            found=f"{segment.size - end} bytes",
        )
