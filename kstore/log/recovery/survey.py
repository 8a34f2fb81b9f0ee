"""Facts about a partition directory, from which the plan of an opening is made.

Nothing is written. After an unclean stop the batches from the recovery point on are read, after a clean one
almost nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os

from kstore.arguments import MAX64
from kstore.engine.io.file import File
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.index import TransactionIndex
from kstore.engine.segment.segment import Segment
from kstore.errors import (
    CorruptCheckpointError,
    CorruptFileError,
    CorruptIndexError,
    CorruptRecordError,
    RecordTooLargeError,
)
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.listing import digest, read_directory
from kstore.log.files.lock import holder_in, is_loaded
from kstore.log.files.log_dir_state import directory_of
from kstore.log.files.manifest import stamp_of, truncations_of
from kstore.log.later import later
from kstore.log.recovery.segment_factory import SegmentFactory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    from kstore.engine.record.batch import RecordBatch
    from kstore.engine.segment.active_segment import walk_on
    from kstore.engine.segment.walks import RecoveryWalk
    from kstore.log.files.log_dir_state import State
    from kstore.log.recovery.file_kind import kind_of
    from kstore.log.recovery.last_batch import last_epoch
    from kstore.log.recovery.steps import SoundBatches
    from kstore.typed import StrPath

    Mode = Literal["read", "dry", "write"]  # dry: the steps of an opening for writing are only shown
else:
    later(
        globals(),
        {
            "kstore.log.recovery.steps": "SoundBatches",
            "kstore.engine.segment.active_segment": "walk_on",
            "kstore.log.recovery.file_kind": "kind_of",
            "kstore.log.recovery.last_batch": "last_epoch",
        },
    )

KINDS = (*layout.SEGMENT_KINDS, layout.KEYS, ".snapshot")
BITS = {kind: 1 << i for i, kind in enumerate(KINDS)}
LOG, INDEX, TIME_INDEX, TRANSACTIONS, KEYS, SNAPSHOT = (BITS[kind] for kind in KINDS)
_FILES = INDEX | TIME_INDEX | TRANSACTIONS
TRANSACTION = 34  # the size of an entry of a .txnindex

_OWN_ENDINGS = (".log", ".deleted", ".cleaned", ".swap", ".cut", ".moved", ".tmp")  # suffixes after .log
_HEADER_SIZE = 61  # bytes of a batch before its records
_FIRST_PIECE, _PIECE = 4 << 10, 1 << 20  # bytes to read at a time when searching for others than zeros


class Names(NamedTuple):
    """The names in a directory, as listed or as they are after interrupted work is finished.

    files: for each base offset in order, the BITS of the kinds of its files, if they are named by 20 digits
    and one of KINDS. others: all other names. inodes: those of .log files, by offset. device: the device of
    the directory. digest: a hash of the listing. renamed: final names of files that are still called
    NAME.swap. removed: the offsets of segments whose removal was interrupted; their .log is renamed to
    .deleted before their other files.
    """

    directory: str
    files: Mapping[int, int]
    others: tuple[str, ...]
    inodes: Mapping[int, int]
    device: int
    digest: int
    renamed: frozenset[str] = frozenset()
    removed: frozenset[int] = frozenset()

    def finished(
        self,
        files: Mapping[int, int],
        others: tuple[str, ...],
        renamed: frozenset[str],
        removed: frozenset[int],
    ) -> Names:
        """The names once interrupted work in this directory is finished."""
        return self._replace(files=files, others=others, renamed=renamed, removed=removed)

    def suffixes(self, stem: str) -> dict[str, str]:
        """The suffixes of a segment's files that do not have their final names yet, by kind."""
        return {kind: ".swap" for kind in layout.SEGMENT_KINDS if stem + kind in self.renamed}


class Swapped(NamedTuple):
    """A .log.swap file: the offset after its last batch, and whether all its batches are sound."""

    end: int
    is_sound: bool


class Rest(NamedTuple):
    """The bytes of a segment behind its last valid batch: the sound batches in them, whether all bytes are
    zero, and whether later segments have sound batches."""

    sound: SoundBatches | None
    is_zeros: bool = False
    is_followed: bool = False


class Part(NamedTuple):
    """A segment after recovery: a whole file, or the part of one from byte `origin` on, if its offsets are
    too far apart for one segment. `walk` is None for a part behind damage; `rest` is all of it then."""

    base_offset: int
    origin: int
    size: int
    walk: RecoveryWalk | None
    rest: Rest | None = None


class SegmentFacts(NamedTuple):
    """The facts about a segment.

    at: its number in the directory. files: the BITS of its files. parts: empty if it was not walked.
    is_trusted: the process that has the log open for writing has checked it, and a walk read only its end.
    is_blank: it is the last one, without an offset index, and has only zeros.
    """

    at: int
    base_offset: int
    end_offset: int
    files: int
    parts: tuple[Part, ...] = ()
    is_trusted: bool = False
    is_blank: bool = False
    transactions: CorruptIndexError | None = None  # the damage of its .txnindex

    def walked(self, *parts: Part, is_trusted: bool = False) -> SegmentFacts:
        """These facts, and the parts that a walk found."""
        return self._replace(parts=parts, is_trusted=is_trusted)

    @property
    def is_behind_damage(self) -> bool:
        """Whether the log ends in an earlier segment."""
        return bool(self.parts) and self.parts[0].walk is None


class End(NamedTuple):
    """The end of the last segment, if it was not walked.

    next_offset: the offset after its last batch. tail: how many bytes follow that batch. was_batch: whether
    they may have been a batch: there are enough of them, and not all are zero. transactions: the number of
    entries of its .txnindex, and of those that end before `next_offset`.
    """

    size: int
    next_offset: int
    tail: int
    sound: SoundBatches | None
    was_batch: bool
    transactions: tuple[int, int]


class Survey(NamedTuple):
    """The facts about a log.

    bases: the base offsets of its segments. segments: the last one, those that were walked, and those that
    lack a file. next_offset: the offset after the last valid batch, -1 without segments. end: None if the
    last segment was walked. log_starts: the file with the log start offset, if that is beyond the end of the
    log. truncation_continues: whether a pending truncation continues at that offset. epochs: those of the
    leader-epoch-checkpoint, or of the batches if it is damaged or lost, or begins beyond the end.
    epochs_error: its damage. packed: the kinds of files whose names are similar to those of segments. drafts:
    unfinished files that no process is writing.
    """

    names: Names
    bases: tuple[int, ...]
    segments: tuple[SegmentFacts, ...]
    clean: bool
    next_offset: int
    end: End | None
    log_starts: str
    truncation_continues: bool
    epochs: tuple[tuple[int, int], ...]
    epochs_error: Exception | None
    packed: Mapping[str, str]
    drafts: tuple[str, ...]

    def path_of(self, base_offset: int) -> str:
        """The path of a segment's .log file."""
        name = f"{layout.segment_stem(base_offset)}.log"
        return f"{self.names.directory}/{name}{'.swap' if name in self.names.renamed else ''}"


# ---- names -----------------------------------------------------------------------------------------------


def read_names(directory: str) -> Names:
    """The names in a directory. OSError."""
    files, others, inodes, device, digest = read_directory(directory, KINDS)
    return Names(directory, files, tuple(others), inodes, device, digest)


def names_of(offset: int, bits: int) -> list[str]:
    """The names of a segment's files of these kinds."""
    return [layout.segment_stem(offset) + kind for kind, bit in BITS.items() if bits & bit]


def changed_from(names: Names) -> int | None:
    """The first segment that was created or removed since a directory was listed, by offset; None if none
    was."""
    before, now = ({offset for offset, _ in _logs(each)} for each in (names, read_names(names.directory)))
    return min(before ^ now, default=None)


def is_as_listed(names: Names) -> bool:
    """Whether a directory still has the listed .log files, with their names, up to the last one."""
    if digest(names.directory) == names.digest:  # the common case
        return True
    before = _logs(names)
    last, _ = max(before, default=(-1, 0))
    return before == {log for log in _logs(read_names(names.directory)) if log[0] <= last}


def _logs(names: Names) -> set[tuple[int, int]]:
    """The offsets of segments with a .log file, each with its inode: 0 if unknown, -1 for a .swap file."""
    logs = {(offset, names.inodes.get(offset, 0)) for offset, bits in names.files.items() if bits & LOG}
    return logs | {(offset, -1) for offset in map(swap_offset, names.others) if offset is not None}


def swap_offset(name: str) -> int | None:
    """The base offset of the segment that a .log.swap file becomes; None for any other name."""
    return layout.segment_offset(name.removesuffix(".swap")) if name.endswith(".swap") else None


def read_swaps(swaps: Iterable[str], make: SegmentFactory) -> dict[str, Swapped]:
    """Facts about .log.swap files, by name. CorruptFileError, OSError."""
    found = {}
    for name in swaps:
        offset = swap_offset(name)
        if offset is not None:
            suffixes = dict.fromkeys(layout.SEGMENT_KINDS, ".swap")
            segment = make(layout.segment_stem(offset), offset, suffixes)
            found[name] = Swapped(segment.read_next_offset(), segment.recovery_walk().error is None)
    return found


# ---- segments --------------------------------------------------------------------------------------------


def segments_of(names: Names, make: SegmentFactory) -> list[Segment]:
    """The segments of a directory in order, without reading them."""
    offsets = sorted(offset for offset, bits in names.files.items() if bits & LOG)
    made = []
    for offset, end_offset in zip(offsets, [*offsets[1:], MAX64], strict=False):
        stem = layout.segment_stem(offset)
        made.append(make(stem, offset, names.suffixes(stem) if names.renamed else None, end_offset))
    return made


def survey(
    path: StrPath,
    names: Names,
    segments: Sequence[Segment],
    state: State,
    *,
    recover: bool,
    mode: Mode,
    trusts_writer: bool,
    is_alone: bool,
) -> Survey:
    """Read the facts for the plan. trusts_writer: batches that the process with the log open for writing has
    checked are not checked again. is_alone: no other process is writing. CorruptFileError, OSError."""
    clean = state.clean
    if state.by_itself and clean and segments:
        clean = _next_offset(segments[-1]) == state.recovery_point
    first = len(segments)  # the first segment to walk after an unclean stop
    if recover and not clean:
        first = max(sum(segment.base_offset <= state.recovery_point for segment in segments) - 1, 0)
    until = 0
    if trusts_writer and not clean and segments:
        until = trusted_until(path, state.recovery_point)
    facts: list[SegmentFacts] = []
    is_cut = False  # whether the log ends in an earlier segment
    for at, segment in enumerate(segments):
        files_of_it, is_last = names.files[segment.base_offset], at == len(segments) - 1
        if at < first and not is_last and files_of_it & _FILES == INDEX | TIME_INDEX:  # most segments
            continue
        known, later = _facts_of(at, segment, files_of_it), segments[at + 1 :]
        if is_cut:
            rest = _rest_of(segment, 0, later, state.log_start_offset)
            known = known.walked(Part(segment.base_offset, 0, segment.size, None, rest))
        elif recover and (not known.files & INDEX or known.transactions is not None):
            # Kafka recovers such a segment even after a clean shutdown, and keeps later ones
            known = known.walked(*_walked(segment, later, state.log_start_offset))
        elif at >= first:
            if until:
                known = _trusted(path, segment, segments[-1], known, state, until)
            if not known.is_trusted:
                known = known.walked(*_walked(segment, later, state.log_start_offset))
                is_cut = any(part.rest is not None for part in known.parts)
        elif recover and clean and mode != "read" and is_last and _has_tail(segment):
            # Kafka trusts the clean shutdown and appends behind these bytes. The new batch would look like
            # the rest of the damaged one, so that nothing behind it could be read.
            known = known.walked(*_walked(segment, (), state.log_start_offset))
        facts.append(known)
    end, next_offset, continues, log_starts = None, -1, False, ""
    if segments:
        known = [each for each in facts if not each.is_behind_damage][-1]
        walks = [part.walk for part in known.parts if part.walk is not None]
        if walks:
            next_offset = walks[-1].next_offset
        else:
            end = _end_of(segments[known.at], known)
            next_offset = end.next_offset
            # with recover=False the log continues behind the damage
            if not recover and end.sound is not None:
                next_offset = max(next_offset, end.sound.last_offset + 1)
        if next_offset < state.log_start_offset:
            continues = bool(truncations_of(path, stamp_of(path)).pending)
            log_starts = f"{directory_of(path)}/{layout.LOG_STARTS}"
    epochs, error = _read_epochs(path)  # after the walks, because a writer may begin an epoch meanwhile
    if mode != "read" and isinstance(error, OSError):
        raise error  # an opening for writing must not replace a file that may be sound
    if error is None and not epochs and next_offset > state.log_start_offset:  # else there may be none left
        error = _lost_epochs(path, segments)
    # The file begins at the log start. If that is beyond the end, the plan may put it before the batches.
    are_none = log_starts and all(begin >= next_offset for _, begin in epochs)
    if error is not None or are_none:
        epochs = tuple(entry for segment in segments for entry in _epochs_in(segment))
    packed = {}
    if not segments:
        packed = {name: kind_of(f"{path}/{name}") for name in names.others if _may_be_packed(path, name)}
    drafts = []
    if mode != "read" and is_alone:  # otherwise a process may be writing them
        drafts = [name for name in names.others if _is_draft(name) and not os.path.isdir(f"{path}/{name}")]
    return Survey(
        names,
        tuple(segment.base_offset for segment in segments),
        tuple(facts),
        clean,
        next_offset,
        end,
        log_starts,
        continues,
        epochs,
        error,
        packed,
        tuple(drafts),
    )


def _facts_of(at: int, segment: Segment, files: int) -> SegmentFacts:
    is_blank = not files & INDEX and segment.end_offset == MAX64 and is_zeros(segment, 0)
    error = _check_transactions(segment) if files & TRANSACTIONS else None
    return SegmentFacts(
        at, segment.base_offset, segment.end_offset, files, is_blank=is_blank, transactions=error
    )


def _check_transactions(segment: Segment) -> CorruptIndexError | None:
    """The damage of a .txnindex, or None."""
    path, rest = segment.path_of(".txnindex"), 0
    try:
        try:
            rest = os.stat(path).st_size % TRANSACTION
        except FileNotFoundError:  # another process has removed it
            if os.path.islink(path):
                what, found = "transaction index", "a symbolic link to nowhere"
                return CorruptIndexError(what, file=path, position=0, expected="a file", found=found)
        if rest:
            what, expected = "size of a transaction index", f"a multiple of {TRANSACTION}"
            found = f"{rest} bytes more"
            return CorruptIndexError(what, file=path, position=0, expected=expected, found=found)
        segment.transaction_index.sanity_check(segment.end_offset)
    except CorruptIndexError as e:
        return e.with_traceback(None)
    return None


def _walked(segment: Segment, later: Sequence[Segment], log_start_offset: int) -> tuple[Part, ...]:
    """Walk a segment up to the first damage. Returns the parts that recovery makes of it."""
    parts: list[Part] = []
    pending = [segment]
    is_cut = False
    while pending:
        part = pending.pop(0)
        walk = None
        if not is_cut:
            walk = part.recovery_walk()
            if walk.overflow and _rises(part):
                pending[:0] = _split(part)
                continue
            if walk.disordered:
                walk = _without_batches(part, walk)
        valid = walk.valid_bytes if walk is not None else 0
        rest = None
        if walk is None or valid < part.size:
            rest = _rest_of(part, valid, [*pending, *later], log_start_offset)
            is_cut = True
        parts.append(Part(part.base_offset, part.origin, part.size, walk, rest))
    return tuple(parts)


def _without_batches(segment: Segment, walk: RecoveryWalk) -> RecoveryWalk:
    """An empty walk, with the error of another one."""
    size = segment.size
    segment.limit_to(0)
    empty = segment.recovery_walk()
    segment.limit_to(size)
    return empty._replace(error=walk.error, disordered=True)


def _rest_of(segment: Segment, position: int, later: Iterable[Segment], log_start_offset: int) -> Rest:
    sound = sound_batches(segment, position)
    if sound is not None:
        return Rest(sound)
    # Sound batches in later segments show that this is not an incomplete end. Deleted segments do not count.
    is_followed = segment.end_offset > log_start_offset and any(map(_has_sound_batch, later))
    return Rest(None, is_zeros(segment, position), is_followed)


def _rises(segment: Segment) -> bool:
    """Whether offsets rise from batch to batch. If they do not, a large distance between offsets is
    damage."""
    headers = segment.read_headers()
    return bool((headers["base_offset"][1:] > headers["last_offset"][:-1]).all())


def _split(segment: Segment) -> list[Segment]:
    """The parts of a segment whose offsets span more than 2^31 - 1 (spec 8.7)."""
    headers = segment.read_headers()
    starts: list[tuple[int, int]] = []  # (base offset, position)
    for last, position in zip(headers["last_offset"].tolist(), headers["position"].tolist(), strict=True):
        if not starts or last - starts[-1][0] > 2**31 - 1:
            starts.append((segment.batch_at(position).first_offset(), position))
    ends = [*starts[1:], (segment.end_offset, segment.size)]
    return [part_of(segment, *start, *end) for start, end in zip(starts, ends, strict=True)]


def part_of(segment: Segment, base_offset: int, origin: int, end_offset: int, end: int) -> Segment:
    """A segment of a part of another one's file, from byte `origin` on."""
    make = SegmentFactory(segment.directory, segment.index_interval_bytes, segment.max_decompressed_bytes)
    part = make(segment.stem, base_offset, segment.suffixes, end_offset, origin)
    part.limit_to(end - origin)
    return part


def trusted_until(path: StrPath, recovery_point: int) -> int:
    """The offset below which batches need no check after an unclean stop, because a live process has loaded
    or written them. 0 if there is no such process.

    A process of kstore has a lock on the directory of each log that it has loaded. A broker has loaded all
    logs of the log directory that it has locked. If a process of kstore has locked the log directory and not
    this log, records below the recovery point are still as they were flushed.
    """
    if is_loaded(path):
        return MAX64
    holder = holder_in(directory_of(path))
    if holder == "broker":
        return MAX64
    return recovery_point if holder == "kstore" else 0


def _trusted(
    path: StrPath, segment: Segment, last: Segment, known: SegmentFacts, state: State, until: int
) -> SegmentFacts:
    """The facts about a segment that needs no check below the offset `until`; the rest is checked."""
    if segment is not last and segment.end_offset <= until:
        return known.walked(is_trusted=True)
    walk = walk_on(segment, until)
    if walk is None or (walk.valid_bytes < segment.size and segment is not last):
        return known
    if trusted_until(path, state.recovery_point) < until:  # the process has ended
        return known
    rest = None
    if walk.valid_bytes < segment.size:
        rest = _rest_of(segment, walk.valid_bytes, (), state.log_start_offset)
    part = Part(segment.base_offset, segment.origin, segment.size, walk, rest)
    return known.walked(part, is_trusted=True)


# ---- the end ---------------------------------------------------------------------------------------------


def _next_offset(segment: Segment) -> int:
    """The offset after the last batch of a segment; -1 if it cannot be read."""
    try:
        return segment.read_next_offset()
    except CorruptFileError:
        return -1


def _has_tail(last: Segment) -> bool:
    """Whether bytes follow the last whole batch, or may follow, or an appended batch would not continue the
    offsets."""
    try:
        tail = last.read_end().tail_bytes
        _ = last.max_timestamp_so_far
    except CorruptFileError:
        return True
    first = last.file().read(last.origin, 8)
    begins_below = last.size > 0 and int.from_bytes(first, "big", signed=True) < last.base_offset
    return tail > 0 or begins_below


def _end_of(last: Segment, known: SegmentFacts) -> End:
    found = last.read_end()
    tail, next_offset = found.tail_bytes, found.next_offset
    header = last.file().read(last.origin + found.position, _HEADER_SIZE) if tail else b""
    entries = kept = 0
    if known.files & TRANSACTIONS and known.transactions is None:
        entries = len(last.transaction_index)
        kept = len(transactions_until(last, next_offset))
    return End(
        last.size,
        next_offset,
        tail,
        # from the last batch on: if its length is wrong, sound batches lie in it
        sound_batches(last, max(found.last_position, 0), found.last_position) if tail else None,
        len(header) == _HEADER_SIZE and any(header),
        (entries, kept),
    )


def transactions_until(segment: Segment, offset: int) -> TransactionIndex:
    """The aborted transactions of a segment that end before an offset."""
    entries = segment.transaction_index.to_bytes()
    index = TransactionIndex(segment.base_offset, entries, path=segment.path_of(".txnindex"))
    index.truncate_to(offset)
    return index


# ---- leader epochs, other files --------------------------------------------------------------------------


def _read_epochs(path: StrPath) -> tuple[tuple[tuple[int, int], ...], Exception | None]:
    try:
        entries = checkpoints.read_epochs(f"{path}/{layout.LEADER_EPOCHS}")
        return tuple((epoch, start) for epoch, start in entries if epoch >= 0 and start >= 0), None
    except FileNotFoundError:
        return (), None
    except (OSError, CorruptFileError) as e:
        return (), e.with_traceback(None)


def _lost_epochs(path: StrPath, segments: Sequence[Segment]) -> CorruptCheckpointError | None:
    """The damage of a leader-epoch-checkpoint that is missing or has no entries, if batches have epochs: a
    writer notes an epoch before it writes a batch of it. Kafka goes on without epochs."""
    epoch = last_epoch(segments)
    if epoch < 0:
        return None
    what, expected = "leader epochs", f"{epoch}, that of the last batch"
    file = f"{path}/{layout.LEADER_EPOCHS}"
    return CorruptCheckpointError(what, file=file, expected=expected, found="none")


def _epochs_in(segment: Segment) -> tuple[tuple[int, int], ...]:
    """The leader epochs of the batches of a segment, each with its first offset; none if the headers cannot
    be read."""
    with contextlib.suppress(CorruptFileError):
        headers = segment.read_headers(fields=("base_offset", "leader_epoch", "magic"))
        headers = headers[(headers["magic"] == 2) & (headers["leader_epoch"] >= 0)]
        epochs = headers["leader_epoch"]
        changes = [0, *((epochs[1:] != epochs[:-1]).nonzero()[0] + 1)] if len(epochs) else []
        return tuple((int(epochs[at]), int(headers["base_offset"][at])) for at in changes)
    return ()


def _is_draft(name: str) -> bool:
    return layout.is_draft(name) or (name.endswith(layout.KEYS_DRAFT) and layout.is_key_file(name))


def _may_be_packed(directory: StrPath, name: str) -> bool:
    """Whether a file may be a segment that was compressed or renamed."""
    file = layout.parse_file(name)
    may_be = file is not None and file.kind == ".log" and not name.endswith(_OWN_ENDINGS)
    return may_be and os.path.isfile(f"{directory}/{name}")


# ---- batches behind damage -------------------------------------------------------------------------------


def sound_batches(segment: Segment, position: int, known: int = -1) -> SoundBatches | None:
    """The sound batches in a segment's file from a byte on, with any bytes between them and any offsets,
    because the file may be misnamed. None if there are none. known: where a batch begins that does not count.
    OSError."""
    count, first, last, end = 0, -1, -1, 0
    for batch in _batches(segment, position):
        if batch.position == known:
            continue
        first = _first_offset(batch) if count == 0 else first
        last, end = batch.last_offset, batch.position + batch.size
        count += 1
    return SoundBatches(count, first, last, end) if count else None


def _first_offset(batch: RecordBatch) -> int:
    """The base offset of a batch; the last offset of an old message that cannot be decompressed."""
    try:
        return batch.base_offset
    except (CorruptRecordError, RecordTooLargeError):
        return batch.last_offset


def _has_sound_batch(segment: Segment) -> bool:
    return next(_batches(segment, 0), None) is not None


def _batches(segment: Segment, position: int) -> BatchReader:
    limits = segment.index_interval_bytes, segment.max_decompressed_bytes
    whole = Segment(segment.directory, segment.stem, 0, MAX64, segment.suffixes, segment.origin, *limits)
    whole.limit_to(segment.size)
    return BatchReader((whole,), 0, MAX64, first_position=position, on_error="skip")


def is_zeros(segment: Segment, position: int) -> bool:
    """Whether a segment's file has only zeros from a byte on. Holes of a sparse file are skipped, because
    they may be larger than the disk. OSError."""
    if segment.size <= position:  # reading the segment raises the error of a broken link
        return True
    file, size = File(segment.path), _FIRST_PIECE
    try:
        while True:
            position = os.lseek(file.fd, position, os.SEEK_DATA)
            piece = file.read(position, size)
            if piece.count(0) < len(piece):
                return False
            position += len(piece)
            size = min(2 * size, _PIECE)
    except OSError as e:
        if e.errno == errno.ENXIO:  # only a hole remains
            return True
        raise
