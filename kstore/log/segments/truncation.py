"""Truncating a log that is open for writing (spec 8.9)."""

from __future__ import annotations

from kstore.engine.io.directory import sync_directory
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import delete_file
from kstore.log.segments.sealed_segments import SealedSegments
from kstore.log.segments.segment_truncation import truncate_segment

if TYPE_CHECKING:
    from kstore.log.segments.segment_set import SegmentSet


def truncate_to(log: SegmentSet, offset: int) -> bool:
    """Removes the records from an offset to the end, durably; False if there are none. `log_end.held()`.

    If the process dies meanwhile, the next opening for writing completes it. OSError: nothing is changed, or
    the log refuses to write.
    """
    end, now_ms = log.log_end, log.clock_ms()
    before = end.offset
    # up to where readers of committed records may have read: before a crash, up to the end
    stable = before if log.manifest.known.truncations.pending else log.last_stable_offset()
    if offset >= before:
        log.epochs.truncate_from_end(before)
        end.move(before, before)  # the next batch notes its epoch again
        return False
    if log.offsets.first_base > offset:
        start_at(log, offset)
        return True
    with end.unfinished(f"the truncation to {offset}") as change:
        try:
            log.offsets.lower_recovery_point(offset)
            log.lease.lower_cleaner_offset(offset)
            log.lease.lower_high_watermark(offset)
            log.manifest.expect(offset)
        except OSError:
            change.undone()
            raise
        _truncate(log, offset, now_ms, stable)
    log.reports.info("%s: truncated: removed offsets %d to %d (exclusive)", log.directory, offset, before)
    return True


def start_at(log: SegmentSet, offset: int, log_start_offset: int | None = None) -> None:
    """Removes all records, durably. The next one gets `offset`. `log_end.held()`.

    OSError: nothing is changed, or the log refuses to write.
    """
    end, offsets = log.log_end, log.offsets
    now_ms = log.clock_ms()
    with end.unfinished(f"starting again at offset {offset}") as change:
        try:
            # If a crash leaves no file, this is all that is known: it must not begin at 0, nor miss anything.
            point = min(end.recovery_point, offset, offsets.first_base)
            offsets.write(point, offsets.start)
            log.lease.lower_cleaner_offset(offset)
            log.lease.lower_high_watermark(offset)
            log.manifest.expect(offset, "all")
        except OSError:
            change.undone()
            raise
        end.active.seal()
        # Before the segments go: an opening begins there, whatever segments a crash has left, and gives out
        # no offset below.
        offsets.write(point, max(offset, offsets.start))
        _remove_newest(log, len(end.sealed) + 1, now_ms)
        active = log.make_active(layout.segment_stem(offset), offset, now_ms, offset)
        end.publish(SealedSegments(), active)
        end.move(offset, offset)
        offsets.start = offset if log_start_offset is None else log_start_offset
        log.epochs.clear()
        log.producers.snapshots.clear()
        log.producers.begin_anew(log.snapshot(), now_ms)
        log.manifest.carry_out(log.last_stable_offset())
        sync_directory(log.directory)
        offsets.store_lowered_start()
        log.store_truncations()
    log.reports.info("%s: truncated: removed all records, and goes on at offset %d", log.directory, offset)


def complete_truncation(log: SegmentSet) -> None:
    """Carries out a truncation that a process which died has left; ends one that recovery has begun."""
    known = log.manifest.known.truncations
    if known.pending == "all":
        start_at(log, known.offset)
    elif known.pending and not truncate_to(log, known.offset):  # the log ends there, or before
        log.manifest.carry_out(log.last_stable_offset())
        log.store_truncations()


def _truncate(log: SegmentSet, offset: int, now_ms: int, stable: int) -> None:
    end, offsets = log.log_end, log.offsets
    segments = log.snapshot().segments
    kept = [segment for segment in segments if segment.base_offset <= offset]
    if len(kept) < len(segments):
        end.active.seal()
        # if compaction has emptied its end, it must tell where the log ends, before it is the last one
        if kept[-1].translate(offset) is None:
            kept[-1] = truncate_segment(kept[-1], offset, log.make_segment())
        # Before the last one is shortened: what a crash leaves at any moment has no gap.
        _remove_newest(log, len(segments) - len(kept), now_ms)
    delete_file(kept[-1].path_of(layout.KEYS))
    rest = truncate_segment(kept[-1], offset, log.make_segment())
    active = log.make_active(rest.stem, rest.base_offset, now_ms, offset, rest)
    active.prepare_indexes()
    end.publish(SealedSegments(kept[:-1]), active)
    end.move(offset, offset)
    is_lowered = offset < offsets.start
    offsets.start = min(offsets.start, offset)
    log.epochs.truncate_from_end(offset)
    log.producers.begin_anew(log.snapshot(), now_ms)
    stable_now = log.last_stable_offset()
    # a transaction that was open before was not read: only one that is open again matters
    log.manifest.carry_out(stable_now if stable_now < stable else offset)
    if is_lowered:  # not before: what lies between was deleted, and is gone only now
        offsets.store_lowered_start()
    log.store_truncations()


def _remove_newest(log: SegmentSet, count: int, now_ms: int) -> None:
    """Takes segments out of the directory, the last one first, on the disk too: what is left at any moment is
    a log."""
    due = now_ms + log.config.file_delete_delay_ms
    for segment in reversed(log.snapshot().segments[-count:]):
        log.deleted.set_aside(segment, due)
        log.set_rest_aside(segment, due)
        sync_directory(log.directory)
