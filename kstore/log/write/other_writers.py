"""What a writer of a shared log takes in of the others, and how it leaves them."""

from __future__ import annotations

from kstore.errors import KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.manifest import ManifestFile
from kstore.log.producers.manager import ProducerStateManager
from kstore.log.segments.truncation import complete_truncation
from kstore.log.write.recovering import finish_work, recovered, with_producers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from kstore.engine.segment.active_segment import ActiveSegment
    from kstore.log.segments.sealed_segments import SealedSegments
    from kstore.log.segments.segment_set import SegmentSet


class OtherWriters:
    """What `LogEnd.share` calls when other processes have changed a shared log."""

    def __init__(
        self, segments: SegmentSet, options: Mapping[str, Any], reload_options: Callable[[], None]
    ) -> None:
        self._segments = segments
        self._options = options
        self._reload_options = reload_options

    def reload(self, active_base: int) -> tuple[SealedSegments, ActiveSegment]:
        """They have changed more than the end of the log: its segments now. OSError, CorruptFileError;
        LogFailedError if another program has removed a file."""
        log = self._segments
        try:
            found = log.reload(active_base)
        except FileNotFoundError as e:  # the others recover what is there, when this process has told them
            log.log_end.refuse(log.lease.fate if log.lease.is_moved else f"{e.filename} was removed")
            log.log_end.check_usable()
            raise
        self._reload_options()
        return found

    def recover(self, base_offset: int, log_start_offset: int) -> None:
        """One of them has died in a change: the log is recovered from a segment on, as an opening would do
        it. What is before was not touched, unless it was to be truncated. OSError, CorruptFileError."""
        log = self._segments
        if log.lease.is_moved:  # another log may be there
            log.log_end.refuse(log.lease.fate)
            return
        finish_work(log.directory, log.lease, log.reports)
        manifest = ManifestFile(log.directory)
        known = manifest.known.truncations
        # segments before may be gone; if all are to go, any of them
        if known.number != log.log_end.generation:
            base_offset = min(base_offset, 0 if known.pending == "all" else known.offset)
            # it may be carried out, and have lowered the log start, of which this process was not told
            log_start_offset = min(log_start_offset, known.offset)
        # what the checkpoints and the program said at the opening is over
        log.lease.state = log.lease.state._replace(
            clean=False, recovery_point=base_offset, log_start_offset=log_start_offset
        )
        options = {**self._options, "clean": None, "recovery_point": None, "log_start_offset": None}
        loaded = recovered(log.lease, manifest, log.config, options, is_alone=False)
        producers = ProducerStateManager(log.directory, self._options["producer_id_expiration_ms"])
        epochs = with_producers(log.directory, loaded, producers, log.clock_ms())
        log.begin_anew(loaded, producers, epochs, manifest)
        if manifest.known.truncations.pending:
            complete_truncation(log)
        log.log_end.generation = manifest.known.truncations.number
        self._reload_options()

    def reload_producers(self, *, anew: bool, have_appended: bool) -> None:
        """They have changed segments, or their producers have appended; anew: records were perhaps removed
        from the end. OSError, CorruptRecordError."""
        self._segments.reload_producers(anew=anew, have_appended=have_appended)


def begin_to_leave(segments: SegmentSet) -> tuple[bool, Exception | None]:
    """Whether this process is the last one that has a shared log open: then it closes the log, else what was
    appended is brought to the disk now. The second value is the error of that."""
    session, end = segments.lease.session, segments.log_end
    if session is None or session.end is None:
        return True, None
    is_last = session.leave()
    if end.is_closed:  # closing was interrupted, and other processes may have written since
        return is_last and not end.is_behind, None
    is_refused = end.refusal is not None
    try:
        if is_last:
            with end.held():  # what others have left is taken in
                pass
        else:
            segments.flush()
    except (OSError, KstoreError) as e:
        if is_last:
            end.refuse(f"what other processes have written could not be read: {e}")
        return is_last, None if is_refused or end.is_deleted else e
    return is_last, None
