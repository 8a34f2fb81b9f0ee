"""Producers and transactions: what the batches say, against snapshots and transaction indexes (spec 3.4,
3.5).

Snapshots and indexes may know more than the log, because retention and compaction remove batches. A producer
that a snapshot lacks may have expired.
"""

from __future__ import annotations

import os

from kstore.arguments import MAX64
from kstore.checking.codes import found, why
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.producer_snapshot import ENTRY, HEADER, checked_count
from kstore.log.producers.states import ABORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from kstore.checking.finding import Finding
    from kstore.checking.segment_facts import SegmentFacts
    from kstore.checking.segments import State

_CONTROL, _TRANSACTIONAL = 32, 16


class Producer(NamedTuple):
    """A producer after some batch. `last_offset` is -1 if its epoch has no batch yet, `transaction` the first
    offset of its open transaction, or -1."""

    epoch: int
    last_sequence: int
    last_offset: int
    transaction: int
    timestamp: int


class OpenTransaction(NamedTuple):
    """A transaction without an end."""

    producer_id: int
    first_offset: int
    last_timestamp: int


class Aborted(NamedTuple):
    """An entry that a transaction index must have."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Replay:
    """The producers of a log, batch by batch.

    An opening may read the batches from the log start offset on only, so it may know a later beginning of a
    transaction than the log, or no transaction if none of its records is readable. `seen`: the first offset
    of the readable batches of each open transaction, by producer. `hidden`: the markers of transactions
    without any.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.seen: dict[int, int] = {}
        self.hidden: set[int] = set()
        self.producers: dict[int, Producer] = {}
        self.bad_markers: list[tuple[int, int]] = []  # position and offset of markers that Kafka fails on

    def begins_alike(self, pid: int, told: int, known: int) -> bool:
        """Whether a first offset of a transaction, -1 for none, is the same to a reader as the known one."""
        if told < 0 or known < 0:
            return told == known
        return told == known or (known < told <= self.seen.get(pid, self.start) and known < self.start)

    def apply(self, rows: Any) -> Iterator[tuple[Aborted, Aborted]]:
        """Apply the batches of a segment. Yields the transactions that they abort, each by all batches and by
        those from the log start offset on."""
        fields = ("producer_id", "producer_epoch", "base_offset", "last_offset", "base_sequence")
        columns = [rows[name].tolist() for name in fields]
        rest = [
            rows[name].tolist() for name in ("attributes", "max_timestamp", "marker", "coordinator_epoch")
        ]
        places = rows["position"].tolist(), rows["last_offset_delta"].tolist(), rows["is_broken"].tolist()
        for row in zip(*columns, *rest, *places, strict=True):
            (
                pid,
                epoch,
                base,
                last,
                sequence,
                attributes,
                timestamp,
                marker,
                coordinator,
                position,
                delta,
                bad,
            ) = row
            known = self.producers.get(pid)
            transaction = -1 if known is None else known.transaction
            if attributes & _CONTROL:
                if marker >= 0 and coordinator < 0 and not bad:
                    self.bad_markers.append((position, base))
                kept = known is not None and known.epoch == epoch
                self.producers[pid] = Producer(
                    epoch,
                    known.last_sequence if kept and known else -1,
                    known.last_offset if kept and known else -1,
                    -1,
                    timestamp,
                )
                if pid not in self.seen:
                    self.hidden.add(base)
                seen = self.seen.pop(pid, transaction)
                if transaction >= 0 and marker == ABORT:
                    open_ones = [
                        each.transaction for each in self.producers.values() if each.transaction >= 0
                    ]
                    yield (
                        Aborted(pid, transaction, base, min(open_ones, default=last + 1)),
                        Aborted(pid, seen, base, min(self.seen.values(), default=last + 1)),
                    )
                continue
            if transaction < 0 and attributes & _TRANSACTIONAL:
                transaction = base
            if attributes & _TRANSACTIONAL and last >= self.start:
                self.seen.setdefault(pid, base)
            last_sequence = sequence + delta
            if last_sequence > 2**31 - 1:
                last_sequence -= 2**31
            self.producers[pid] = Producer(epoch, last_sequence, last, transaction, timestamp)


def check_producers(
    directory: str, facts: Sequence[SegmentFacts], state: State, *, is_complete: bool, end_offset: int
) -> tuple[list[Finding], list[OpenTransaction]]:
    """The findings about snapshots and transaction indexes, and the open transactions.

    is_complete: no batch is missing behind the start of the first segment, through compaction or damage.
    """
    findings: list[Finding] = []
    replay = _Replay(state.log_start_offset)
    first = facts[0].segment.base_offset if facts else 0
    snapshots = _snapshots(directory)
    is_missing = bool(facts) and end_offset not in snapshots
    for each in facts:
        base = each.segment.base_offset
        if base > first and base in snapshots:
            findings += _check_snapshot(snapshots.pop(base), base, replay, first, is_complete)
        rows = each.producers
        aborted = list(replay.apply(rows)) if len(rows) else []
        findings += _check_index(each, aborted, replay, is_complete, state.is_rebuilt(each))
        for position, offset in replay.bad_markers:
            text = "the value of a transaction marker is shorter than 6 bytes; Kafka's recovery fails on it"
            path, offsets = each.segment.path, (offset, offset)
            findings.append(
                found(
                    "bad_marker",
                    path,
                    text,
                    position=position,
                    offsets=offsets,
                    stops_kafka=not state.is_clean,
                )
            )
        replay.bad_markers.clear()
    if end_offset in snapshots and facts:
        findings += _check_snapshot(snapshots.pop(end_offset), end_offset, replay, first, is_complete)
    if is_missing and state.is_clean and any(len(each.producers) for each in facts):
        findings.append(found("snapshot_missing", directory))
    for path in snapshots.values():
        findings += _check_snapshot(path, MAX64, _Replay(), MAX64, False)
    still_open = [
        OpenTransaction(pid, each.transaction, each.timestamp)
        for pid, each in replay.producers.items()
        if each.transaction >= 0
    ]
    return findings, sorted(still_open, key=lambda each: each.first_offset)


def _snapshots(directory: str) -> dict[int, str]:
    names = os.listdir(directory) if os.path.isdir(directory) else []
    paths = {}
    for name in names:
        offset = layout.parse_offset(name)
        if offset is not None and name.partition(".")[2] == "snapshot":
            paths[offset] = f"{directory}/{name}"
    return paths


def _check_snapshot(path: str, offset: int, replay: _Replay, first: int, is_complete: bool) -> list[Finding]:
    """The findings about a snapshot at this offset, where the replay has arrived."""
    try:
        data = read_whole(path, or_deleted=True)
        count = checked_count(data, path)
    except CorruptFileError as e:
        return [found("snapshot_damaged", path, why(e), position=e.position)]
    except FileNotFoundError:  # the writer has removed it
        return []
    except OSError as e:
        return [found("unreadable_file", path, str(e))]
    wrong = []
    named: dict[int, int] = {}  # producer id: the first offset of its open transaction, or -1
    for slot in range(count):
        position = HEADER.size + slot * ENTRY.size
        pid, epoch, sequence, last, _, _, _, transaction = ENTRY.unpack_from(data, position)
        named[pid] = transaction
        known = replay.producers.get(pid)
        if last >= offset or transaction >= offset:
            wrong.append((position, f"producer {pid} has a batch at offset {max(last, transaction)}"))
        elif known is None:
            if is_complete and last >= first:
                wrong.append((position, f"producer {pid} has no batch at offset {last} in the log"))
        elif known.last_offset > last >= 0 or (
            is_complete
            and last >= first  # a batch below the first segment is known to the snapshot alone
            and (epoch, last, sequence) != (known.epoch, known.last_offset, known.last_sequence)
        ):
            text = f"epoch {epoch}, last sequence {sequence}, last offset {last}"
            log = f"{known.epoch}, {known.last_sequence}, {known.last_offset}"
            wrong.append((position, f"producer {pid} has {text}; in the log {log}"))
        elif (
            is_complete
            and not replay.begins_alike(pid, transaction, known.transaction)
            and not 0 <= transaction < first
        ):
            text = f"its open transaction begins at {transaction}; in the log at {known.transaction}"
            wrong.append((position, f"producer {pid}: {text}"))
    if not is_complete:  # markers may be gone from the log, and the snapshot knows them
        for pid, each in replay.producers.items():
            replay.producers[pid] = each._replace(transaction=named.get(pid, -1))
    wrong += [
        (-1, f"producer {pid} has an open transaction since offset {each.transaction}, and is not in it")
        for pid, each in replay.producers.items()
        if each.transaction >= 0 and pid not in named and pid in replay.seen
    ]
    return [found("snapshot_differs", path, text, position=position) for position, text in wrong]


def _check_index(
    facts: SegmentFacts,
    aborted: list[tuple[Aborted, Aborted]],
    replay: _Replay,
    is_complete: bool,
    is_rebuilt: bool,
) -> list[Finding]:
    """The findings about the transaction index of a segment."""
    segment = facts.segment
    path = segment.path_of(".txnindex")
    try:
        stored = list(segment.transaction_index)
    except CorruptFileError as e:
        return [found("index_damaged", e.file or path, why(e), position=e.position)]
    except OSError as e:
        return [found("unreadable_file", path, str(e))]
    severity = "suspicious" if is_rebuilt else ""
    entries = [Aborted(*entry[:4]) for entry in stored]
    findings = [
        found(
            "transaction_index_differs", path, f"entry {slot} has version {entry.version}", severity=severity
        )
        for slot, entry in enumerate(stored)
        if entry.version != 0
    ]
    known = {entry.last_offset: entry for entry in entries}
    for each, seen in (
        aborted if is_complete else ()
    ):  # compaction may remove a marker, or the aborted records
        entry = known.pop(each.last_offset, None)
        if entry is None and each.last_offset in replay.hidden:
            continue
        if entry is None:
            text = (
                f"the aborted transaction of producer {each.producer_id} is not in it: its records are read"
            )
            offsets = each.first_offset, each.last_offset
            findings.append(
                found("transaction_index_differs", path, text, offsets=offsets, severity=severity)
            )
        elif not _is_alike(entry, each, seen, replay.start):
            text = f"it has {_text(entry)}; the log has {_text(each)}"
            findings.append(found("transaction_index_differs", path, text, severity=severity))
    rows = facts.producers
    markers = {}
    if len(rows):
        control = rows[(rows["attributes"] & _CONTROL != 0) & (rows["marker"] == ABORT)]
        markers = dict(zip(control["base_offset"].tolist(), control["producer_id"].tolist(), strict=True))
    for entry in known.values() if is_complete else ():
        if entry.last_offset < facts.next_offset and markers.get(entry.last_offset) != entry.producer_id:
            text = f"it has {_text(entry)}; the log has no such marker"
            findings.append(found("transaction_index_differs", path, text, severity=severity))
    return findings


def _is_alike(entry: Aborted, whole: Aborted, seen: Aborted, start: int) -> bool:
    """Whether an entry is, to a reader from the log start offset on, the same as one by all batches, or by
    those that an opening reads. The last stable offset may be that of a transaction that was deleted."""
    if 0 <= entry.last_stable_offset < start:
        entry = entry._replace(last_stable_offset=whole.last_stable_offset)
    return entry.producer_id == whole.producer_id and all(
        max(told, start) in (max(known, start), max(read, start))
        for told, known, read in zip(entry, whole, seen, strict=True)
    )


def _text(entry: Aborted) -> str:
    return (
        f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}, last stable "
        f"offset {entry.last_stable_offset}"
    )
