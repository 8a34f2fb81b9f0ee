"""Opening a log for writing: the plan of recovery is carried out, and the segments are made ready."""

from __future__ import annotations

import contextlib
import errno
import os
import time

from kstore.arguments import integer, warn
from kstore.config import LogConfig, changed, given_in_text, in_python
from kstore.engine.io.directory import make_directory
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochCheckpoint, LeaderEpochs
from kstore.log.files.log_dir_state import directory_of, is_led
from kstore.log.files.log_directory import PartitionLease
from kstore.log.files.manifest import ManifestFile
from kstore.log.later import later
from kstore.log.producers.manager import ProducerStateManager
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.presence import not_found
from kstore.log.recovery.report import Gaps, Recovery
from kstore.log.segments.reports import Reports
from kstore.log.segments.sealed_segments import SealedSegments
from kstore.log.segments.segment_set import SegmentSet
from kstore.log.write.recovering import finish_work, recovered, with_producers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any
    from uuid import UUID

    from kstore.engine.append.log_end import LogEnd
    from kstore.engine.io.traffic import Traffic
    from kstore.log.files.shared_session import require_local
    from kstore.log.recovery.gaps import still_missing
    from kstore.log.write.other_writers import OtherWriters
    from kstore.typed import StrPath
else:
    later(
        globals(),
        {
            "kstore.log.files.shared_session": "require_local",
            "kstore.log.recovery.gaps": "still_missing",
            "kstore.log.write.other_writers": "OtherWriters",
        },
    )


class OwnWork(NamedTuple):
    """What a log that is open for writing does itself; a store does the rest for its logs. `flushes`: by
    flush_ms. `prepares_indexes`: gives index files their room when it is opened, as Kafka does, not at the
    first append. `traffic`: counts what the log reads and writes."""

    flushes: bool = True
    makes_key_files: bool = True
    prepares_indexes: bool = True
    traffic: Traffic | None = None


ALL_WORK = OwnWork()


class KeptConfig(NamedTuple):
    """The configuration of a log is what is kept of it, with these changes, which are kept, too, if
    `keeps`."""

    changes: Mapping[str, Any]
    keeps: bool

    def changed(self, options: Mapping[str, str]) -> LogConfig:
        """The configuration, where these options are kept, in Kafka's notation. InvalidConfigError."""
        return changed(LogConfig(**in_python(options)), self.changes)


def take_directory(lease: PartitionLease, given: StrPath, *, create: bool) -> None:
    """Locks the directory of a log, which is made if it is not there. After any exception the caller leaves
    the lease. LogNotFoundError, LogLockedError, OSError; KstoreError if it is to be shared and is on a file
    system of the network."""
    directory = lease.path
    if lease.session is not None:
        require_local(directory, directory_of(directory))
    if os.path.isdir(directory):
        lease.take()
        return
    if not create:
        raise not_found(given)
    make_directory(directory)
    with contextlib.ExitStack() as undo:  # an empty directory would be a partition that was never closed
        undo.callback(_remove_empty, directory)
        undo.callback(lease.leave, clean=False)
        lease.take()
        undo.pop_all()


def _remove_empty(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def check_leader_epoch(directory: StrPath, epoch: int | None) -> None:
    """ValueError for a leader epoch below the newest one that the checkpoint of a log has."""
    if epoch is not None:
        with contextlib.suppress(OSError, CorruptFileError):  # the opening reports it
            known = checkpoints.read_epochs(f"{directory}/{layout.LEADER_EPOCHS}")
            refuse_lower_epoch(directory, epoch, max((each for each, _ in known), default=None))


def refuse_lower_epoch(directory: StrPath, epoch: int, latest: int | None) -> None:
    """ValueError if a leader epoch is below the newest one of a log."""
    if latest is not None and epoch < latest:
        raise ValueError(
            f"leader_epoch is {epoch}, allowed is at least {latest}, the newest leader epoch of {directory}"
        )


def checked_clock(clock: Callable[[], int] | None) -> Callable[[], int]:
    """What gives the time in ms."""
    if clock is None:
        return lambda: time.time_ns() // 1_000_000
    return lambda: integer("the time that the log's clock gives, in ms,", clock())


def open_segments(
    lease: PartitionLease,
    log_end: LogEnd,
    config: LogConfig,
    options: Mapping[str, Any],
    *,
    clock_ms: Callable[[], int],
    prepares_indexes: bool,
    reload_options: Callable[[], None],
) -> SegmentSet:
    """The segments of a directory that is leased, open at `log_end`.

    options: those of "write" in kstore.log.options. reload_options: called if another process may have
    changed the configuration or the leader epoch. Warns of what is lost. CorruptFileError, ValueError for
    another topic id, OSError.
    """
    directory, now_ms, reports = str(lease.path), clock_ms(), Reports()
    joins = lease.session is not None and not lease.session.is_first
    manifest = ManifestFile(directory)
    loaded = _NOTHING
    if not joins:
        if not lease.state.clean:
            finish_work(directory, lease, reports)
        loaded = recovered(lease, manifest, config, options, is_alone=True)
        _end_notes(manifest, loaded)
    # lists the snapshots: not before recovery has removed some
    producers = ProducerStateManager(directory, options["producer_id_expiration_ms"])
    if joins:
        epochs = LeaderEpochCheckpoint(directory, None)
    else:
        epochs = with_producers(directory, loaded, producers, now_ms)
    _identify(directory, options["topic_id"])
    segments = SegmentSet(
        log_end,
        lease,
        loaded,
        config,
        max_decompressed_bytes=options["max_decompressed_bytes"],
        clock_ms=clock_ms,
        producers=producers,
        epochs=epochs,
        manifest=manifest,
        reports=reports,
    )
    if not joins:
        segments.open(loaded, now_ms, prepares_indexes=prepares_indexes)
    if lease.session is not None:
        others = OtherWriters(segments, options, reload_options)
        assert lease.session.end is not None
        if joins:
            log_end.follow(SealedSegments(), None)
            log_end.join(lease.session.end, others)
        else:
            log_end.share(lease.session.end, others, is_first=True)
            log_end.note_stored(min(loaded.recovery.recovery_point, loaded.log_end_offset))
    # A broker's line below the first segment: the records between are in remote storage, of which kstore
    # knows nothing.
    stored_start = lease.state.log_start_offset
    lease.keeps_log_start = 0 < stored_start < segments.offsets.first_base and is_led(lease.path)
    lease.show_loaded()
    return segments


def _end_notes(manifest: ManifestFile, loaded: Loaded) -> None:
    """Forget noted losses whose offsets are in the log again: what is lost later is another loss."""
    gaps, lost_ends = manifest.known.gaps, manifest.known.lost_ends
    left_gaps = still_missing(gaps, loaded.segments) if gaps else []
    left_ends = [each for each in lost_ends if sum(each) > loaded.log_end_offset]
    if len(left_gaps) < len(gaps) or len(left_ends) < len(lost_ends):
        with contextlib.suppress(OSError):  # on a full disk the notes stay
            manifest.note_losses(left_gaps, left_ends)


_NOTHING = Loaded(
    (),
    0,
    0,
    LeaderEpochs(),
    Recovery(True, 0, False, [], 0, [], (), Gaps()),
    frozenset(),
    frozenset(),
    False,
    object(),
)  # of a log that other processes have open; they have recovered it


def keep_config(segments: SegmentSet) -> None:
    """Keeps the options that were given for the next opening. OSError; but on a full disk it warns: something
    may have to be deleted there."""
    try:
        segments.manifest.keep_options(given_in_text(segments.config))
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        warn(f"{segments.directory}: the given options count, but are not kept for the next opening: {e}")


def report_recovery(segments: SegmentSet) -> None:
    """Reports to logging what recovery has done."""
    recovery, reports, path = segments.recovery, segments.reports, segments.directory
    for loss in recovery.losses:
        reports.warning("%s: recovery: %s", path, loss)
    offsets = segments.offsets.start, segments.log_end.offset
    if recovery.truncated_bytes:
        text = "%s: recovery cut off %d bytes; the log holds offsets %d to %d (exclusive)"
        reports.warning(text, path, recovery.truncated_bytes, *offsets)
    elif recovery.recovered_segments:
        text = "%s: recovered from offset %d on; the log holds offsets %d to %d (exclusive)"
        reports.info(text, path, recovery.recovery_point, *offsets)
    reports.pass_on()


def _identify(directory: str, topic_id: UUID | None) -> None:
    """partition.metadata: the topic id that a broker gave the topic (spec 1.5)."""
    if topic_id is None:
        return
    try:
        known = checkpoints.read_topic_id(f"{directory}/{layout.METADATA}")
    except FileNotFoundError:
        checkpoints.write_topic_id(f"{directory}/{layout.METADATA}", topic_id)
        return
    if known != topic_id:
        raise ValueError(
            f"topic_id={topic_id} does not match: {directory} has the topic id {known} in its "
            "partition.metadata"
        )
