"""What a partition directory holds: all facts that the plan of an opening is made from are read here.

Nothing is written. What is read depends on how the log was closed: the batches from the recovery point on
after an unclean stop, nearly nothing after a clean one.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from kstore.arguments import MAX64
from kstore.engine.io.file import File
from kstore.engine.record.batch import RecordBatch
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.index import TransactionIndex
from kstore.engine.segment.recovery_walk import RecoveryWalk
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, CorruptIndexError, CorruptRecordError, RecordTooLargeError
from kstore.log.files import checkpoints, layout
from kstore.log.files.listing import digest, read_directory
from kstore.log.files.lock import Holder, holder_in, is_loaded
from kstore.log.files.log_dir_state import State, directory_of
from kstore.log.files.truncations import read_truncations
from kstore.log.later import later
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.recovery.steps import SoundBatches

if TYPE_CHECKING:
    from kstore.log.recovery.file_kind import kind_of
else:
    later(globals(), {"kstore.log.recovery.file_kind": "kind_of"})

KINDS = (*layout.SEGMENT_KINDS, layout.KEYS, ".snapshot")
BITS = {kind: 1 << i for i, kind in enumerate(KINDS)}
LOG, INDEX, TIME_INDEX, TRANSACTIONS, KEYS, _ = (BITS[kind] for kind in KINDS)
_FILES = INDEX | TIME_INDEX | TRANSACTIONS
TRANSACTION = 34  # bytes of an entry of a .txnindex
Mode = Literal["read", "dry", "write"]  # dry: the steps of an opening for writing are only shown

_OWN_ENDINGS = (".log", ".deleted", ".cleaned", ".swap", ".cut", ".moved", ".tmp")  # behind .log
_HEADER_SIZE = 61  # bytes of a batch before its records
_FIRST_PIECE, _PIECE = 4 << 10, 1 << 20  # bytes that are read at a time to find out whether all are zero


class Names(NamedTuple):
    """The names in a directory, when it was listed, or what they are once interrupted work is finished.

    Most are a base offset in 20 digits and one of KINDS: `files` has, for each such offset in order, the BITS
    of the kinds that are there. `others` are all other names. `inodes` are those of .log files, by offset,
    and `device` is theirs. `digest` distinguishes the listing from most others. `renamed` are names that are
    still called NAME.swap. `removed` are the offsets of segments whose removal was under way: a .log is the
    first file that is called .deleted.
    """

    directory: str
    files: Mapping[int, int]
    others: tuple[str, ...]
    inodes: Mapping[int, int]
    device: int
    digest: int
    renamed: frozenset[str] = frozenset()
    removed: frozenset[int] = frozenset()

    def suffixes(self, stem: str) -> dict[str, str]:
        """How the files of a segment are named on disk, where that is not their final name."""
        return {kind: ".swap" for kind in layout.SEGMENT_KINDS if stem + kind in self.renamed}


class Swapped(NamedTuple):
    """A .log.swap file: the offset after its last batch, and whether all of it is sound."""

    end: int
    is_sound: bool


class Rest(NamedTuple):
    """Bytes of a segment behind its last batch that counts: the sound batches in them, whether all are zero,
    and whether sound batches lie in later segments."""

    sound: SoundBatches | None
    is_zeros: bool = False
    is_followed: bool = False


class Part(NamedTuple):
    """What recovery makes a segment of: all of its file, or a part from byte `origin` on, if its offsets are
    too far apart for one segment. Without a walk it lies behind damage, and `rest` is all of it."""

    base_offset: int
    origin: int
    size: int
    walk: RecoveryWalk | None
    rest: Rest | None = None


class SegmentFacts(NamedTuple):
    """What is known of a segment: number `at`, of those in the directory, with files of these BITS. `parts`
    is empty if it was not walked.

    `is_trusted`: a process that has the log open for writing has checked it, and a walk found only its end.
    `is_blank`: it is the last, without an offset index, and has no bytes but zeros.
    """

    at: int
    base_offset: int
    end_offset: int
    files: int
    parts: tuple[Part, ...] = ()
    is_trusted: bool = False
    is_blank: bool = False
    transactions: CorruptIndexError | None = None  # what is wrong with its .txnindex

    @property
    def is_behind_damage(self) -> bool:
        """Whether the log ends in a segment before it."""
        return bool(self.parts) and self.parts[0].walk is None


class End(NamedTuple):
    """How the last segment ends, if it was not walked: its size, the offset after its last batch, and how
    many bytes follow.

    `was_batch`: they have room for a batch, and are not zeros. `transactions`: how many entries its .txnindex
    has, and how many of them name transactions that end before `next_offset`.
    """

    size: int
    next_offset: int
    tail: int
    sound: SoundBatches | None
    was_batch: bool
    transactions: tuple[int, int]


class Survey(NamedTuple):
    """All facts about a log. `bases` are the base offsets of its segments, and `segments` those of which
    there is more to say: the last, those that were walked, and those that lack a file.

    `next_offset` follows the last batch that counts; -1 if there are no segments. `end` is None if the last
    segment was walked. If the log ends before its log start offset, `log_starts` is the file with that, and
    `truncation_continues` says whether a truncation was to go on there. `epochs` are those of the
    leader-epoch-checkpoint; if that is damaged, as `epochs_error` says, those of the batches. `packed` says
    what files are whose names are nearly those of segments. `drafts` are files that no process is writing any
    more.
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
    """The names of the files of these kinds."""
    return [layout.segment_stem(offset) + kind for kind, bit in BITS.items() if bits & bit]


def changed_from(names: Names) -> int | None:
    """The first offset of a segment that came or went since a directory was listed; None if none did."""
    before, now = ({offset for offset, _ in _logs(each)} for each in (names, read_names(names.directory)))
    return min(before ^ now, default=None)


def is_as_listed(names: Names) -> bool:
    """Whether a directory has the logs that it had when it was listed, under the names that they had, up to
    the last."""
    if digest(names.directory) == names.digest:  # nearly always
        return True
    before = _logs(names)
    last, _ = max(before, default=(-1, 0))
    return before == {log for log in _logs(read_names(names.directory)) if log[0] <= last}


def _logs(names: Names) -> set[tuple[int, int]]:
    """The offsets of segments that have their .log, with its inode, or 0 if that is not known; -1 if it is a
    .swap file."""
    logs = {(offset, names.inodes.get(offset, 0)) for offset, bits in names.files.items() if bits & LOG}
    return logs | {(offset, -1) for offset in map(swap_offset, names.others) if offset is not None}


def swap_offset(name: str) -> int | None:
    """The base offset of the segment that a .log.swap file becomes; None for any other name."""
    return layout.segment_offset(name.removesuffix(".swap")) if name.endswith(".swap") else None


def read_swaps(swaps: Iterable[str], make: SegmentFactory) -> dict[str, Swapped]:
    """What is in these .swap files of segments. CorruptFileError, OSError."""
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
    """The segments, in order; nothing of them is read yet."""
    offsets = sorted(offset for offset, bits in names.files.items() if bits & LOG)
    made = []
    for offset, end_offset in zip(offsets, [*offsets[1:], MAX64], strict=False):
        stem = layout.segment_stem(offset)
        made.append(make(stem, offset, names.suffixes(stem) if names.renamed else None, end_offset))
    return made


def survey(
    path: Path,
    names: Names,
    segments: Sequence[Segment],
    state: State,
    *,
    recover: bool,
    mode: Mode,
    trusts_writer: bool,
) -> Survey:
    """Reads what the plan needs. trusts_writer: batches are not checked that a process has checked which has
    the log open for writing. CorruptFileError, OSError."""
    clean = state.clean
    if state.by_itself and clean and segments:
        clean = _next_offset(segments[-1]) == state.recovery_point
    first = len(segments)  # the first that is walked since the log was not closed cleanly
    if recover and not clean:
        first = max(sum(segment.base_offset <= state.recovery_point for segment in segments) - 1, 0)
    until = 0
    if trusts_writer and not clean and segments:
        until = trusted_until(path, state.recovery_point)
    facts: list[SegmentFacts] = []
    is_cut = False  # the log ends in a segment before
    for at, segment in enumerate(segments):
        files_of_it, is_last = names.files[segment.base_offset], at == len(segments) - 1
        if at < first and not is_last and files_of_it & _FILES == INDEX | TIME_INDEX:  # nearly all
            continue
        known, later = _facts_of(at, segment, files_of_it), segments[at + 1 :]
        if is_cut:
            rest = _rest_of(segment, 0, later, state.log_start_offset)
            known = known._replace(parts=(Part(segment.base_offset, 0, segment.size, None, rest),))
        elif recover and (not known.files & INDEX or known.transactions is not None):
            # Kafka recovers such a segment even after a clean shutdown, and keeps those behind it
            known = known._replace(parts=_walked(segment, later, state.log_start_offset))
        elif at >= first:
            if until:
                known = _trusted(path, segment, segments[-1], known, state, until)
            if not known.is_trusted:
                known = known._replace(parts=_walked(segment, later, state.log_start_offset))
                is_cut = any(part.rest is not None for part in known.parts)
        elif recover and clean and mode != "read" and is_last and _has_tail(segment):
            # Kafka trusts the clean shutdown, and appends behind these bytes: then the new batch completes
            # what was damaged, and nothing behind it can be read.
            known = known._replace(parts=_walked(segment, (), state.log_start_offset))
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
            if not recover and end.sound is not None:  # shown as it is, the log goes on behind the damage
                next_offset = max(next_offset, end.sound.last_offset + 1)
        if next_offset < state.log_start_offset:
            continues = bool(read_truncations(path).pending)
            log_starts = f"{directory_of(path)}/{layout.LOG_STARTS}"
    epochs, error = _read_epochs(path)  # after the walks: a writer may have begun one meanwhile
    if error is not None:
        epochs = tuple(entry for segment in segments for entry in _epochs_in(segment))
    packed = {}
    if not segments:
        packed = {name: kind_of(str(path / name)) for name in names.others if _may_be_packed(path / name)}
    drafts = []
    if mode != "read":  # else a process may be writing them
        drafts = [name for name in names.others if _is_draft(name) and not (path / name).is_dir()]
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
    """What is wrong with a .txnindex."""
    path, rest = segment.path_of(".txnindex"), 0
    try:
        try:
            rest = Path(path).stat().st_size % TRANSACTION
        except FileNotFoundError:  # it was removed just now
            if Path(path).is_symlink():
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
    """What recovery makes of a segment, up to the first damage in it."""
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
    """A walk that found nothing, with the error of one that did."""
    size = segment.size
    segment.limit_to(0)
    empty = segment.recovery_walk()
    segment.limit_to(size)
    return empty._replace(error=walk.error, disordered=True)


def _rest_of(segment: Segment, position: int, later: Iterable[Segment], log_start_offset: int) -> Rest:
    sound = sound_batches(segment, position)
    if sound is not None:
        return Rest(sound)
    # damage before sound batches is no torn end; but what lies below the log start was deleted
    is_followed = segment.end_offset > log_start_offset and any(map(_has_sound_batch, later))
    return Rest(None, is_zeros(segment, position), is_followed)


def _rises(segment: Segment) -> bool:
    """Whether offsets rise from batch to batch: where they do not, an offset far off is damage, not old
    age."""
    headers = segment.read_headers()
    return bool((headers["base_offset"][1:] > headers["last_offset"][:-1]).all())


def _split(segment: Segment) -> list[Segment]:
    """The parts of a segment whose offsets span more than 2^31 - 1 (spec 8.7)."""
    headers = segment.read_headers()
    starts: list[tuple[int, int]] = []  # (base offset, position)
    for last, position in zip(headers["last_offset"].tolist(), headers["position"].tolist(), strict=True):
        if not starts or last - starts[-1][0] > 2**31 - 1:
            starts.append((segment.batch_at(position)._first_offset(), position))
    ends = [*starts[1:], (segment.end_offset, segment.size)]
    return [part_of(segment, *start, *end) for start, end in zip(starts, ends, strict=True)]


def part_of(segment: Segment, base_offset: int, origin: int, end_offset: int, end: int) -> Segment:
    """A segment that is a part of another one's file, which begins at byte `origin`."""
    make = SegmentFactory(segment.directory, segment.index_interval_bytes, segment.max_decompressed_bytes)
    part = make(segment.stem, base_offset, segment.suffixes, end_offset, origin)
    part.limit_to(end - origin)
    return part


def trusted_until(path: Path, recovery_point: int) -> int:
    """The offset below which batches need no check, though the log was not closed cleanly: a process lives
    that has loaded or written it, so no power cut came between. 0 if there is no such process.

    A program of kstore's shows it of each log by a lock on its directory. A broker loads all logs of the
    directory that it has locked. If a program of kstore's has the directory locked, and not this log, what
    was flushed is as it was.
    """
    if is_loaded(path):
        return MAX64
    holder = holder_in(directory_of(path))
    if holder is Holder.BROKER:
        return MAX64
    return recovery_point if holder is Holder.KSTORE else 0


def _trusted(
    path: Path, segment: Segment, last: Segment, known: SegmentFacts, state: State, until: int
) -> SegmentFacts:
    """The facts of a segment if all of it below the offset `until` needs no check; the rest was checked."""
    if segment is not last and segment.end_offset <= until:
        return known._replace(is_trusted=True)
    walk = segment.walk_on(until)
    if walk is None or (walk.valid_bytes < segment.size and segment is not last):
        return known
    if trusted_until(path, state.recovery_point) < until:  # the process has ended meanwhile
        return known
    rest = None
    if walk.valid_bytes < segment.size:
        rest = _rest_of(segment, walk.valid_bytes, (), state.log_start_offset)
    part = Part(segment.base_offset, segment.origin, segment.size, walk, rest)
    return known._replace(parts=(part,), is_trusted=True)


# ---- the end ---------------------------------------------------------------------------------------------


def _next_offset(segment: Segment) -> int:
    """The offset after its last batch; -1 if it cannot be read."""
    try:
        return segment.read_next_offset()
    except CorruptFileError:
        return -1


def _has_tail(last: Segment) -> bool:
    """Whether bytes follow the last whole batch, or that cannot be known, or an appended batch would not
    follow on."""
    try:
        last.read_next_offset()
        _ = last.max_timestamp_so_far
    except CorruptFileError:
        return True
    begins_below = last.size > 0 and int.from_bytes(last.peek(0)[:8], "big", signed=True) < last.base_offset
    return last.tail_bytes > 0 or begins_below


def _end_of(last: Segment, known: SegmentFacts) -> End:
    next_offset = last.read_next_offset()
    size, tail = last.size, last.tail_bytes
    header = last.peek(size - tail) if tail else b""
    entries = kept = 0
    if known.files & TRANSACTIONS and known.transactions is None:
        entries = len(last.transaction_index)
        kept = len(transactions_until(last, next_offset))
    return End(
        size,
        next_offset,
        tail,
        sound_batches(last, size - tail) if tail else None,
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


def _read_epochs(path: Path) -> tuple[tuple[tuple[int, int], ...], Exception | None]:
    try:
        entries = checkpoints.read_epochs(path / layout.LEADER_EPOCHS)
        return tuple((epoch, start) for epoch, start in entries if epoch >= 0 and start >= 0), None
    except FileNotFoundError:
        return (), None
    except (OSError, CorruptFileError) as e:
        return (), e.with_traceback(None)


def _epochs_in(segment: Segment) -> tuple[tuple[int, int], ...]:
    """The leader epochs that its batches bear, each with the offset of its first batch; none if they cannot
    be read."""
    with contextlib.suppress(CorruptFileError):
        headers = segment.read_headers(fields=("base_offset", "leader_epoch", "magic"))
        headers = headers[headers["magic"] == 2]
        epochs = headers["leader_epoch"]
        changes = [0, *((epochs[1:] != epochs[:-1]).nonzero()[0] + 1)] if len(epochs) else []
        return tuple((int(epochs[at]), int(headers["base_offset"][at])) for at in changes)
    return ()


def _is_draft(name: str) -> bool:
    return layout.is_draft(name) or (name.endswith(layout.KEYS_DRAFT) and layout.is_key_file(name))


def _may_be_packed(path: Path) -> bool:
    """Whether a file may be a segment that was packed, or named otherwise."""
    file = layout.parse_file(path.name)
    return (
        file is not None and file.kind == ".log" and not path.name.endswith(_OWN_ENDINGS) and path.is_file()
    )


# ---- what lies behind damage -----------------------------------------------------------------------------


def sound_batches(segment: Segment, position: int) -> SoundBatches | None:
    """The sound batches in a segment's file from a byte on, whatever lies between them, and whatever offsets
    they have: the file may be misnamed. None if there are none. OSError."""
    count, first, last, end = 0, -1, -1, 0
    for batch in _batches(segment, position):
        first = _first_offset(batch) if count == 0 else first
        last, end = batch.last_offset, batch.position + batch.size
        count += 1
    return SoundBatches(count, first, last, end) if count else None


def _first_offset(batch: RecordBatch) -> int:
    """Its base offset, or, of a compressed message that cannot be unpacked, what is known: its last one."""
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
    """Whether a segment's file has zeros only from a byte on. Holes are not read: they may be larger than the
    disk. OSError."""
    if segment.size <= position:  # a link that leads nowhere is an error of the segment, which names it
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
        if e.errno == errno.ENXIO:  # only a hole, or the end
            return True
        raise
