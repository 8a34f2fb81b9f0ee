"""The shipping of one partition: its sealed segments, each once, oldest first."""

from __future__ import annotations

import contextlib
from itertools import pairwise

from kstore.broker.topic_options import topic_options
from kstore.copying.manifest import CopiedFile
from kstore.engine.io.directory import sync_directory
from kstore.engine.io.file import sync_file
from kstore.errors import CorruptRecordError, LogChangedError, PolicyViolationError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.log_dir_state import is_known_compacted
from kstore.log.follow.position import Position, epoch_before
from kstore.remote.shipped import (
    Shipped,
    ShippedFile,
    continued,
    difference,
    id_of,
    manifest_name,
    shipped_logs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kstore.engine.segment.segment import Segment
    from kstore.log.partition import PartitionLog
    from kstore.log.recovery.loader import Loaded
    from kstore.remote.storage import Listed, Storage


class ShippedPartition(NamedTuple):
    """The remote log of a partition: the offsets `start` to `end` (exclusive); both are -1 if it is empty.
    `shipped_bytes` is the number of bytes that this run has uploaded, `deleted_segments` the number of local
    segments that it has deleted. `gaps` describes missing offsets, as sentences."""

    start: int
    end: int
    shipped_bytes: int
    deleted_segments: int = 0
    gaps: tuple[str, ...] = ()


class PartitionShipping:
    """The shipping of one view of a partition. `newest` is the newest manifest, None if there is none."""

    def __init__(self, log: PartitionLog, storage: Storage, advance: Callable[[int], None]) -> None:
        """advance: called with each number of bytes that are done. PolicyViolationError for a compacted
        topic; LogChangedError if the remote directory has another log, or more of it; CorruptFileError,
        OSError."""
        self._log, self._storage, self._advance = log, storage, advance
        is_compacted = "compact" in topic_options(log.path).config().cleanup_policy
        if is_compacted or is_known_compacted(log.path):
            raise PolicyViolationError(
                f"{log.path} is compacted, so its sealed segments change: only a topic whose cleanup_policy "
                "is delete can be shipped, as in Kafka's tiered storage; kstore.copy() copies it"
            )
        self._listed: Mapping[str, Listed] = storage.list()
        known = shipped_logs(storage, self._listed).get("")
        self.newest: Shipped | None = None
        self._start = -1
        self._verified: set[int] = set()  # base offsets of segments that this run has read back
        self._id = id_of(log)
        # whether records were deleted, and not only segments
        self._is_cut = bool(log.segments) and log.log_start_offset > log.segments[0].base_offset
        if known is not None:
            self.newest, self._start = known.newest, max(known.bases[0], known.newest.start)
            self._check_newest(known.bases[-1], known.newest)
            self.check(log.snapshot)

    def check(self, now: Loaded) -> None:
        """LogChangedError unless a snapshot is of the log that was shipped."""
        if self.newest is None:
            return
        if why := difference(now, self._id, self.newest.position):
            raise self._other(why)

    def _check_newest(self, base: int, newest: Shipped) -> None:
        """LogChangedError if the newest shipped segment is of another log."""
        same = next((each for each in self._log.segments if each.base_offset == base), None)
        if same is not None and not (self._id and newest.position.topic_id):  # nothing else tells
            name = f"{same.stem}.log"
            if CopiedFile.at(same.directory, name).sha256 != newest.files[name].sha256:
                raise self._other(f"its segment {base} is another one there")

    def _other(self, why: str) -> LogChangedError:
        log = self._log
        text = f"it cannot go on in {self._storage.url}: {why}"
        return LogChangedError(log.path, log.log_end_offset, log.log_start_offset, log.log_end_offset, text)

    def ship(self) -> ShippedPartition:
        """Uploads what is not there yet. LogChangedError, CorruptFileError, OSError."""
        log = self._log
        stable = log.last_stable_offset()  # above it are open transactions: Kafka's tiering stops there, too
        shipped, gaps = 0, []
        before = self.newest
        for segment, following in pairwise(log.segments):
            end = following.base_offset
            there = -1 if self.newest is None else self.newest.end
            if end > stable:
                break
            if end <= there or end <= log.log_start_offset:
                self._advance(segment.size)
                continue
            if segment.base_offset < there:
                raise self._other(f"offset {there}, where that ends, is inside a segment")
            if 0 <= there < segment.base_offset and not self._is_cut:
                gaps.append(
                    f"{log.path}: offsets {there} to {segment.base_offset - 1} were deleted unshipped"
                )
            self._ship(segment, end)
            shipped += segment.size
        if self.newest is None:
            return ShippedPartition(-1, -1, 0)
        if self.newest is not before:
            self._settle_epochs()
        return ShippedPartition(self._start, self.newest.end, shipped, 0, tuple(gaps))

    def _ship(self, segment: Segment, end: int) -> None:
        """Uploads the files of a segment, reads them back, and writes its manifest."""
        stem = layout.segment_stem(segment.base_offset)
        names = [stem + kind for kind in reversed(layout.SEGMENT_KINDS)]  # the .log last
        names.insert(0, f"{layout.segment_stem(end)}.snapshot")
        if self.newest is None:
            names.insert(0, layout.METADATA)
        walk = segment.recovery_walk()
        if walk.error is not None:
            raise walk.error
        if walk.valid_bytes < segment.size:
            raise CorruptRecordError("end of a segment", file=segment.path, position=walk.valid_bytes)
        sync_file(segment.path)  # or a power cut could take records that are there
        sync_directory(segment.directory)
        files = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                files[name] = self._upload(segment.directory, name)
        self._advance(segment.size)
        shipped = files.get(f"{stem}.log")
        if shipped is None or not segment.files.is_at_its_name():
            raise self._other(f"{segment.path} was deleted or replaced meanwhile")
        if segment.origin or segment.suffixes or shipped.size != segment.size:
            raise self._other(
                f"{segment.path} has other bytes than the segment, so the log must be recovered"
            )
        self._write_manifest(segment.base_offset, end, files)

    def _write_manifest(self, base: int, end: int, files: Mapping[str, ShippedFile]) -> None:
        """Writes the manifest of a segment whose files are there: from here on it is shipped."""
        now = self._log.snapshot
        older, start = LeaderEpochs(), 0
        if self.newest is not None:
            older, start = self.newest.leader_epochs, self.newest.start
        if self._is_cut:
            start = max(start, now.log_start_offset)
        epochs = continued(older, now.leader_epochs).until(end)
        position = Position(end, epoch_before(now, end), now.truncations.number, self._id)
        made = Shipped(start, position, epochs, files)
        if self.newest is None or epochs != older:
            self._write_epochs(epochs)
        try:
            self._storage.create(manifest_name(base), made.encode())
        except FileExistsError:  # of another program that ships this log, or has shipped another one
            if self._manifest(base).files != files:
                raise self._other("another program ships another log there") from None
        if self.newest is None:
            self._start = max(base, made.start)
        self.newest = made
        self._verified.add(base)

    def _write_epochs(self, epochs: LeaderEpochs) -> None:
        self._storage.write(layout.LEADER_EPOCHS, checkpoints.encode_epochs(epochs.entries))

    def _upload(self, directory: str, name: str) -> ShippedFile:
        """Uploads a file, unless it is there. OSError if it differs then."""
        local = CopiedFile.at(directory, name)
        is_there = name in self._listed and self._listed[name].size == local.size
        if not is_there or self._storage.sha256(name, local.size) != local.sha256:
            self._storage.upload(f"{directory}/{name}", name)
            if self._storage.sha256(name, local.size) != local.sha256:
                raise OSError(f"{self._storage.url}/{name} is not {directory}/{name} after its upload")
        return ShippedFile(local.size, local.sha256)

    def _settle_epochs(self) -> None:
        """Writes the leader epochs of the newest manifest, which another program may have written. Readers
        by URL use those of the manifest; this file is for downloads."""
        seen = -1
        while self.newest is not None and self.newest.end > seen:
            seen = self.newest.end
            self._write_epochs(self.newest.leader_epochs)
            newest = shipped_logs(self._storage, self._storage.list())[""].newest
            if newest.end > seen:
                self.newest = newest

    def _manifest(self, base: int) -> Shipped:
        name = manifest_name(base)
        return Shipped.decode(f"{self._storage.url}/{name}", self._storage.read(name))

    def verify(self, segment: Segment) -> None:
        """Reads a segment's remote files back. LogChangedError unless they are those that are here, or have
        the checksums of the manifest; OSError."""
        if segment.base_offset in self._verified:
            return
        known = self._manifest(segment.base_offset)
        name = f"{segment.stem}.log"
        if CopiedFile.at(segment.directory, name).sha256 != known.files[name].sha256:
            raise self._other(f"{segment.path} was rewritten since it was shipped, so it is not deleted")
        for name, file in known.files.items():
            if self._storage.sha256(name, file.size) != file.sha256:
                raise self._other(f"{name} has changed there, so nothing is deleted here")
