"""A copy of one partition: its segments as files, and the small files that a clean shutdown leaves."""

from __future__ import annotations

import contextlib

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64
from kstore.copying.beside import copy_manifest, options_of, read_beside, write_beside
from kstore.copying.losses import Expected, Loss, gaps_of
from kstore.copying.manifest import identity_of
from kstore.copying.parts import parts_of
from kstore.copying.wanted import Checkpoints, PartitionCopy
from kstore.engine.io.directory import make_directory, rename, sync_directory, write_whole
from kstore.engine.io.file import read_whole
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.index import TransactionIndex
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, CorruptRecordError, LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.leader_epochs import LeaderEpochCheckpoint, LeaderEpochs
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of, read_log_start
from kstore.log.files.producer_snapshot import checked_count
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.producers.transactions import Transactions
from kstore.log.recovery.loader import load
from kstore.log.segments.cleaned import CLEANED, complete, new_log
from kstore.log.segments.segment_truncation import first_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kstore.copying.destination import Destination
    from kstore.copying.manifest import Identity
    from kstore.copying.parts import Part
    from kstore.copying.wanted import Wanted
    from kstore.engine.io.file import File

_LEADER_EPOCH_AT = 12  # in a batch
_PIECE = 1 << 20
_PINNED = 64  # segments whose files stay open during the copy


class FileCopy:
    """The copy of one view of a partition, of whole segments as files."""

    def __init__(self, source: str, name: str, destination: Destination, wanted: Wanted) -> None:
        self.source, self.name, self.destination, self.wanted = source, name, destination, wanted
        self.target = destination.path_of(name)
        self.losses: list[Loss] = []
        self.expected: Expected | None = None
        self.copied = self.reused = 0

    def copy(self) -> tuple[PartitionCopy, Checkpoints]:
        make_directory(self.target)
        # Small files first: no state of a share group may be ahead of the records.
        beside = read_beside(self.source, self.destination.number_of(self.name), self.wanted)
        skips = self.wanted.on_error == "skip"
        log = self.wanted.opened(self.source, recover=not skips)
        start, stop = self.wanted.range_of(log)
        segments = log.segments
        transactions = log.transactions()  # completes the transaction indexes of the segments
        # What is open here can still be read when another process has replaced or deleted it.
        pinned = [segment.file() for segment in segments[-_PINNED:]]
        for segment in segments:
            len(segment.transaction_index)  # is read now
        snapshots = self._read_snapshots(segments)
        if not all(segment.files.is_at_its_name() for segment in segments[-len(pinned) :]):
            raise LogChangedError(self.source, -1, start, stop, "segments were replaced")
        self.losses += self.wanted.losses_of(log, start, stop)
        self.expected = self.wanted.expected_of(log, start, stop)
        is_cut = stop < log.log_end_offset
        first = start if start > log.log_start_offset else 0  # else the files are kept from their beginning
        parts = list(parts_of(segments, first, stop, log.log_end_offset))
        sealed = self._sealed(parts)
        self.destination.clear(self.name, sealed)
        self.destination.expect(sum(part.end - part.position for part in parts), self.name)
        write_beside(self.target, beside)
        for part in parts:
            self._copy_part(part, stop, sealed.get(layout.segment_stem(part.base_offset)))
        if not parts:
            self._begin_empty(start)
        self._write_snapshots(snapshots, start, stop)
        copy_manifest(log, self.target, self.wanted)
        loaded = load(self.target, clean=True, recovery_point=stop, log_start_offset=start)
        epochs = log.snapshot.leader_epochs.until(stop).since(start)
        if self.wanted.leader_epoch is not None:
            epochs = LeaderEpochs([(self.wanted.leader_epoch, start)])
        elif is_locked(directory_of(self.source)):  # their file may be of another moment than the segments
            epochs = _begun(epochs, loaded.segments, start)
        LeaderEpochCheckpoint(self.target, epochs)
        end = loaded.log_end_offset
        if not is_cut and not skips and end != stop:  # another program has changed a file in place
            raise LogChangedError(self.source, end, start, stop, "its files were changed")
        producers = Transactions(self.target, loaded).producers if is_cut or skips else transactions.producers
        if end > start:
            SnapshotFiles(self.target).write(end, producers.states.values(), durable=True)
        sync_directory(self.target)
        cleaner = self.wanted.cleaner_offset(self.source)
        base = parts[0].base_offset if parts else start
        is_inside = start > base or (
            not first and read_log_start(self.source, self.wanted.read_checkpoint) > 0
        )
        known = Checkpoints(
            end, start if is_inside else None, None if cleaner is None else max(start, min(cleaner, end))
        )
        return PartitionCopy(start, end, self.copied, self.reused, gaps_of(self.losses)), known

    # ---- segments ------------------------------------------------------------------------------------------

    def _sealed(self, parts: Sequence[Part]) -> dict[str, Identity]:
        """The parts that are whole segments of the source and take no more appends, by stem."""
        found = {}
        for part in parts[:-1]:
            if part.is_whole and not part.segment.origin:
                identity = identity_of(part.segment.file())
                if identity[1] == part.segment.size:
                    found[layout.segment_stem(part.base_offset)] = identity
        return found

    def _copy_part(self, part: Part, stop: int, sealed: Identity | None) -> None:
        stem = layout.segment_stem(part.base_offset)
        if sealed is not None and self.destination.reuse(self.name, stem, sealed):
            self.reused += part.segment.size
            self.destination.advance(part.segment.size)
            return
        file, losses = part.segment.file(), len(self.losses)
        self._copy_bytes(part, stop, file)
        self.copied += part.end - part.position
        # else a later run would not report the losses
        if sealed == identity_of(file) and len(self.losses) == losses:
            self.destination.note(self.name, f"{stem}.log", sealed)

    def _copy_bytes(self, part: Part, stop: int, file: File) -> None:
        """Makes the files of a segment."""
        segment, target = part.segment, self.target
        stem = layout.segment_stem(part.base_offset)
        draft = new_log(target, part.base_offset, segment.path)
        origin = segment.origin + part.position
        size = part.end - part.position
        if origin == 0:
            draft.begin_as(file, size)
            self.destination.advance(size)
        for position in range(0, size if origin else 0, _PIECE):
            piece = file.read(origin + position, min(_PIECE, size - position))
            draft.write(position, piece)
            self.destination.advance(len(piece))
        if part.cut is not None:
            tail = first_records(part.cut, stop)
            draft.write(size, tail)
            size += len(tail)
        made = self._segment(part)
        if self.wanted.leader_epoch is not None:
            _put_leader_epoch(made, draft, self.wanted.leader_epoch)
        walk = made.recovery_walk()
        if walk.error is not None or walk.valid_bytes < size:
            if self.wanted.on_error != "skip":
                raise _in_source(walk.error, segment.path, origin)
            self._leave_damage_out(made, draft, segment.path, origin)
            made = self._segment(part)
            walk = made.recovery_walk(verify=False)
        transactions = TransactionIndex(part.base_offset)
        for aborted in segment.transaction_index:
            if part.base_offset <= aborted.last_offset < stop:
                transactions.append(aborted)
        indexes = walk.offset_index, walk.time_index, transactions
        cleaned = complete(target, part.base_offset, draft, segment.mtime_ms(), indexes, walk.max_timestamp)
        for kind in reversed(cleaned.kinds):  # the .log last: with it the segment is there
            rename(f"{target}/{stem}{kind}{CLEANED}", f"{target}/{stem}{kind}")

    def _segment(self, part: Part) -> Segment:
        """The segment that is being made. Batches with the offsets of the next one are damage."""
        stem = layout.segment_stem(part.base_offset)
        interval = options_of(self.source, self.wanted).get("index.interval.bytes", INDEX_INTERVAL_BYTES)
        return Segment(
            self.target,
            stem,
            part.base_offset,
            part.segment.end_offset,
            suffixes={kind: CLEANED for kind in layout.SEGMENT_KINDS},
            index_interval_bytes=int(interval),
        )

    def _leave_damage_out(self, made: Segment, draft: File, path: str, origin: int) -> None:
        """Keeps the sound batches of a draft only."""
        at = 0
        reader = BatchReader((made,), 0, MAX64, on_error="skip")
        for batch in reader:
            data = batch.data
            if batch.position != at:
                draft.write(at, data)
            at += len(data)
        tail = draft.size() - at - sum(skipped.size for skipped in reader.skipped)
        draft.truncate(at)
        if tail:
            text = f"{path}: {tail} bytes at its end, which hold no whole batch, were left out"
            self.losses.append(Loss(text, made.base_offset, made.end_offset))
        for skipped in reader.skipped:
            position, size = origin + skipped.position, skipped.size
            error = _in_source(skipped.error, path, origin)
            text = f"{path}: {size} bytes at byte {position} were left out: {error}"
            self.losses.append(Loss(text, made.base_offset, made.end_offset))

    def _begin_empty(self, base_offset: int) -> None:
        stem = layout.segment_stem(base_offset)
        for kind in (".log", ".index", ".timeindex"):
            write_whole(f"{self.target}/{stem}{kind}", b"")

    # ---- what lies beside ----------------------------------------------------------------------------------

    def _read_snapshots(self, segments: Iterable[Segment]) -> dict[int, bytes]:
        """The sound snapshots of producers where these segments begin."""
        found = {}
        for segment in segments:
            name = f"{layout.segment_stem(segment.base_offset)}.snapshot"
            with contextlib.suppress(FileNotFoundError, CorruptFileError):
                data = read_whole(f"{segment.directory}/{name}")
                checked_count(data, name)
                found[segment.base_offset] = data
        return found

    def _write_snapshots(self, snapshots: dict[int, bytes], start: int, stop: int) -> None:
        for base, data in snapshots.items():
            if start < base <= stop:
                name = f"{layout.segment_stem(base)}.snapshot"
                write_whole(f"{self.target}/{name}", data)


def _begun(epochs: LeaderEpochs, segments: Sequence[Segment], start: int) -> LeaderEpochs:
    """Leader epochs that begin with that of the first batch."""
    if epochs.entries and epochs.entries[0][1] <= start:
        return epochs
    for segment in segments:
        if (found := segment.translate(start)) is not None:
            first = segment.batch_at(found.position).leader_epoch
            later = [entry for entry in epochs.entries if entry[0] > first]
            return LeaderEpochs([(first, start), *later] if first >= 0 else later)
    return epochs


def _put_leader_epoch(segment: Segment, draft: File, epoch: int) -> None:
    """Writes a leader epoch into the batches of a draft, in a field that no checksum covers."""
    headers = segment.read_headers(0, ["position", "leader_epoch", "magic"])
    for position in headers["position"][
        (headers["leader_epoch"] != epoch) & (headers["magic"] == 2)
    ].tolist():
        draft.write(position + _LEADER_EPOCH_AT, epoch.to_bytes(4, "big"))


def _in_source(error: Exception | None, path: str, origin: int) -> Exception:
    """An error about a draft, as one about the file that was copied."""
    if not isinstance(error, CorruptRecordError):
        return error or CorruptRecordError("end of a segment", file=path, position=origin)
    return CorruptRecordError(
        error.reason,
        file=path,
        position=origin + (error.position or 0),
        expected=error.expected,
        found=error.found,
    )
