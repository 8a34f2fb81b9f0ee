"""The segments of a log that is open for writing: rolling, deleting, taking over a file."""

from __future__ import annotations

import contextlib
import os
from itertools import pairwise

from kstore.arguments import MAX64
from kstore.engine.io.directory import sync_directory, unlink
from kstore.engine.io.file import is_crowded, open_files
from kstore.engine.segment.active_segment import ActiveSegment
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import delete_file, list_directory, read_directory
from kstore.log.later import later
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.segments.cleaned import SWAP
from kstore.log.segments.deleted_segments import SUFFIX as DELETED
from kstore.log.segments.deleted_segments import DeletedSegments
from kstore.log.segments.sealed_segments import SealedSegments
from kstore.log.segments.stored_offsets import StoredOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import randrange

    from kstore.config import LogConfig
    from kstore.engine.append.log_end import LogEnd
    from kstore.engine.io.file import File
    from kstore.engine.segment.segment import Segment
    from kstore.log.files.leader_epochs import LeaderEpochCheckpoint
    from kstore.log.files.log_directory import PartitionLease
    from kstore.log.files.manifest import ManifestFile
    from kstore.log.producers.manager import ProducerStateManager
    from kstore.log.producers.transactions import Transactions
    from kstore.log.recovery.loader import Loaded
    from kstore.log.segments.rebase_segment import AdoptedFile
    from kstore.log.segments.reports import Reports
else:
    later(globals(), {"random": "randrange", "kstore.log.segments.rebase_segment": "AdoptedFile"})


def _nothing() -> None:
    pass


class SegmentSet:
    """The segments of a log, and what is kept for each: indexes, producer snapshots, leader epochs.

    Nothing else renames, shortens or removes files of the log. Each change is called with `log_end.held()`
    and ends by publishing the segments that there are then. Whatever breaks a change off in its middle leaves
    a log that refuses to write (`LogEnd.unfinished`).
    """

    def __init__(
        self,
        log_end: LogEnd,
        lease: PartitionLease,
        loaded: Loaded,
        config: LogConfig,
        *,
        max_decompressed_bytes: int,
        clock_ms: Callable[[], int],
        producers: ProducerStateManager,
        epochs: LeaderEpochCheckpoint,
        manifest: ManifestFile,
        reports: Reports,
    ) -> None:
        self.directory = str(lease.path)
        self.log_end = log_end
        self.lease = lease
        self.config = config
        self.max_decompressed_bytes = max_decompressed_bytes
        self.clock_ms = clock_ms
        self.producers = producers
        self.epochs = epochs
        self.manifest = manifest
        self.reports = reports
        self.recovery = loaded.recovery
        self.deleted = DeletedSegments()
        log_end.generation = manifest.known.truncations.number
        self.offsets = StoredOffsets(lease, log_end, loaded.log_start_offset, loaded.recovery.recovery_point)
        self.on_roll: Callable[[], None] = _nothing  # after a segment was sealed
        # Without segments: those that are deleted later must not stay open for being kept here.
        self._loaded = loaded.replace(segments=())
        self._shown: tuple[tuple[object, ...], Loaded] = ((), self._loaded)

    def open(self, loaded: Loaded, now_ms: int, *, prepares_indexes: bool) -> None:
        """Begins to append behind these segments. OSError."""
        end, segments = loaded.log_end_offset, loaded.segments
        if self.lease.session is not None:
            for segment in segments:  # another process may replace or delete it
                segment.files.remember()
        if segments:
            last = segments[-1]
            active = self.make_active(last.stem, last.base_offset, now_ms, end, last)
            if prepares_indexes:
                active.prepare_indexes()
            delete_file(last.path_of(layout.KEYS))  # it was sealed once
        else:
            active = self.make_active(layout.segment_stem(end), end, now_ms, end)
        if loaded.recovery.clean:
            durable = end
            owed: list[File | str] = []
        else:
            # What lies behind the recovery point may be in the page cache only, whoever wrote it.
            durable = min(loaded.recovery.recovery_point, end)
            owed = [s.path for s in segments if s.end_offset > durable]
        self.log_end.owe_sync([*owed, *self.producers.snapshots.unsynced], True)
        self.log_end.open(SealedSegments(segments[:-1]), active, end, max(durable, 0))

    # ---- what there is -------------------------------------------------------------------------------------

    def snapshot(self) -> Loaded:
        """The log at this moment, or as it was when it was closed. Takes no lock, unless another process has
        changed the log."""
        self.log_end.look()
        held = self.log_end.segments
        view = held[1].view()
        start, epochs, truncations = self.offsets.start, self.epochs.epochs, self.manifest.known.truncations
        shown, loaded = self._shown  # taken and stored as one: other threads do the same meanwhile
        if (
            shown
            and shown[0] is held
            and shown[1] is view
            and shown[2] == start
            and (shown[3] is epochs or shown[3] == epochs)
            and shown[4] is truncations
        ):
            return loaded
        segment, end = view
        loaded = self._loaded.replace(
            segments=held[0].and_then(segment),
            origin=held[0].origin,
            log_start_offset=start,
            log_end_offset=max(end, start),
            leader_epochs=epochs,
            truncations=truncations,
        )
        self._shown = ((held, view, start, epochs, truncations), loaded)
        return loaded

    def bounds(self) -> tuple[int, int]:
        """Where the log starts and ends at this moment. Unlike `snapshot` this looks at no segment but the
        active one."""
        self.log_end.look()
        _, end = self.log_end.segments[1].view()
        start = self.offsets.start
        return start, max(end, start)

    def sealed(self) -> list[Segment]:
        """The segments before the active one."""
        sealed: SealedSegments = self.log_end.sealed
        return sealed.first(len(sealed))

    def transactions(self) -> Transactions:
        """The producers and the transactions of the log."""
        return self.producers.transactions(*self.bounds())

    def committed(self) -> tuple[Loaded, Transactions]:
        """The log and its transactions at one moment. Takes no lock.

        Compaction removes no record below the last stable offset for one above it, and what ended a
        transaction below it is in the segments. So as long as that offset stays, both fit each other.
        """
        while True:
            known = self.transactions()
            now = self.snapshot()
            if self.last_stable_offset() == known.last_stable_offset:
                return now, known

    def last_stable_offset(self) -> int:
        """Where readers of committed records must stop."""
        return self.producers.last_stable_offset(*self.bounds())

    def check_place(self) -> None:
        """LogFailedError if the directory is no longer where it was: another log may be there by now."""
        if self.lease.is_moved:
            self.log_end.refuse(self.lease.fate)
        self.log_end.check_usable()

    def lost_files(self) -> str:
        """What other programs have removed under the open log, in words; "" for nothing."""
        now = self.snapshot()
        if self.lease.is_moved:
            self.log_end.refuse(self.lease.fate)
            offsets = f"{now.log_start_offset} to {now.log_end_offset} (exclusive)"
            return f"{self.lease.fate} while it was open: offsets {offsets} are no longer at this path"
        if self.log_end.is_behind:  # other processes go on, and may have removed segments
            return ""
        gone = [segment for segment in now.segments if not os.path.lexists(segment.path)]
        if not gone or any(name.endswith(SWAP) for name in list_directory(self.directory)):
            return ""  # of a compaction that broke off: the next opening finds all there
        more = f", the first of {len(gone)} such files" if len(gone) > 1 else ""
        end = min(gone[0].end_offset, now.log_end_offset)
        offsets = f"{gone[0].base_offset} to {end} (exclusive)"
        return f"{gone[0].path}, with offsets {offsets}, was removed while it was open{more}"

    # ---- making segments -----------------------------------------------------------------------------------

    def make_segment(self) -> SegmentFactory:
        """Makes segments of this log as its configuration is now."""
        return SegmentFactory(self.directory, self.config.index_interval_bytes, self.max_decompressed_bytes)

    def make_active(
        self,
        stem: str,
        base_offset: int,
        now_ms: int,
        next_offset: int,
        segment: Segment | None = None,
        *,
        joined: bool = False,
    ) -> ActiveSegment:
        """A segment that is appended to from `next_offset` on: a new one, or one that is there. `joined`: one
        that other processes append to. OSError."""
        config = self.config
        jitter = min(config.segment_jitter_ms, config.effective_segment_ms)
        made = ActiveSegment(
            self.directory,
            stem,
            base_offset,
            segment=segment,
            next_offset=next_offset,
            created_ms=now_ms,
            roll_jitter_ms=randrange(jitter) if jitter else 0,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=config.segment_index_bytes,
            segment_bytes=config.effective_segment_bytes,
            max_decompressed_bytes=self.max_decompressed_bytes,
            preallocate=config.preallocate,
            joined=joined,
        )
        if self.lease.session is not None:  # the others map the index files
            made.prepare_indexes()
        return made

    # ---- rolling -------------------------------------------------------------------------------------------

    def roll(self, reason: str, first_offset: int) -> None:
        """Seals the active segment and begins the next (spec 5.3), unless the active one is empty and begins
        there. Where that fails, the active one stays what it was."""
        end = self.log_end
        base = max(first_offset, end.offset)
        if self.lease.is_moved:  # that it is usable was looked at before; an append may be half done
            self.check_place()
        old, now_ms = end.active, self.clock_ms()
        if base == old.base_offset:
            if old.size == 0:
                return
            raise CorruptRecordError(
                "offset at which the last segment ends",
                file=old.path,
                position=0,
                expected=f"above {base}",
                found=base,
            )
        if base < old.base_offset:
            self._begin_lower(base, now_ms)
            return
        if end.owed_count >= max(8, min(64, open_files()[1] // 4)):
            end.sync_owed()  # each of them is open: on a slow disk appending waits
        self._begin(base, now_ms)
        if is_crowded():  # with many writers, even a few open files each are too many
            end.sync_owed()
        self.reports.info("%s: a segment begins at offset %d (%s)", self.directory, base, reason)
        self.on_roll()

    def _begin(self, base: int, now_ms: int) -> None:
        end, old = self.log_end, self.log_end.active
        stem = layout.segment_stem(base)

        def undo() -> bool:
            unlink(f"{self.directory}/{stem}.log", missing_ok=True)
            old.unseal()
            return True

        with end.unfinished(f"the roll at offset {base}", undo=undo) as change:
            if self.offsets.is_below_recovery_point(base):
                # no opening would look at the old one, whose new length is not on the disk
                self.offsets.lower_recovery_point(old.base_offset)
            for kind in layout.SEGMENT_KINDS:
                unlink(f"{self.directory}/{stem}{kind}", missing_ok=True)
            if old.size == 0:  # as in Kafka, a sealed segment has index files
                old.prepare_indexes()
            old.seal()
            active = self.make_active(stem, base, now_ms, end.offset)
            self.producers.write_snapshot(base)
            sealed = old.sealed(base)
            if self.lease.session is not None:  # another process may delete it
                sealed.files.remember()
            files: list[File | str] = [*old.files()]
            if base in self.producers.snapshots:
                files.append(self.producers.snapshots.path_of(base))
            change.undo = None
            end.owe_sync(files, True, old.base_offset)
            end.publish(end.sealed.with_one_more(sealed), active)

    def _begin_lower(self, base: int, now_ms: int) -> None:
        """Begins the active segment, which is empty, at a lower offset: the append with a gap that it was
        begun for has failed."""
        end, old = self.log_end, self.log_end.active
        with end.unfinished(f"the roll at offset {base}"):
            active = self.make_active(layout.segment_stem(base), base, now_ms, end.offset)
            end.publish(end.sealed, active)
            for kind in layout.SEGMENT_KINDS:
                unlink(old.path_of(kind), missing_ok=True)
            end.owe_sync([], True)

    def adopt(self, path: str, leader_epoch: int) -> range:
        """Moves a .log file that another log has written to the end of this one; its new offsets. What is in
        the active segment is durable before. ValueError, CorruptRecordError, InvalidRecordError, OSError."""
        end = self.log_end
        base, now_ms = end.offset, self.clock_ms()
        adopted = AdoptedFile(path)
        if end.durable_offset < base:
            try:
                end.active.sync(indexes=False)
            except OSError as e:
                end.refuse(f"a sync failed: {e}")
                raise
        self.roll("adopted", base)
        self.epochs.assign(leader_epoch, base)
        empty = end.active
        # if it cannot be put back, the next opening goes on
        with end.unfinished(f"taking over {path} as {empty.path}", undo=adopted.put_back) as change:
            found = adopted.become(self.directory, base, leader_epoch, self.config.index_interval_bytes)
            change.undo = None
            segment = self.make_segment()(empty.stem, base)
            segment.use_indexes(found.offset_index, found.time_index)
            segment.set_max_timestamp(found.max_timestamp)
            active = self.make_active(empty.stem, base, now_ms, found.next_offset, segment)
            active.prepare_indexes()
            self.producers.enter((), active.append_aborted, found.next_offset)
            end.owe_sync([], True)
            end.publish(end.sealed, active)
            end.move(found.next_offset, base)
        return range(base, found.next_offset)

    # ---- deleting ------------------------------------------------------------------------------------------

    def delete_oldest(self, count: int, now_ms: int) -> None:
        """Deletes so many segments; the active one, if it is among them, once those before it have made
        room. Files get the suffix .deleted, and go after file_delete_delay_ms. OSError: older segments are
        deleted then, the one whose file cannot be renamed and newer ones are not."""
        sealed = min(count, len(self.log_end.sealed))
        if sealed:
            self._delete_sealed(sealed, now_ms)
        if count > sealed:
            self.deleted.unlink(now_ms)
            self.roll("retention", self.log_end.offset)  # a new one must be there first
            self._delete_sealed(1, now_ms)

    def _delete_sealed(self, count: int, now_ms: int) -> None:
        end = self.log_end
        failure: OSError | None = None
        gone: list[Segment] = []
        due = now_ms + self.config.file_delete_delay_ms
        # a power cut must not leave a log that ends, or begins, before the active one
        sync_directory(self.directory)
        with end.unfinished("the deletion of segments"):
            for segment in end.sealed.first(count):
                try:
                    self.deleted.set_aside(segment, due)
                except OSError as e:
                    failure = e
                    break
                gone.append(segment)
            kept = end.sealed.without_first(len(gone))
            # the start first: readers must not miss records that the log still seems to begin with
            self.offsets.start = max(self.offsets.start, (kept[0] if kept else end.active).base_offset)
            end.publish(kept, end.active)
            end.owe_sync([], True)
            if gone:
                sync_directory(self.directory)  # without its other files no log must come back
            for segment in gone:
                self.set_rest_aside(segment, due)
        if end.traffic is not None:
            end.traffic.add(4, len(gone))
        for segment in gone:
            text = "%s: retention deleted the segment of offsets %d to %d (exclusive)"
            self.reports.info(text, self.directory, segment.base_offset, segment.end_offset)
        if failure is not None:
            raise failure

    def store_deletion(self) -> None:
        """Brings to the disk what follows from a deletion, as far as there is room: an opening would find it
        out."""
        self.epochs.truncate_from_start(self.offsets.start)
        with contextlib.suppress(OSError):
            # before the log start may be forgotten, as the first segment tells it
            sync_directory(self.directory)
            self.offsets.store()

    def set_rest_aside(self, segment: Segment, due_ms: int) -> None:
        """Takes the other files of a segment whose .log was set aside out of the log, and its snapshot."""
        snapshot = self.producers.snapshots.set_aside(segment.base_offset)
        self.deleted.set_rest_aside(segment, snapshot, due_ms)

    def store_truncations(self) -> None:
        """A truncation is complete. OSError."""
        self.manifest.store()
        self.log_end.generation = self.manifest.known.truncations.number

    def delete_records(self, offset: int) -> None:
        """Makes an offset within the log its start, durably. OSError."""
        with self.log_end.unfinished(f"the deletion of records before {offset}") as change:
            try:
                self.offsets.write(self.log_end.recovery_point, offset)
            except OSError:
                change.undone()
                raise
            self.offsets.start = offset
            self.epochs.truncate_from_start(offset)
        self.reports.info("%s: deleted the records before offset %d", self.directory, offset)

    # ---- bringing to the disk ------------------------------------------------------------------------------

    def flush(self) -> int:
        """Brings all that was appended to the disk, without `log_end.held()`; the offset up to which it is
        there. OSError, LogFailedError."""
        if self.lease.is_moved or self.log_end.refusal is not None:  # no opening finds what is synced there
            with self.log_end.held():  # after a change that is under way
                self.check_place()
        self.log_end.look()
        self.log_end.wait_until_durable(self.log_end.offset)
        self.advance_recovery_point()
        return self.log_end.durable_offset

    def advance_recovery_point(self) -> None:
        """Stores the recovery point, if an opening would have to recover whole segments without."""
        if not self.offsets.is_behind():
            return
        if self.log_end.recovery_point < self.log_end.active.base_offset:
            self.log_end.sync_sealed()
        with self.log_end.held():  # no other thread truncates or deletes records meanwhile
            self.check_place()
            self.offsets.store()

    # ---- other processes -----------------------------------------------------------------------------------

    def begin_anew(
        self,
        loaded: Loaded,
        producers: ProducerStateManager,
        epochs: LeaderEpochCheckpoint,
        manifest: ManifestFile,
    ) -> None:
        """Goes on with a log that was recovered because another process has died in a change. OSError."""
        self.producers, self.epochs, self.manifest = producers, epochs, manifest
        self._loaded = loaded.replace(segments=())
        self.open(loaded, self.clock_ms(), prepares_indexes=True)
        self._owe_sync_of_others(loaded.segments[:-1])  # recovery has looked at the last ones only
        self.offsets.start = loaded.log_start_offset
        self.offsets.forget_written()

    def reload(self, active_base: int) -> tuple[SealedSegments, ActiveSegment]:
        """The segments that other processes have made and left, for `LogEnd.follow`. Those before the one of
        this base offset are sealed. OSError."""
        end, known = self.log_end, self.sealed()
        before = self.manifest.known.truncations
        self.manifest.reload()
        is_truncated = self.manifest.known.truncations != before
        if is_truncated:  # the same offsets, perhaps, with other records
            known = []
        bases, *_ = read_directory(self.directory, (".log",))
        bounds = pairwise([*sorted(base for base in bases if base < active_base), active_base])
        known_at = {segment.base_offset: segment for segment in known}
        make = self.make_segment()
        found, reused = [], set[int]()
        for base, stop in bounds:
            segment = known_at.get(base)
            if segment is None or segment.end_offset != stop or segment.files.is_replaced():
                segment = make(layout.segment_stem(base), base, None, stop)
                segment.files.remember()  # another process may delete it
            else:
                reused.add(base)
            found.append(segment)
        kept = [segment for segment in known if segment.base_offset in reused]
        is_grown = found[: len(kept)] == kept and kept == known[len(known) - len(kept) :]
        active = end.active
        if active is None or active.base_offset != active_base or not active.is_at_its_name():
            active = self.make_active(
                layout.segment_stem(active_base), active_base, self.clock_ms(), -1, joined=True
            )
        self._owe_sync_of_others(found)
        self.epochs.reload()
        self.producers.reload_snapshots()
        self.offsets.forget_written()
        return SealedSegments(found, end.sealed.origin if is_grown and not is_truncated else None), active

    def _owe_sync_of_others(self, sealed: Sequence[Segment]) -> None:
        """The next sync brings to the disk what others have sealed, from the stored recovery point on."""
        owed = [segment for segment in sealed if segment.end_offset > self.log_end.stored]
        paths = [segment.path_of(kind) for segment in owed for kind in (".log", *layout.INDEX_KINDS)]
        self.log_end.owe_sync_of_others(paths, owed[0].base_offset if owed else MAX64)

    def reload_producers(self, *, anew: bool, have_appended: bool) -> None:
        """Takes in what the producers of other processes have appended, if they have. OSError,
        CorruptRecordError."""
        end = self.log_end
        end.active.load_transactions()
        self._shown = (), self._loaded
        self.producers.reload(self.snapshot(), anew=anew, have_appended=have_appended)

    def close_cleanly(self) -> None:
        """Leaves the files as a broker's clean shutdown does. OSError."""
        end = self.log_end
        end.active.prepare_indexes()
        end.active.seal()
        if end.offset > self.offsets.start:
            self.producers.write_snapshot(end.offset, durable=True)
        self.epochs.store()
        end.owe_sync([*end.active.files()], True)
        end.sync_owed()
        self.deleted.unlink(MAX64)
        if self.lease.session is not None:  # other processes have died, or left them to the last one
            for name in list_directory(self.directory):
                if name.endswith(DELETED):
                    unlink(f"{self.directory}/{name}", missing_ok=True)
        sync_directory(self.directory)
        self.offsets.store(end.offset)
        self.lease.store_high_watermark(end.offset)
