"""The facts about a segment: every byte of its .log is read once, and its indexes are compared with it."""

from __future__ import annotations

from kstore.arguments import MAX64
from kstore.engine.scan.batch_checker import BatchChecker, row_layout
from kstore.errors import CorruptFileError, LogChangedError
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.recovery.file_kind import kind_of
from kstore.log.recovery.survey import is_zeros

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kstore.engine.scan.batch_reader import Skipped
    from kstore.engine.segment.segment import Segment

_MOST = 100  # places of one kind that are listed
_HORIZON, _CONTROL, _TRANSACTIONAL = 64, 32, 16  # attribute bits of a batch
_LOG_APPEND_TIME = 8


class Place(NamedTuple):
    """A batch: its byte, its first and last offset, and what was expected and found there."""

    position: int
    first: int
    last: int
    expected: int = 0
    found: int = 0


class SegmentFacts(NamedTuple):
    """What a segment holds.

    `end_position` is the byte behind the last batch, `next_offset` the offset behind it. `errors`: why the
    records of batches do not parse, by byte. `late`, `early`: batches whose largest timestamp is below, or
    above, those of their records. `is_zeros_behind`: the last thing skipped reaches to the end of the file,
    and is zeros. `kind`: what a file without batches is. `gaps`: missing offsets between two batches, with
    the leader epochs of both, and between the name and the first batch, with -1 for the first epoch;
    `inner_gaps`: batches that lack some of their records. Lists have the first places only; `gap_count` and
    `inner_count` count all. `epochs`: leader epochs in order, each with the first offset and the byte.
    `producers`: the batches that change the state of a producer or of a
    transaction. `index_faults`: (suffix of the file, byte in it, what is wrong). `holes`: where bytes
    were skipped, and behind the last batch: the first of these bytes, and the offsets that are missing there.
    `unread`: the errors of index files that cannot be read.
    """

    segment: Segment
    size: int
    batches: int
    records: int
    first_offset: int
    next_offset: int
    end_position: int
    max_timestamp: int
    skipped: tuple[Skipped, ...]
    is_zeros_behind: bool
    kind: str
    errors: dict[int, Exception]
    late: tuple[Place, ...]
    early: tuple[Place, ...]
    gaps: tuple[Place, ...]
    gap_count: int
    inner_gaps: tuple[Place, ...]
    inner_count: int
    has_horizon: bool
    epochs: tuple[tuple[int, int, int], ...]
    producers: Any
    index_faults: tuple[tuple[str, int, str], ...]
    holes: tuple[Place, ...] = ()
    unread: tuple[OSError, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing in it is wrong by itself."""
        return not (
            self.skipped
            or self.errors
            or self.late
            or self.early
            or self.index_faults
            or self.kind
            or self.unread
            or self.end_position < self.size
            or self.segment.notes
        )


def read_segment(segment: Segment, advanced: Callable[[int], object] = lambda _: None) -> SegmentFacts:
    """Read all of a segment. advanced: called with the number of bytes that were read since the last call.
    CorruptFileError, LogChangedError, OSError."""
    numpy = library("numpy")
    size = segment.size
    indexes = _IndexCheck(segment)
    reader = BatchChecker((segment,), 0, MAX64, first_position=0, on_error="skip")
    late: list[Place] = []
    early: list[Place] = []
    gaps: list[Place] = []
    inner: list[Place] = []
    holes: list[Place] = []
    epochs: list[tuple[int, int, int]] = []
    producers = []
    batches = records = gap_count = inner_count = 0
    first, last, end, latest, epoch, horizon = -1, segment.base_offset - 1, 0, -1, -1, False
    for table in reader:
        known = table["magic"] == 2
        sound = table["is_broken"] == 0
        base, ends = table["base_offset"], table["last_offset"]
        filled = sound & (table["last_record"] >= 0)
        _places(late, table, filled & (table["latest"] > table["max_timestamp"]), "max_timestamp", "latest")
        # A log append time is that of all records, and a message of magic 0 has none
        counted = filled & known & (table["attributes"] & _LOG_APPEND_TIME == 0)
        _places(early, table, counted & (table["latest"] < table["max_timestamp"]), "max_timestamp", "latest")
        lacking = sound & known & (table["records_count"] <= table["last_offset_delta"])
        _places(inner, table, lacking, "last_offset", "last_record")
        inner_count += int(lacking.sum())
        before = numpy.concatenate(([last], ends[:-1]))
        # where damage was skipped, the offsets are missing for that reason
        begins = numpy.concatenate(([end], (table["position"] + table["size"])[:-1]))
        contiguous = table["position"] == begins
        holes += [
            Place(int(begins[at]), int(before[at]) + 1, int(base[at]) - 1)
            for at in (~contiguous).nonzero()[0].tolist()
        ]
        missing = (base > before + 1) & contiguous & known
        gap_count += int(missing.sum())
        epoch_before = numpy.concatenate(([epoch], table["leader_epoch"][:-1]))
        gaps += [
            Place(
                int(table["position"][at]),
                int(before[at]) + 1,
                int(base[at]) - 1,
                int(epoch_before[at]),
                int(table["leader_epoch"][at]),
            )
            for at in missing.nonzero()[0][: _MOST - len(gaps)].tolist()
        ]
        horizon = horizon or bool((table["attributes"][known] & _HORIZON).any())
        for at in _changes(numpy, table["leader_epoch"], known):
            if int(table["leader_epoch"][at]) != epoch and len(epochs) < _MOST * _MOST:
                epoch = int(table["leader_epoch"][at])
                epochs.append((epoch, int(base[at]), int(table["position"][at])))
        indexes.see(table)
        producers.append(_of_producers(numpy, table))
        if not batches:
            first = int(base[0])
        batches += len(table)
        counts = table["records_count"]
        records += int(counts[counts > 0].sum()) + int((counts < 0).sum())
        latest = max(latest, int(table["max_timestamp"].max()))
        advanced(int(table["position"][-1] + table["size"][-1]) - end)
        last, end = int(ends[-1]), int(table["position"][-1] + table["size"][-1])
    advanced(size - end)
    holes.append(Place(end, last + 1, last if segment.end_offset == MAX64 else segment.end_offset - 1))
    return SegmentFacts(
        segment,
        size,
        batches,
        records,
        first,
        last + 1,
        reader.end_position,
        latest,
        tuple(reader.skipped),
        _is_zeros_behind(reader.skipped, segment, size),
        "" if batches or not size else _kind_of(segment),
        reader.errors,
        tuple(late),
        tuple(early),
        tuple(gaps),
        gap_count,
        tuple(inner),
        inner_count,
        horizon,
        tuple(epochs),
        numpy.concatenate(producers).astype(row_layout(), copy=False) if producers else (),
        tuple(indexes.faults(last + 1)),
        tuple(holes),
        indexes.unread,
    )


def _is_zeros_behind(skipped: list[Skipped], segment: Segment, size: int) -> bool:
    if not skipped or skipped[-1].position + skipped[-1].size < size:
        return False
    return is_zeros(segment, skipped[-1].position)


def _kind_of(segment: Segment) -> str:
    """The kind of a file without any batch, if it is another one. Zeros may be room that a broker has
    taken."""
    kind = kind_of(segment.path)
    return "" if kind == "zeros" and segment.end_offset == MAX64 else kind


def _places(places: list[Place], table: Any, wanted: Any, expected: str, found: str) -> None:
    """Add the first of the wanted batches."""
    for at in wanted.nonzero()[0][: _MOST - len(places)].tolist():
        row = table[at]
        places.append(
            Place(
                int(row["position"]),
                int(row["base_offset"]),
                int(row["last_offset"]),
                int(row[expected]),
                int(row[found]),
            )
        )


def _changes(numpy: Any, epochs: Any, known: Any) -> list[int]:
    """The rows at which a leader epoch begins."""
    at = (known & (epochs >= 0)).nonzero()[0]
    if not len(at):
        return []
    changed = numpy.concatenate(([True], epochs[at][1:] != epochs[at][:-1]))
    rows: list[int] = at[changed].tolist()
    return rows


def _of_producers(numpy: Any, table: Any) -> Any:
    """The batches that matter for the states of producers: markers, the batches beside them, and the first
    and the last batch of each producer and epoch in the table."""
    rows = table[(table["producer_id"] >= 0) & (table["magic"] == 2)]
    if len(rows) < 3:
        return rows.copy()
    order = numpy.argsort(rows["producer_id"], kind="stable")
    kind = rows["attributes"][order] & (_CONTROL | _TRANSACTIONAL)
    changed = (
        (rows["producer_id"][order][1:] != rows["producer_id"][order][:-1])
        | (rows["producer_epoch"][order][1:] != rows["producer_epoch"][order][:-1])
        | (kind[1:] != kind[:-1])
    )
    keep = kind & _CONTROL != 0
    keep[0] = keep[-1] = True
    keep[1:] |= changed
    keep[:-1] |= changed
    return rows[numpy.sort(order[keep])]


def producers_from(data: bytes) -> Any:
    """The batches of producers in the bytes of such a table."""
    return library("numpy").frombuffer(data, dtype=row_layout()) if data else ()


class _IndexCheck:
    """The comparison of the two indexes of a segment with its batches, table by table.

    An entry of the offset index names the last offset of a batch, and the byte where that batch begins; in
    files of Kafka before 4.0, where the first batch of an append began. An entry of the time index names the
    largest timestamp up to the batch with its offset, which no earlier batch has.
    """

    def __init__(self, segment: Segment) -> None:
        numpy = self._numpy = library("numpy")
        self._faults: list[tuple[str, int, str]] = []
        self.unread: tuple[OSError, ...] = ()
        offsets = positions = timestamps = times = ()
        try:
            offset_index, time_index = segment.offset_index, segment.time_index
            if not segment.notes:  # else they are made from the log already
                raw = numpy.frombuffer(offset_index.to_bytes(), ">i4").reshape(-1, 2)
                offsets = raw[:, 0].astype("i8") + segment.base_offset
                positions = raw[:, 1].astype("i8")
                stamped = numpy.frombuffer(time_index.to_bytes(), [("t", ">i8"), ("o", ">i4")])
                timestamps = stamped["t"].astype("i8")
                times = stamped["o"].astype("i8") + segment.base_offset
        except LogChangedError:
            raise
        except CorruptFileError:  # the .log is damaged, which the reading reports
            pass
        except OSError as e:
            self.unread = (e.with_traceback(None),)
        self._offsets, self._positions = numpy.asarray(offsets), numpy.asarray(positions)
        self._timestamps, self._times = numpy.asarray(timestamps), numpy.asarray(times)
        self._open = numpy.empty(0, "i8")  # entries whose offset is behind the batches seen
        self._next = self._next_time = 0
        self._largest = -1

    def _note(self, kind: str, position: int, text: str) -> None:
        if len(self._faults) < _MOST:
            self._faults.append((kind, position, text))

    def see(self, table: Any) -> None:
        """Compare the entries that concern these batches."""
        numpy = self._numpy
        positions, ends = table["position"], table["last_offset"]
        stop = int(numpy.searchsorted(self._positions, int(positions[-1]), "right"))
        if stop > self._next or len(self._open):
            self._see_offsets(table, stop)
        self._next = max(stop, self._next)
        largest = numpy.maximum.accumulate(numpy.maximum(table["max_timestamp"], self._largest))
        stop = int(numpy.searchsorted(self._times, int(ends[-1]), "right"))
        if stop > self._next_time:
            slots = numpy.arange(self._next_time, stop)
            at = numpy.searchsorted(ends, self._times[slots])
            before = numpy.concatenate(([self._largest], largest[:-1]))[at]
            told = self._timestamps[slots]
            for wrong, found in (
                (largest[at] != told, "{}"),
                (before >= told, "{}, and an earlier batch has it"),
            ):
                for slot, row in zip(slots[wrong].tolist(), at[wrong].tolist(), strict=True):
                    text = (
                        f"entry {slot} says that {self._timestamps[slot]} is the largest timestamp up to "
                        f"offset {self._times[slot]}; it is {found.format(largest[row])}"
                    )
                    self._note(".timeindex", slot * 12, text)
        self._next_time = max(stop, self._next_time)
        self._largest = int(largest[-1])

    def _see_offsets(self, table: Any, stop: int) -> None:
        numpy = self._numpy
        positions, ends = table["position"], table["last_offset"]
        slots = numpy.arange(self._next, stop)
        at = numpy.minimum(numpy.searchsorted(positions, self._positions[slots]), len(positions) - 1)
        begins = (positions[at] == self._positions[slots]) & (
            table["base_offset"][at] <= self._offsets[slots]
        )
        for slot in slots[~begins].tolist():
            offset, position = self._offsets[slot], self._positions[slot]
            text = f"entry {slot}: no batch with offset {offset} begins at byte {position}"
            self._note(".index", slot * 8, text)
        named = numpy.concatenate((self._open, slots[begins]))
        wanted = self._offsets[named]
        place = numpy.searchsorted(ends, wanted)
        is_behind = place == len(ends)
        self._open = named[is_behind]
        wrong = ends[place[~is_behind]] != wanted[~is_behind]
        for slot, offset in zip(*(each[~is_behind][wrong].tolist() for each in (named, wanted)), strict=True):
            self._note(".index", slot * 8, f"entry {slot}: no batch ends at offset {offset}")

    def faults(self, next_offset: int) -> list[tuple[str, int, str]]:
        """What is wrong in the index files, at the end of the segment."""
        for slot in self._open.tolist():
            text = f"entry {slot} names offset {self._offsets[slot]}; the segment ends at {next_offset}"
            self._note(".index", slot * 8, text)
        for slot in range(self._next, min(len(self._positions), self._next + 1)):
            text = f"entry {slot} names byte {self._positions[slot]}, behind the last batch"
            self._note(".index", slot * 8, text)
        for slot in range(self._next_time, min(len(self._times), self._next_time + 1)):
            text = f"entry {slot} names offset {self._times[slot]}; the segment ends at {next_offset}"
            self._note(".timeindex", slot * 12, text)
        return self._faults
