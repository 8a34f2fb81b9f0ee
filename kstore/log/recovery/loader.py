"""What a partition directory holds once Kafka has loaded it (spec 8).

Kafka finishes interrupted work when it loads a log: it deletes, renames, cuts torn tails off, rebuilds
indexes. Here the same decisions are made over a listing, and nothing is written. Their outcome is a tuple of
segments that show what would be left (some of them named `.swap` on disk, some with a part that does not
count, some with indexes made in memory), and a plan: the steps in `Loaded.recovery`, which a writer runs
(`carried_out`).

The file is long because all decisions share one listing and one plan.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES
from kstore.config import MAX64
from kstore.engine.segment.index import TimeIndex, TransactionIndex
from kstore.engine.segment.recovery_walk import RecoveryWalk
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, CorruptIndexError, CorruptRecordError, LogChangedError
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import State, directory_of, is_led, is_tiered, read_state
from kstore.log.files.truncations import read_truncations
from kstore.log.recovery.directory_listing import BITS, DirectoryListing, names_of
from kstore.log.recovery.file_kind import kind_of
from kstore.log.recovery.gaps import Gap, Gaps, offset_named
from kstore.log.recovery.presence import not_found
from kstore.log.recovery.remains import Remains, has_sound_batch, is_spare_room, remains_of
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import Recovery
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.recovery.steps import Code, Step
from kstore.log.recovery.voucher import vouched_until

_LOG, _INDEX, _TIME_INDEX, _TRANSACTIONS = (BITS[kind] for kind in layout.SEGMENT_KINDS)
_INDEXES = _INDEX | _TIME_INDEX | _TRANSACTIONS
_KEYS = BITS[layout.KEYS]
_OWN_ENDINGS = (".log", ".deleted", ".cleaned", ".swap", ".cut", ".moved", ".tmp")  # behind .log
_TRANSACTION = 34  # bytes of an entry of a .txnindex
_HEADER_SIZE = 61  # bytes of a batch before its records


@dataclass
class Loaded:
    """A partition as Kafka would have it in memory."""

    segments: tuple[Segment, ...]
    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs
    recovery: Recovery
    lost_time_indexes: frozenset[int]
    lost_transaction_indexes: frozenset[int]  # which nobody has made anew: the batches tell
    recovered_producers: bool  # whether a recovered segment has batches with producer ids
    origin: object = field(
        default_factory=object
    )  # another one if segments were replaced, or all was loaded again


class _Loader:
    def __init__(
        self,
        path: Path,
        state: State,
        make: SegmentFactory,
        recover: bool,
        writing: bool,
        dry: bool,
        told: State,
        asks_voucher: bool,
    ) -> None:
        self.path = path
        self.make = make
        self.recover = recover
        self.writing = writing
        self.dry = dry
        self.by_broker = state.by_broker
        self.by_itself = state.by_itself
        self.told = told  # by the files, whatever who opens it says
        self.asks_voucher = asks_voucher
        self.log_start_offset = state.log_start_offset
        self.recovery = Recovery(state.clean, state.recovery_point)
        for file, text, hides_start in state.complaints:
            code = Code.LOG_START_UNKNOWN if hides_start else Code.CHECKPOINT_DAMAGED
            self.recovery.steps.append(Step(code, file, detail=text))
        self.listing = DirectoryListing(str(path), self.recovery)
        if not (writing or self.listing.files or self.listing.others):
            self.recovery.steps.append(Step(Code.DIRECTORY_EMPTY, str(path)))
        self.epochs_damaged = False
        self.epochs = LeaderEpochs(self._read_epochs())
        self.first_epoch = min((start for _, start in self.epochs.entries), default=MAX64)  # where it begins
        self.lost_time_indexes: set[int] = set()
        self.lost_transaction_indexes: set[int] = set()
        self.has_producers = False
        self.recovered: set[Segment] = set()
        self.orphans: list[int] = []  # offsets of indexes without a log, which nobody was removing

    def _read_epochs(self) -> list[tuple[int, int]]:
        file = self.path / layout.LEADER_EPOCHS
        try:
            return [(e, o) for e, o in checkpoints.read_epochs(file) if e >= 0 and o >= 0]
        except FileNotFoundError:
            return []
        except (OSError, CorruptFileError) as e:
            self.recovery.steps.append(Step(Code.EPOCHS_DAMAGED, str(file), detail=e))
            self.epochs_damaged = True
            return []

    def note(
        self,
        code: Code,
        segment: Segment,
        position: int = -1,
        size: int = -1,
        *,
        detail: object = "",
        remains: Remains | None = None,
        offsets: tuple[int, int] = (-1, -1),
        deed: Callable[[Repairs], object] | None = None,
    ) -> None:
        """Adds a step that concerns a segment."""
        step = Step(code, segment.path, position, size, detail, remains, offsets, deed)
        self.recovery.steps.append(step)

    def drop(self, code: Code, segment: Segment) -> None:
        """A whole segment that does not count."""
        remains = remains_of(segment, 0)
        promised = self._was_promised(segment.base_offset)
        followed = remains is None and not promised and self._is_followed(segment)
        self._lose(segment.path, segment.size, remains, promised, followed)
        stem, keep = layout.segment_stem(segment.base_offset), promised or followed or remains is not None
        self.note(
            code,
            segment,
            0,
            segment.size,
            remains=remains,
            deed=lambda repairs: repairs.delete_segment(stem, keep=keep),
        )

    def _was_promised(self, offset: int) -> bool:
        """Whether what lies at an offset should be on the disk: it was flushed, or the log was closed."""
        return self.recovery.clean or offset < max(self.recovery.recovery_point, self.told.recovery_point)

    def _is_followed(self, segment: Segment, parts: Sequence[Segment] = ()) -> bool:
        """Whether sound batches lie in later segments, or in these: then it was no torn end that was damaged
        in a segment, and somebody may miss it."""
        if segment.end_offset <= self.log_start_offset:
            return False  # it was deleted
        if any(has_sound_batch(part) for part in parts):
            return True
        later = sorted(
            offset
            for offset, bits in self.listing.files.items()
            if offset > segment.base_offset and bits & _LOG
        )
        stems = map(layout.segment_stem, later)
        return any(
            has_sound_batch(self.make(stem, offset, self.listing.suffixes(stem), MAX64))
            for stem, offset in zip(stems, later, strict=True)
        )

    def _lose(
        self, path: str, size: int, remains: Remains | None, promised: bool, followed: bool = False
    ) -> None:
        """Notes what recovery takes away that somebody may miss."""
        if remains is not None and remains.last_offset < self.log_start_offset:
            return  # it was deleted
        if remains is not None:
            gone = "would be cut off" if self.dry else "were cut off" if self.writing else "are left out"
            self.recovery.losses.append(f"{size} bytes of {path} {gone}, with {remains}")
        elif promised and size:
            self.recovery.losses.append(f"{size} bytes of {path}, which had been flushed, were damaged")
        elif followed and size:
            self.recovery.losses.append(f"{size} bytes of {path}, before sound batches, were damaged")

    def load(self) -> Loaded:
        if self.recover:
            self.listing.finish_interrupted_work(self.make)
        segments = self._open_segments()
        if self.by_itself and self.recovery.clean and not self._ends_as_closed(segments):
            self.recovery.clean = False
        if self.recover and not self.recovery.clean:
            segments = self._recover(segments)
        elif self.recover and self.writing and segments and self._has_tail(segments[-1]):
            # Kafka trusts the clean shutdown, and appends behind these bytes: then what was damaged is
            # completed by the new batch, and nothing behind it can be read. A reader sees them as Kafka's
            # does.
            segments[-1:] = self._recovered(segments[-1])[0]
        if self.epochs_damaged:
            self._gather_epochs(segments)
        log_end_offset = self._end_of(segments)
        point = max(self.recovery.recovery_point, self.told.recovery_point)
        told = bool(self.recovery.clean and self.recovery.losses)
        if self.recovery.clean and segments and log_end_offset < point:
            # Kafka and kstore store the end when they close a log. Kafka's end lies behind the last batch if
            # it has truncated the log inside a batch; then no index names anything there.
            self.note(Code.ENDS_EARLY, segments[-1], offsets=(log_end_offset, point))
            told = told or (self.by_broker and not self._names_beyond(segments[-1], log_end_offset))
        elif self.recovery.clean and segments and 0 < point < log_end_offset:
            self.note(Code.ENDS_LATE, segments[-1], offsets=(log_end_offset, point))
        if segments and log_end_offset < self.log_start_offset and not self._is_start_sound(log_end_offset):
            file = f"{directory_of(self.path)}/{layout.LOG_STARTS}"
            offsets = self.log_start_offset, log_end_offset
            self.recovery.steps.append(Step(Code.LOG_START_BEYOND_END, file, offsets=offsets))
            self.log_start_offset = 0
        if segments and log_end_offset < self.log_start_offset:
            for segment in segments:
                self.drop(Code.BELOW_LOG_START, segment)
            segments = []
            self.epochs = LeaderEpochs()
        elif segments:
            self.recovery.look_for_missing = lambda: self._gaps(segments)
            if self.writing:
                _ = self.recovery.missing  # now: appends and retention change the files
                self._refuse_overlap()
            self._shorten_transactions(segments[-1], log_end_offset)
        first = segments[0].base_offset if segments else self.log_start_offset
        log_end_offset = log_end_offset if segments else first
        if log_end_offset < point and not told:
            lost = Step(Code.FLUSHED_IS_LOST, str(self.path), offsets=(log_end_offset, point))
            self.recovery.losses.append(lost.text(done=True))
            if not self.recovery.clean:
                self.recovery.steps.append(lost)
        # an epoch in which nothing is appended yet: a writer that lives is in it, while Kafka's loading drops
        # it
        is_begun = self.epochs.latest is not None and self.epochs.entries[-1][1] == log_end_offset
        is_live = is_begun and not (self.writing or self.dry) and is_locked(directory_of(self.path))
        self.epochs.truncate_from_end(log_end_offset + is_live)
        self.epochs.truncate_from_start(self.log_start_offset)
        return Loaded(
            tuple(segments),
            max(self.log_start_offset, first),
            log_end_offset,
            self.epochs,
            self.recovery,
            frozenset(self.lost_time_indexes),
            frozenset(self.lost_transaction_indexes),
            self.has_producers,
        )

    def _is_start_sound(self, log_end_offset: int) -> bool:
        """Whether the log start can be beyond the end: the program that opens the log says so, or a
        truncation was to go on there and a crash left older segments. delete_records() flushes what it
        deletes before it writes the start."""
        if self.log_start_offset != self.told.log_start_offset:
            return True
        known = read_truncations(self.path)
        return known.is_pending or log_end_offset < self.log_start_offset <= known.end

    def _ends_as_closed(self, segments: list[Segment]) -> bool:
        """Whether a log ends where its closing said. A log that was written by itself, and then put into a
        log directory, keeps its clean marker when a broker appends to it there."""
        if not segments:
            return True
        try:
            return segments[-1].read_next_offset() == self.recovery.recovery_point
        except CorruptFileError:
            return False

    def _has_tail(self, last: Segment) -> bool:
        """Whether bytes follow the last whole batch, or that cannot be told, or an appended batch would not
        follow on."""
        try:
            last.read_next_offset()
            _ = last.max_timestamp_so_far
        except CorruptFileError:
            return True
        begins_below = (
            last.size > 0 and int.from_bytes(last.peek(0)[:8], "big", signed=True) < last.base_offset
        )
        return last.tail_bytes > 0 or begins_below

    def _refuse_overlap(self) -> None:
        """CorruptRecordError if offsets are in two segments: of what is appended then, readers would not know
        what counts."""
        for step in self.recovery.steps:
            if step.code is Code.SEGMENTS_OVERLAP:
                error = CorruptRecordError(
                    "last offset of a segment",
                    file=step.file,
                    position=0,
                    expected=f"below {step.offsets[0]}, where the next one begins",
                    found=step.offsets[1] - 1,
                )
                error.add_note(
                    f"kstore recover {self.path} --all ends the log there, and keeps the rest in .cut files"
                )
                raise error

    def _names_beyond(self, last: Segment, log_end_offset: int) -> bool:
        """Whether an index tells of batches behind the end."""
        if offset_named(last) >= log_end_offset:
            return True
        return any(offset > last.base_offset for offset in self.orphans)

    def _gaps(self, segments: list[Segment]) -> list[Step]:
        """Offsets that were between two segments once, and bytes there that are no batch."""
        steps = []
        gaps: list[tuple[Segment, Gap]] = [(segments[0], gap) for gap in self._gap_before(segments[0])]
        gaps += Gaps(self.path, segments, self.recovered, self.log_start_offset, self.orphans, self.make)
        changed = self.listing.changed_from() if gaps else None
        for segment, gap in gaps:
            if changed is not None and changed <= gap.offsets[1]:
                continue  # others are compacting or truncating: between two steps of theirs a file is missing
            if gap.tail:
                at = segment.size - gap.tail
                steps.append(Step(gap.code, segment.path, at, gap.tail))
                continue
            steps.append(Step(gap.code, segment.path, offsets=gap.offsets, is_loss=gap.is_sure))
        return steps

    def _gap_before(self, first: Segment) -> Iterator[Gap]:
        """What is missing before the first segment, as far as that can be known.

        An index without its log tells, and so does a checkpoint with an earlier log start. Only a clean stop
        leaves both as they should be: before, retention may have been under way. The checkpoint of a broker
        also counts what the topic has in remote storage.
        """
        told_start = self.told.log_start_offset
        # of a topic that is not tiered, the leader epochs begin with the first segment
        remote = max(self.first_epoch, told_start)
        if remote < first.base_offset and is_tiered(self.path):
            yield Gap((remote, first.base_offset), Code.OFFSETS_REMOTE, is_sure=False, tail=0)
            return
        if not self.recovery.clean:
            return
        begun = [offset for offset in self.orphans if self.log_start_offset <= offset < first.base_offset]
        if 0 < told_start < first.base_offset:
            begun.append(told_start)
        if begun:
            is_sure = not (self.by_broker or is_led(self.path)) or begun != [told_start]
            yield Gap((min(begun), first.base_offset), Code.OFFSETS_MISSING, is_sure, 0)

    def _shorten_transactions(self, last: Segment, log_end_offset: int) -> None:
        """An entry behind the end is of a marker that is gone: the next one there must not find it."""
        name = last.stem + ".txnindex"
        if not self.recover or last in self.recovered or not self.listing.has(last.base_offset, ".txnindex"):
            return  # or it is made anew
        index = TransactionIndex(
            last.base_offset, last.transaction_index.to_bytes(), path=last.path_of(".txnindex")
        )
        before = len(index)
        index.truncate_to(log_end_offset)
        if len(index) == before:
            return
        last.use_indexes(None, None, index)
        if self._vouched_until([last]):
            return  # somebody writes that marker now
        size = _TRANSACTION * len(index)
        self.recovery.steps.append(
            Step(
                Code.TRANSACTIONS_BEHIND_END,
                last.path_of(".txnindex"),
                size,
                _TRANSACTION * before - size,
                offsets=(log_end_offset, -1),
                deed=lambda repairs: repairs.cut(name, size),
            )
        )

    def _gather_epochs(self, segments: list[Segment]) -> None:
        """The leader epochs that the batches bear, as far as they can be read."""
        for segment in segments:
            with contextlib.suppress(CorruptFileError):
                headers = segment.read_headers()
                epochs = headers["leader_epoch"]
                for at in [0, *(epochs[1:] != epochs[:-1]).nonzero()[0] + 1] if len(epochs) else []:
                    epoch, base_offset = int(epochs[at]), int(headers["base_offset"][at])
                    if headers["magic"][at] == 2 and epoch > (
                        -1 if self.epochs.latest is None else self.epochs.latest
                    ):
                        self.epochs.assign(epoch, base_offset)

    def _open_segments(self) -> list[Segment]:
        """Pass 4: the segments there are, in order; indexes without a log are left aside."""
        files = self.listing.files
        offsets = [offset for offset, bits in files.items() if bits & _LOG]
        if len(offsets) < len(files):
            for offset, bits in files.items():
                if bits and not bits & _LOG:
                    self._leave_aside(offset, bits)
        for name in self.listing.others:
            self._note_other(name)
        offsets.sort()  # those whose files were called .swap came last
        suffixes = self.listing.suffixes if self.listing.renamed else None
        segments: list[Segment] = []
        for offset, end_offset in zip(offsets, [*offsets[1:], MAX64], strict=False):
            stem, bits = layout.segment_stem(offset), files[offset]
            segment = self.make(stem, offset, suffixes(stem) if suffixes else None, end_offset)
            segments.append(segment)
            if bits & _INDEXES == _INDEX | _TIME_INDEX:  # nearly all
                continue
            if not bits & _INDEX:
                # Kafka recovers such a segment even after a clean shutdown
                # A writer gives an empty segment its indexes at the first append.
                if end_offset != MAX64 or not is_spare_room(segment, 0):
                    self.note(Code.NO_OFFSET_INDEX, segment)
                if self.recover:
                    segments[-1:] = self._recovered(segment)[0]
            elif not bits & _TIME_INDEX:
                name = stem + ".timeindex"
                self.note(
                    Code.NO_TIME_INDEX,
                    segment,
                    deed=lambda repairs, name=name: repairs.write_index(name, b""),  # type: ignore[misc]
                )
                if self.recover:
                    segment.use_indexes(None, TimeIndex(offset))
                    self.lost_time_indexes.add(offset)
            if bits & _TRANSACTIONS and not self._check_transactions(segment):
                if self.recover:
                    segments[-1:] = self._recovered(segment)[0]
                else:
                    self.lost_transaction_indexes.add(offset)
                    self.has_producers = True
        return segments

    def _leave_aside(self, offset: int, bits: int) -> None:
        """Files of a segment without its .log."""
        for name in names_of(offset, bits & _INDEXES):
            self.listing.delete(Code.INDEX_WITHOUT_LOG, name)
            if offset not in self.listing.removed:
                self.orphans.append(offset)
        for name in names_of(offset, bits & _KEYS):
            if not (self.path / name).is_dir():  # nobody believes that
                self.listing.delete(Code.KEYS_WITHOUT_LOG, name)

    def _note_other(self, name: str) -> None:
        """A name that is not a base offset in 20 digits and a known kind."""
        if name.endswith(".log"):
            self._note_misnamed(name)
        elif name.endswith(layout.INDEX_KINDS):
            offset = layout.parse_offset(name)
            if offset is None:
                self.listing.note(Code.NO_NAME_OF_AN_INDEX, name)
            elif not self.listing.has(offset, ".log"):
                self.listing.delete(Code.INDEX_WITHOUT_LOG, name)
                if offset not in self.listing.removed:
                    self.orphans.append(offset)
        elif self._is_packed(name):
            kind = kind_of(str(self.path / name))
            self.listing.note(
                Code.NOT_READ, name, detail=f"the file is {kind}" if kind else "no name of a segment"
            )
        elif self.writing and self._is_draft_of_keys(name):
            self.listing.delete(Code.KEYS_UNFINISHED, name)  # a reader thinks that somebody is at work on it
        elif self.writing and layout.is_draft(name) and not (self.path / name).is_dir():
            self.listing.delete(Code.FILE_UNFINISHED, name)

    def _is_packed(self, name: str) -> bool:
        """Whether it may be a segment that somebody has packed, or named otherwise, in a directory that has
        no segment."""
        file = layout.parse_file(name)
        return (
            file is not None
            and file.kind == ".log"
            and not name.endswith(_OWN_ENDINGS)
            and not any(bits & _LOG for bits in self.listing.files.values())
            and (self.path / name).is_file()
        )

    def _is_draft_of_keys(self, name: str) -> bool:
        return (
            name.endswith(layout.KEYS_DRAFT) and layout.is_key_file(name) and not (self.path / name).is_dir()
        )

    def _note_misnamed(self, name: str) -> None:
        offset = layout.parse_offset(name)
        if offset is None or offset < 0:
            self.listing.note(Code.NO_NAME_OF_A_SEGMENT, name)
        else:
            right = f"{layout.segment_stem(offset)}.log"
            self.listing.note(Code.OTHER_NAME_OF_A_SEGMENT, name, detail=right, offset=offset)

    def _check_transactions(self, segment: Segment) -> bool:
        try:
            path, rest = segment.path_of(".txnindex"), 0
            try:
                rest = Path(path).stat().st_size % _TRANSACTION
            except FileNotFoundError:  # it was removed just now
                if Path(path).is_symlink():
                    what, found = "transaction index", "a symbolic link to nowhere"
                    raise CorruptIndexError(
                        what, file=path, position=0, expected="a file", found=found
                    ) from None
            if rest:
                raise CorruptIndexError(
                    "size of a transaction index",
                    file=path,
                    position=0,
                    expected=f"a multiple of {_TRANSACTION}",
                    found=f"{rest} bytes more",
                )
            segment.transaction_index.sanity_check(segment.end_offset)
        except CorruptIndexError as e:
            self.note(Code.BROKEN_TRANSACTION_INDEX, segment, e.position, detail=e)
            return False
        return True

    def _cut(self, segment: Segment, found: RecoveryWalk, parts: Sequence[Segment] = ()) -> None:
        """Lets a segment end at the last good batch."""
        size, beyond = found.valid_bytes, segment.size - found.valid_bytes
        if not beyond:
            return
        stem = layout.segment_stem(segment.base_offset)
        code = Code.OFFSETS_FALL if found.disordered else Code.TORN_TAIL if found.torn else Code.CORRUPT_BATCH
        remains = remains_of(segment, size)
        promised = self._was_promised(found.next_offset)
        followed = remains is None and not promised and self._is_followed(segment, parts)
        self._lose(segment.path, beyond, remains, promised, followed)
        self.recovery.truncated_bytes += beyond
        keep = promised or followed or remains is not None
        if code is Code.CORRUPT_BATCH and not keep and is_spare_room(segment, size):
            code = Code.SPARE_ROOM
        self.note(
            code,
            segment,
            size,
            beyond,
            detail=found.error,
            remains=remains,
            deed=lambda repairs: repairs.cut(f"{stem}.log", size, keep=keep),
        )
        segment.limit_to(size)

    def _adopt(self, segment: Segment, found: RecoveryWalk, parts: Sequence[Segment]) -> None:
        """Makes a segment what its recovery leaves: cut at the last good batch, with the indexes of the
        scan."""
        stem = layout.segment_stem(segment.base_offset)
        self._cut(segment, found, parts)
        offset_index, time_index = found.offset_index, found.time_index
        segment.use_indexes(offset_index, time_index)
        self.note(
            Code.INDEXES_REBUILT,
            segment,
            deed=lambda repairs: repairs.write_indexes(stem, offset_index, time_index),
        )
        self.has_producers = self.has_producers or found.has_producers
        self._take_epochs(found)
        self.recovery.recovered_segments.append(segment.base_offset)
        self.recovered.add(segment)

    def _take_epochs(self, found: RecoveryWalk) -> None:
        """Takes over leader epochs that the checkpoint does not tell."""
        for epoch, base_offset in found.leader_epochs:
            if self.epochs.latest is None or epoch > self.epochs.latest:
                self.epochs.assign(epoch, base_offset)

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Spec 8.3: from the segment that holds the recovery point on, until one has to be cut."""
        below = [s for s in segments if s.base_offset <= self.recovery.recovery_point]
        first = len(below) - 1 if below else 0
        kept = segments[:first]
        until = self._vouched_until(segments)
        for at, segment in enumerate(segments[first:], first):
            if segment not in self.recovered and self._is_vouched_for(segment, segments[-1], until):
                kept.append(segment)
                continue
            # One that was recovered for want of an index is whole now. What follows stays, as in Kafka,
            # though a part of it was cut off: the gap is told.
            done = segment in self.recovered
            before = self.recovery.steps
            self.recovery.steps = []
            parts, cut = ([segment], False) if done else self._recovered(segment)
            kept += parts
            own, self.recovery.steps = self.recovery.steps, before
            if cut:
                # They are deleted before the cut, the last one first: a crash on the way leaves no hole.
                losses = self.recovery.losses
                told = len(losses)
                for beyond in reversed(segments[at + 1 :]):
                    self.recovery.truncated_bytes += beyond.size
                    self.drop(Code.BEHIND_DAMAGE, beyond)
                losses[told:] = reversed(losses[told:])
                if at + 1 < len(segments):
                    self.note(Code.NAMES_SYNCED, segment, deed=lambda repairs: repairs.sync_names())
            self.recovery.steps += own
            if cut:
                kept[-1] = self._with_end(kept[-1], MAX64)
                break
        return kept

    def _vouched_until(self, segments: list[Segment]) -> int:
        if not self.asks_voucher or not segments:
            return 0
        return vouched_until(self.path, segments[-1], self.recovery.recovery_point)

    def _is_vouched_for(self, segment: Segment, last: Segment, until: int) -> bool:
        """Whether all of a segment that lies below the offset `until` need not be looked at; the rest was,
        then."""
        if segment is not last and segment.end_offset <= until:
            self.has_producers = True  # there may be some
            return True
        found = segment.walk_on(until) if until else None
        size = segment.size
        if (
            found is None
            or (found.valid_bytes < size and segment is not last)
            or vouched_until(self.path, last, self.recovery.recovery_point) < until  # it has left meanwhile
        ):
            return False
        self.has_producers = True
        self._cut(segment, found)
        segment.use_indexes(found.offset_index, found.time_index)
        if not self.epochs_damaged:
            self.epochs = LeaderEpochs(self._read_epochs())  # there may be more since
        self._take_epochs(found)
        return True

    def _recovered(self, segment: Segment) -> tuple[list[Segment], bool]:
        """What recovery makes of one segment (spec 8.4), several if it must be split; whether it was cut."""
        kept: list[Segment] = []
        pending = [segment]
        while pending:
            part = pending.pop(0)
            found = part.recovery_walk()
            if found.overflow and self._rises(part):
                pending[:0] = self._split(part)
                continue
            kept.append(part)
            size = part.size
            if found.disordered:
                part.limit_to(0)
                empty = part.recovery_walk()
                part.limit_to(size)
                found = empty._replace(error=found.error, disordered=True)
            self._adopt(part, found, pending)
            if found.valid_bytes < size:
                for beyond in pending:
                    self.recovery.truncated_bytes += beyond.size
                    self.drop(Code.BEHIND_DAMAGE, beyond)
                kept[-1] = self._with_end(part, segment.end_offset)
                return kept, True
        return kept, False

    def _with_end(self, segment: Segment, end_offset: int) -> Segment:
        """The same recovered segment with another offset behind it."""
        if segment.end_offset == end_offset:
            return segment
        twin = self.make(segment.stem, segment.base_offset, segment.suffixes, end_offset, segment.origin)
        twin.limit_to(segment.size)
        twin.use_indexes(segment.offset_index, segment.time_index)
        self.recovered.add(twin)
        return twin

    def _rises(self, segment: Segment) -> bool:
        """Whether offsets rise from batch to batch: where they do not, an offset far off is damage, not old
        age."""
        headers = segment.read_headers()
        return bool((headers["base_offset"][1:] > headers["last_offset"][:-1]).all())

    def _split(self, segment: Segment) -> list[Segment]:
        """Segments over the parts of one whose offsets span more than 2^31 - 1 (spec 8.7)."""
        headers = segment.read_headers()
        starts: list[tuple[int, int]] = []  # (base offset, position)
        for last, position in zip(headers["last_offset"].tolist(), headers["position"].tolist(), strict=True):
            if not starts or last - starts[-1][0] > 2**31 - 1:
                starts.append((segment.batch_at(position)._first_offset(), position))

        def parts(suffixes: dict[str, str] | None) -> Iterator[Segment]:
            ends = [*starts[1:], (segment.end_offset, size)]
            for (base, position), (end_offset, end) in zip(starts, ends, strict=True):
                part = self.make(segment.stem, base, suffixes, end_offset, position)
                part.limit_to(end - position)
                yield part

        size = segment.size
        self.note(
            Code.OFFSETS_FAR_APART,
            segment,
            detail=len(starts),
            deed=lambda repairs: repairs.split(segment, list(parts(None))),  # by then it has its final name
        )
        return list(parts(segment.suffixes))

    def _end_of(self, segments: list[Segment]) -> int:
        """The log end offset, and what follows the last whole batch of a log that was closed cleanly."""
        if not segments:
            return self.log_start_offset
        last = segments[-1]
        log_end_offset = last.read_next_offset()
        if last.tail_bytes:
            self.note(Code.TAIL_LEFT, last, last.size - last.tail_bytes, last.tail_bytes)
            remains = remains_of(last, last.size - last.tail_bytes)
            if self.recover:
                self._lose(last.path, last.tail_bytes, remains, self.recovery.clean and _was_batch(last))
            elif remains is not None:  # asked for as it lies, the log goes on behind the damage
                log_end_offset = max(log_end_offset, remains.last_offset + 1)
        elif last.size and log_end_offset == last.base_offset and not self.recover:
            self.note(Code.WRONG_NAME, last, 0, last.size)
        return log_end_offset


def _was_batch(last: Segment) -> bool:
    """Whether what follows the last whole batch was one: it has room for a header, and is not room that was
    set aside."""
    tail = last.peek(last.size - last.tail_bytes)
    return len(tail) == _HEADER_SIZE and any(tail)


def load(
    path: Path,
    *,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    recover: bool = True,
    state: State | None = None,
    writing: bool = False,
    dry: bool = False,
) -> Loaded:
    """Loads a partition directory, and writes nothing. What is not given comes from the directory around it.

    writing: for somebody who then carries the plan out, and appends. Else LogChangedError if somebody deletes
    or replaces segments meanwhile. dry: the plan is only shown. It is that of an opening for writing all the
    same.
    """
    if not path.is_dir():
        raise not_found(path)
    state = state or read_state(path)
    # Who says what is to be distrusted gets every batch looked at.
    asks_voucher = not writing and clean is None and recovery_point is None
    told = state
    state = state._replace(
        clean=state.clean if clean is None else clean,
        recovery_point=state.recovery_point if recovery_point is None else recovery_point,
        log_start_offset=state.log_start_offset if log_start_offset is None else log_start_offset,
        by_itself=state.by_itself and clean is None and recovery_point is None,
    )
    make = SegmentFactory(str(path), index_interval_bytes, max_decompressed_bytes)
    loader = _Loader(path, state, make, recover, writing, dry, told, asks_voucher)
    loaded = loader.load()
    if writing and loaded.segments and not loaded.segments[-1].origin:
        # Whoever writes makes the indexes of the last segment anew, from those in memory.
        loaded.recovery.forget_step(Code.INDEXES_REBUILT, loaded.segments[-1].path)
    if dry or not writing:
        loaded.recovery.forget_deeds()
    if not writing:
        for segment in loaded.segments:
            segment.remember_file(
                *loader.listing.file_of(segment)
            )  # a compaction may give its name to another
        if not loader.listing.is_as_it_was():
            raise LogChangedError(str(path), 0, 0, 0, "segments came or went while it was opened")
    return loaded


def carried_out(loaded: Loaded, repairs: Repairs) -> Loaded:
    """Runs the plan of a log that was loaded for writing; the log as it is then. OSError."""
    recovery = loaded.recovery
    recovery.run(repairs)
    recovery.forget_deeds()
    return replace(loaded, segments=tuple(_settled(segment, recovery) for segment in loaded.segments))


def _settled(segment: Segment, recovery: Recovery) -> Segment:
    """A segment under the name that its files have now."""
    if (
        not segment.suffixes
        and not segment.origin
        and segment.stem == layout.segment_stem(segment.base_offset)
    ):
        return segment
    make = SegmentFactory(segment.directory, segment.index_interval_bytes, segment.max_decompressed_bytes)
    settled = make(layout.segment_stem(segment.base_offset), segment.base_offset, None, segment.end_offset)
    if segment.base_offset in recovery.recovered_segments:
        settled.use_indexes(segment.offset_index, segment.time_index)
    return settled
