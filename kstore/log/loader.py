"""What a partition directory holds once Kafka has loaded it (spec 8).

Kafka finishes interrupted work when it loads a log: it deletes, renames, cuts torn tails off, rebuilds indexes. Here the
same decisions are made over a listing. For a reader nothing is written: their outcome is a tuple of segments that show
what would be left, some of them named `.swap` on disk, some with a part that does not count, some with indexes made in
memory. For a writer each decision is also carried out, by log/repairs.py.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from kstore.engine.growth import grown
from kstore.engine.index import TimeIndex
from kstore.engine.segment import Segment
from kstore.engine.survey import Survey
from kstore.errors import CorruptFileError, CorruptIndexError, LogNotFoundError
from kstore.log import checkpoints, layout
from kstore.log.epochs import LeaderEpochs
from kstore.log.home import State, read_state
from kstore.log.repairs import Repairs

MAX_OFFSET = 2**63 - 1


class Finding(NamedTuple):
    """Something that is not as a clean shutdown leaves it.

    `kind` is a stable word: "torn_tail", "corrupt_batch", "beyond" (bytes or segments behind the end that recovery
    would remove), "leftover" (a .deleted, .cleaned or .swap file), "orphan" (an index without log), "missing_index",
    "broken_index", "split", "checkpoint". `position` and `size` are in bytes, -1 where they mean nothing.
    """

    kind: str
    file: str
    position: int
    size: int
    text: str


@dataclass
class Recovery:
    """What loading found, and did or (opened for reading, which writes nothing) would have done."""

    clean: bool
    recovery_point: int
    written: bool = False
    findings: list[Finding] = field(default_factory=list)
    recovered_segments: list[int] = field(default_factory=list)
    truncated_bytes: int = 0

    def note(self, kind: str, file: str, position: int, size: int, text: str) -> None:
        """Adds a finding; `text` says what would be done, and says that it was where it is."""
        self.findings.append(
            Finding(kind, file, position, size, text.replace("would be", "was") if self.written else text)
        )

    def __str__(self) -> str:
        how = "after a clean shutdown" if self.clean else f"recovered from offset {self.recovery_point} on"
        how += "" if self.written or not self.findings else ", in memory only"
        lines = [f"{how}: {len(self.findings)} findings"]
        lines += [f"  {f.kind}: {f.file}: {f.text}" for f in self.findings]
        return "\n".join(lines)


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


class _Listing:
    """The names in the directory, and what they would be after passes 1 to 3."""

    def __init__(self, directory: str, recovery: Recovery, repairs: Repairs | None) -> None:
        self.directory = directory
        self.recovery = recovery
        self.repairs = repairs
        self.names = set(os.listdir(directory))  # noqa: PTH208 - iterdir takes thrice as long
        self.renamed: set[str] = set()  # final names of files that are still called .swap

    def note(self, kind: str, name: str, text: str) -> None:
        self.recovery.note(kind, f"{self.directory}/{name}", -1, -1, text)

    def drop(self, name: str, kind: str, text: str) -> None:
        self.names.discard(name)
        self.note(kind, name, text)
        if self.repairs is not None:
            self.repairs.delete(name)

    def finish_interrupted_work(self, make: "SegmentMaker") -> None:
        """Passes 1 to 3 of spec 8.2."""
        extras = [name for name in self.names if name.endswith((".deleted", ".cleaned", ".swap"))]
        if not extras:
            return
        cleaned = [
            offset
            for name in extras
            if name.endswith(".cleaned") and (offset := layout.parse_offset(name)) is not None
        ]
        swaps = []
        for name in sorted(extras):
            if name.endswith(".deleted"):
                if not name.endswith(".checkpoint.deleted"):
                    self.drop(name, "leftover", "would be deleted: its removal was under way")
            elif name.endswith(".cleaned") or (cleaned and (layout.parse_offset(name) or 0) >= min(cleaned)):
                self.drop(name, "leftover", "would be deleted: a compaction that was not finished")
            else:
                swaps.append(name)
        for name in swaps:
            if not name.endswith(".log.swap"):
                continue
            file = layout.parse_file(name)
            if file is None:
                continue
            swapped = make(file.stem, file.offset, dict.fromkeys(layout.SEGMENT_KINDS, ".swap"))
            end = swapped.read_next_offset()
            for other in [n for n in self.names if not n.endswith(".swap")]:
                offset = layout.parse_offset(other)
                if offset is not None and file.offset <= offset < end:
                    self.drop(other, "leftover", f"would be deleted: {name} replaces it")
        for name in swaps:
            if name in self.names:
                self.names.discard(name)
                self.names.add(name.removesuffix(".swap"))
                if self.repairs is not None:
                    self.repairs.rename(name, name.removesuffix(".swap"))
                else:
                    self.renamed.add(name.removesuffix(".swap"))
                self.note("leftover", name, "would be renamed: a compaction that was all but finished")

    def suffixes(self, stem: str) -> dict[str, str]:
        """How the files of a segment are named on disk, where that is not their final name."""
        return {kind: ".swap" for kind in layout.SEGMENT_KINDS if stem + kind in self.renamed}


class SegmentMaker:
    """Makes segments of one directory with the options of this opening."""

    def __init__(self, directory: str, index_interval_bytes: int, max_decompressed_bytes: int) -> None:
        self.directory = directory
        self.index_interval_bytes = index_interval_bytes
        self.max_decompressed_bytes = max_decompressed_bytes

    def __call__(
        self,
        stem: str,
        base_offset: int,
        suffixes: dict[str, str] | None = None,
        end_offset: int = MAX_OFFSET,
        origin: int = 0,
    ) -> Segment:
        return Segment(
            self.directory,
            stem,
            base_offset,
            end_offset,
            suffixes,
            origin,
            self.index_interval_bytes,
            self.max_decompressed_bytes,
        )


class _Loader:
    def __init__(
        self, path: Path, state: State, make: SegmentMaker, recover: bool, repairs: Repairs | None
    ) -> None:
        self.path = path
        self.make = make
        self.recover = recover
        self.repairs = repairs
        self.log_start_offset = state.log_start_offset
        self.recovery = Recovery(state.clean, state.recovery_point, repairs is not None)
        for file, text in state.complaints:
            self.recovery.note("checkpoint", file, -1, -1, text)
        self.listing = _Listing(str(path), self.recovery, repairs)
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
            self.recovery.note("checkpoint", str(file), -1, -1, f"not read: {e}")
            return []

    def note(self, kind: str, segment: Segment, position: int, size: int, text: str) -> None:
        self.recovery.note(kind, segment.path, position, size, text)

    def drop(self, segment: Segment, text: str) -> None:
        """A whole segment that does not count."""
        self.note("beyond", segment, 0, segment.size, text)
        if self.repairs is not None:
            lost = not self.recovery.clean and segment.base_offset < self.recovery.recovery_point
            self.repairs.delete_segment(segment, keep=lost)

    def load(self) -> Loaded:
        if self.recover:
            self.listing.finish_interrupted_work(self.make)
        segments = self._open_segments()
        if self.recover and not self.recovery.clean:
            segments = self._recover(segments)
        log_end_offset = self._end_of(segments)
        if segments and log_end_offset < self.log_start_offset:
            for segment in segments:
                self.drop(segment, "would be deleted: it lies below the log start offset")
            segments = []
            self.epochs = LeaderEpochs()
        first = segments[0].base_offset if segments else self.log_start_offset
        log_end_offset = log_end_offset if segments else first
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

    def _open_segments(self) -> list[Segment]:
        """Pass 4: the segments there are, in order; indexes without a log are left aside."""
        names = self.listing.names
        stems = []
        for name in names:
            if name.endswith(".log"):
                stem = name[:-4]
                offset = layout.parse_offset(stem)
                if offset is None or "." in stem:
                    self.listing.note("orphan", name, "not the name of a segment; Kafka refuses to load this")
                elif offset >= 0:
                    stems.append((offset, stem))
        stems.sort()
        known = {stem for _, stem in stems}
        for name in names:
            if name.endswith(layout.INDEX_KINDS) and name.partition(".")[0] not in known:
                self.listing.note("orphan", name, "would be deleted: an index without a log")
                if self.repairs is not None:
                    self.repairs.delete(name)
        ends = [*(offset for offset, _ in stems[1:]), MAX_OFFSET][: len(stems)]
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
                    segment.adopt(None, TimeIndex(offset))
                    if self.repairs is not None:
                        self.repairs.write_index(segment, ".timeindex", b"")
                    self.lost_time_indexes.add(offset)
            if stem + ".txnindex" in names and not self._check_transactions(segment) and self.recover:
                segments[-1:] = self._recovered(segment)[0]
        return segments

    def _check_transactions(self, segment: Segment) -> bool:
        try:
            segment.transaction_index.sanity_check()
        except CorruptIndexError as e:
            self.note("broken_index", segment, e.position, -1, f"made anew from the log: {e}")
            return False
        return True

    def _adopt(self, segment: Segment, found: Survey) -> None:
        """Makes a segment what its recovery leaves: cut at the last good batch, with the indexes of the scan."""
        beyond = segment.size - found.valid_bytes
        if beyond:
            kind = "torn_tail" if "end inside" in str(found.error) else "corrupt_batch"
            self.note(
                kind, segment, found.valid_bytes, beyond, f"{beyond} bytes would be cut off: {found.error}"
            )
            self.recovery.truncated_bytes += beyond
            if self.repairs is not None:
                lost = not self.recovery.clean and found.next_offset < self.recovery.recovery_point
                self.repairs.cut(segment, found.valid_bytes, keep=lost)
            segment.limit_to(found.valid_bytes)
        segment.adopt(found.offset_index, found.time_index)
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
                kept[-1] = self._with_end(kept[-1], MAX_OFFSET)
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
            found = part.scan()
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
                found = part.scan()
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
        twin.adopt(segment.offset_index, segment.time_index)
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
        return log_end_offset


class LoadOptions(NamedTuple):
    """How a log was opened for reading; what is None comes from the directory around it."""

    clean: bool | None
    recovery_point: int | None
    log_start_offset: int | None
    index_interval_bytes: int
    max_decompressed_bytes: int
    recover: bool


def _ends_as_it_did(last: Segment, before: Loaded) -> bool:
    """Whether the last segment still has a batch that ends where the log did: it may have been truncated, and have grown
    beyond that point since."""
    try:
        return max(last.read_next_offset(), before.log_start_offset) == before.log_end_offset
    except CorruptFileError:
        return False


def advanced(path: Path, before: Loaded, options: LoadOptions) -> Loaded:
    """The log now, given what it was: the same object where nothing has changed.

    Segments that are still there are taken as they were, but for the last: it may have grown, and others may follow.
    """
    last = before.segments[-1] if before.segments else None
    stems = {}
    try:
        names = os.listdir(path)  # noqa: PTH208 - iterdir takes thrice as long
    except FileNotFoundError:
        raise LogNotFoundError(f"no partition directory at {path}") from None
    for name in names:
        offset = layout.parse_offset(name)
        if name.endswith(".log") and offset is not None and offset >= 0:
            stems[offset] = name[:-4]
    known = {segment.base_offset: segment for segment in before.segments if segment.base_offset in stems}
    if (
        last is None
        or last.base_offset not in known
        or last.origin
        or any(base not in known for base in stems if base < last.base_offset)
        or last.file().size() < last.size
        or not last.is_file_of_its_name()
        or not _ends_as_it_did(last, before)
    ):
        return load(path, **options._asdict())
    log_start_offset = options.log_start_offset
    if log_start_offset is None:
        log_start_offset = read_state(path).log_start_offset
    log_start_offset = max(log_start_offset, min(known))
    later = sorted(base for base in stems if base > last.base_offset)
    active = grown(last, later[0] if later else MAX_OFFSET)
    same = active is last and not later and len(known) == len(before.segments)
    if same and log_start_offset == before.log_start_offset:
        return before
    segments = [segment for segment in before.segments[:-1] if segment.base_offset in known] + [active]
    make = SegmentMaker(str(path), options.index_interval_bytes, options.max_decompressed_bytes)
    for at, base in enumerate(later):
        segment = make(stems[base], base, None, later[at + 1] if at + 1 < len(later) else MAX_OFFSET)
        found = segment.scan()
        segment.limit_to(found.valid_bytes)
        segment.adopt(found.offset_index, found.time_index)
        segments.append(segment)
    epochs = LeaderEpochs(before.leader_epochs.entries)
    with contextlib.suppress(OSError, CorruptFileError):
        epochs = LeaderEpochs(e for e in checkpoints.read_epochs(path / layout.LEADER_EPOCHS) if min(e) >= 0)
    end = segments[-1].read_next_offset()
    return replace(
        before,
        segments=tuple(segments),
        log_start_offset=log_start_offset,
        log_end_offset=max(end, log_start_offset),
        leader_epochs=epochs,
    )


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
    make = SegmentMaker(str(path), index_interval_bytes, max_decompressed_bytes)
    return _Loader(path, state, make, recover, repairs).load()
