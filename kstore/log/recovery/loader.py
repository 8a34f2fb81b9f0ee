"""What a partition directory holds once Kafka has loaded it (spec 8).

Kafka finishes interrupted work when it loads a log: it deletes, renames, cuts torn tails off, rebuilds indexes. Here the
same decisions are made over a listing. For a reader nothing is written: their outcome is a tuple of segments that show
what would be left, some of them named `.swap` on disk, some with a part that does not count, some with indexes made in
memory. For a writer each decision is also carried out, by log/recovery/repairs.py.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kstore.config import MAX64
from kstore.engine.segment.index import TimeIndex
from kstore.engine.segment.recovery_walk import RecoveryWalk
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, CorruptIndexError, LogNotFoundError
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.log_dir_state import State, read_state
from kstore.log.recovery.directory_listing import DirectoryListing
from kstore.log.recovery.remains import Remains, remains_of
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import Recovery
from kstore.log.recovery.segment_factory import SegmentFactory


@dataclass
class Loaded:
    """A partition as Kafka would have it in memory."""

    segments: tuple[Segment, ...]
    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs
    recovery: Recovery
    lost_time_indexes: frozenset[int]
    recovered_producers: bool  # whether a recovered segment has batches with producer ids


class _Loader:
    def __init__(
        self, path: Path, state: State, make: SegmentFactory, recover: bool, repairs: Repairs | None
    ) -> None:
        self.path = path
        self.make = make
        self.recover = recover
        self.repairs = repairs
        self.log_start_offset = state.log_start_offset
        self.recovery = Recovery(state.clean, state.recovery_point, repairs is not None)
        for file, text in state.complaints:
            self.recovery.note("checkpoint", file, -1, -1, text)
        self.listing = DirectoryListing(str(path), self.recovery, repairs)
        self.epochs_damaged = False
        self.epochs = LeaderEpochs(self._read_epochs())
        self.lost_time_indexes: set[int] = set()
        self.has_producers = False
        self.recovered: set[Segment] = set()

    def _read_epochs(self) -> list[tuple[int, int]]:
        file = self.path / layout.LEADER_EPOCHS
        try:
            return [(e, o) for e, o in checkpoints.read_epochs(file) if e >= 0 and o >= 0]
        except FileNotFoundError:
            return []
        except (OSError, CorruptFileError) as e:
            self.recovery.note("checkpoint", str(file), -1, -1, f"not read, made again from the batches: {e}")
            self.epochs_damaged = True
            return []

    def note(self, kind: str, segment: Segment, position: int, size: int, text: str) -> None:
        self.recovery.note(kind, segment.path, position, size, text)

    def drop(self, segment: Segment, text: str) -> None:
        """A whole segment that does not count."""
        remains = remains_of(segment, 0)
        lost = self._was_promised(segment.base_offset)
        self.note("beyond", segment, 0, segment.size, f"{text}{self._told(remains)}")
        self._lose(segment.path, segment.size, remains, lost)
        if self.repairs is not None:
            self.repairs.delete_segment(segment, keep=lost or remains is not None)

    def _was_promised(self, offset: int) -> bool:
        """Whether what lies at an offset should be on the disk: it was flushed, or the log was closed."""
        return self.recovery.clean or offset < self.recovery.recovery_point

    def _told(self, remains: Remains | None) -> str:
        return "" if remains is None else f" (with {remains}; recover=False shows them)"

    def _lose(self, path: str, size: int, remains: Remains | None, promised: bool) -> None:
        """Notes what recovery takes away that somebody may miss."""
        if remains is not None and remains.last_offset < self.log_start_offset:
            return  # it was deleted
        if remains is not None:
            self.recovery.losses.append(f"{size} bytes of {path} were cut off, with {remains}")
        elif promised and size:
            self.recovery.losses.append(f"{size} bytes of {path}, which had been flushed, were damaged")

    def load(self) -> Loaded:
        if self.recover:
            self.listing.finish_interrupted_work(self.make)
        segments = self._open_segments()
        if self.recover and not self.recovery.clean:
            segments = self._recover(segments)
        elif self.recover and self.repairs is not None and segments and self._has_tail(segments[-1]):
            # Kafka trusts the clean shutdown, and appends behind these bytes: then what was damaged is completed by
            # the new batch, and nothing behind it can be read. A reader sees them as Kafka's does.
            segments[-1:] = self._recovered(segments[-1])[0]
        if self.epochs_damaged:
            self._gather_epochs(segments)
        log_end_offset = self._end_of(segments)
        if self.recovery.clean and segments and log_end_offset < self.recovery.recovery_point:
            # Kafka and kstore store the end when they close a log.
            text = f"the log ends at offset {log_end_offset}, where it was closed at {self.recovery.recovery_point}"
            self.note("checkpoint", segments[-1], -1, -1, text)
        if segments and log_end_offset < self.log_start_offset:
            for segment in segments:
                self.drop(segment, "would be deleted: it lies below the log start offset")
            segments = []
            self.epochs = LeaderEpochs()
        first = segments[0].base_offset if segments else self.log_start_offset
        log_end_offset = log_end_offset if segments else first
        told = self.recovery.clean and self.recovery.losses
        if log_end_offset < self.recovery.recovery_point and not told:
            text = (
                f"offsets {log_end_offset} to {self.recovery.recovery_point} had been flushed, and are lost"
            )
            self.recovery.losses.append(text)
            if not self.recovery.clean:
                self.recovery.note("checkpoint", str(self.path), -1, -1, text)
        self.epochs.truncate_from_end(log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        return Loaded(
            tuple(segments),
            max(self.log_start_offset, first),
            log_end_offset,
            self.epochs,
            self.recovery,
            frozenset(self.lost_time_indexes),
            self.has_producers,
        )

    def _has_tail(self, last: Segment) -> bool:
        """Whether bytes follow the last whole batch, or that cannot be told."""
        try:
            last.read_next_offset()
        except CorruptFileError:
            return True
        return last.tail_bytes > 0

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
        names = self.listing.names
        stems = []
        for name in names:
            if name.endswith(".log"):
                offset = layout.segment_offset(name)
                if offset is not None:
                    stems.append((offset, name[:-4]))
                else:
                    self._note_misnamed(name)
        stems.sort()
        known = {offset for offset, _ in stems}
        for name in names:
            if name.endswith(layout.INDEX_KINDS):
                offset = layout.parse_offset(name)
                if offset is None:
                    self.listing.note("orphan", name, "not the name of an index; Kafka refuses to load this")
                elif offset not in known:
                    self.listing.note("orphan", name, "would be deleted: an index without a log")
                    if self.repairs is not None:
                        self.repairs.delete(name)
        ends = [*(offset for offset, _ in stems[1:]), MAX64][: len(stems)]
        suffixes = self.listing.suffixes if self.listing.renamed else None
        segments = []
        for (offset, stem), end_offset in zip(stems, ends, strict=True):
            segment = self.make(stem, offset, suffixes(stem) if suffixes else None, end_offset)
            segments.append(segment)
            if stem + ".index" not in names:
                # Kafka recovers such a segment even after a clean shutdown
                self.note("missing_index", segment, -1, -1, "no offset index: it is made anew from the log")
                if self.recover:
                    segments[-1:] = self._recovered(segment)[0]
            elif stem + ".timeindex" not in names:
                text = "no time index: Kafka goes on with an empty one, and by the file's time"
                self.note("missing_index", segment, -1, -1, text)
                if self.recover:
                    segment.use_indexes(None, TimeIndex(offset))
                    if self.repairs is not None:
                        self.repairs.write_index(segment, ".timeindex", b"")
                    self.lost_time_indexes.add(offset)
            if stem + ".txnindex" in names and not self._check_transactions(segment) and self.recover:
                segments[-1:] = self._recovered(segment)[0]
        return segments

    def _note_misnamed(self, name: str) -> None:
        offset = layout.parse_offset(name)
        if offset is None or offset < 0:
            text = "not the name of a segment; Kafka refuses to load this"
        else:
            text = f"not read, as by Kafka: the segment at offset {offset} is called {layout.segment_stem(offset)}.log"
        self.listing.note("orphan", name, text)

    def _check_transactions(self, segment: Segment) -> bool:
        try:
            segment.transaction_index.sanity_check()
        except CorruptIndexError as e:
            self.note("broken_index", segment, e.position, -1, f"made anew from the log: {e}")
            return False
        return True

    def _adopt(self, segment: Segment, found: RecoveryWalk) -> None:
        """Makes a segment what its recovery leaves: cut at the last good batch, with the indexes of the scan."""
        beyond = segment.size - found.valid_bytes
        if beyond:
            kind = "torn_tail" if "end inside" in str(found.error) else "corrupt_batch"
            remains = remains_of(segment, found.valid_bytes)
            promised = self._was_promised(found.next_offset)
            text = f"{beyond} bytes would be cut off{self._told(remains)}: {found.error}"
            self.note(kind, segment, found.valid_bytes, beyond, text)
            self._lose(segment.path, beyond, remains, promised)
            self.recovery.truncated_bytes += beyond
            if self.repairs is not None:
                self.repairs.cut(segment, found.valid_bytes, keep=promised or remains is not None)
            segment.limit_to(found.valid_bytes)
        segment.use_indexes(found.offset_index, found.time_index)
        self.has_producers = self.has_producers or found.has_producers
        if self.repairs is not None:
            self.repairs.write_index(segment, ".index", found.offset_index.to_bytes())
            self.repairs.write_index(segment, ".timeindex", found.time_index.to_bytes())
        for epoch, base_offset in found.leader_epochs:
            if self.epochs.latest is None or epoch > self.epochs.latest:
                self.epochs.assign(epoch, base_offset)
        self.recovery.recovered_segments.append(segment.base_offset)
        self.recovered.add(segment)

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Spec 8.3: from the segment that holds the recovery point on, until one has to be cut."""
        below = [s for s in segments if s.base_offset <= self.recovery.recovery_point]
        first = len(below) - 1 if below else 0
        kept = segments[:first]
        for at, segment in enumerate(segments[first:], first):
            done = segment in self.recovered  # for want of an index
            parts, cut = ([segment], False) if done else self._recovered(segment)
            kept += parts
            if cut and at + 1 < len(segments):
                for beyond in segments[at + 1 :]:
                    self.recovery.truncated_bytes += beyond.size
                    self.drop(beyond, "would be deleted: it lies behind what was cut off")
                kept[-1] = self._with_end(kept[-1], MAX64)
                break
            if cut:
                break
        return kept

    def _recovered(self, segment: Segment) -> tuple[list[Segment], bool]:
        """What recovery makes of one segment (spec 8.4), several where it must be split; whether it was cut."""
        kept: list[Segment] = []
        pending = [segment]
        while pending:
            part = pending.pop(0)
            found = part.recovery_walk()
            if found.overflow and self._rises(part):
                parts = list(self._split(part))
                pending[:0] = parts if self.repairs is None else self.repairs.split(part, parts, self.make)
                continue
            kept.append(part)
            size = part.size
            if found.disordered:
                self.note("corrupt_batch", part, 0, size, f"would be emptied: {found.error}")
                self.recovery.truncated_bytes += size
                part.limit_to(0)
                found = part.recovery_walk()
            self._adopt(part, found)
            if found.valid_bytes < size:
                for beyond in pending:
                    self.note("beyond", beyond, 0, beyond.size, "would be cut off with what is before it")
                    self.recovery.truncated_bytes += beyond.size
                return kept, True
        return kept, False

    def _with_end(self, segment: Segment, end_offset: int) -> Segment:
        """The same segment with another offset behind it."""
        twin = self.make(segment.stem, segment.base_offset, segment.suffixes, end_offset, segment.origin)
        twin.limit_to(segment.size)
        twin.use_indexes(segment.offset_index, segment.time_index)
        return twin

    def _rises(self, segment: Segment) -> bool:
        """Whether offsets rise from batch to batch: where they do not, an offset far off is damage, not old age."""
        headers = segment.read_headers()
        return bool((headers["base_offset"][1:] > headers["last_offset"][:-1]).all())

    def _split(self, segment: Segment) -> Iterator[Segment]:
        """Segments over the parts of one whose offsets span more than 2^31 - 1 (spec 8.7)."""
        headers = segment.read_headers()
        starts: list[tuple[int, int]] = []  # (base offset, position)
        for base, last, position in zip(
            headers["base_offset"].tolist(),
            headers["last_offset"].tolist(),
            headers["position"].tolist(),
            strict=True,
        ):
            if not starts or last - starts[-1][0] > 2**31 - 1:
                starts.append((base, position))
        self.note(
            "split", segment, -1, -1, f"would be split into {len(starts)} segments: offsets too far apart"
        )
        ends = [*starts[1:], (segment.end_offset, segment.size)]
        for (base, position), (end_offset, end) in zip(starts, ends, strict=True):
            part = self.make(segment.stem, base, segment.suffixes, end_offset, position)
            part.limit_to(end - position)
            yield part

    def _end_of(self, segments: list[Segment]) -> int:
        """The log end offset, and what follows the last whole batch of a log that was closed cleanly."""
        if not segments:
            return self.log_start_offset
        last = segments[-1]
        log_end_offset = last.read_next_offset()
        if last.tail_bytes:
            text = f"{last.tail_bytes} bytes follow the last whole batch"
            self.note("beyond", last, last.size - last.tail_bytes, last.tail_bytes, text)
            remains = None if self.recover else remains_of(last, last.size - last.tail_bytes)
            if remains is not None:  # asked for as it lies, the log goes on behind the damage
                log_end_offset = max(log_end_offset, remains.last_offset + 1)
        return log_end_offset


def load(
    path: Path,
    *,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    index_interval_bytes: int = 4096,
    max_decompressed_bytes: int = 256 << 20,
    recover: bool = True,
    state: State | None = None,
    repairs: Repairs | None = None,
) -> Loaded:
    """Loads a partition directory. What is not given comes from the directory around it; `repairs` lets it write."""
    if not path.is_dir():
        raise LogNotFoundError(f"no partition directory at {path}")
    state = state or read_state(path)
    state = State(
        state.clean if clean is None else clean,
        state.recovery_point if recovery_point is None else recovery_point,
        state.log_start_offset if log_start_offset is None else log_start_offset,
        state.complaints,
    )
    make = SegmentFactory(str(path), index_interval_bytes, max_decompressed_bytes)
    return _Loader(path, state, make, recover, repairs).load()
