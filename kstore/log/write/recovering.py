"""Recovery of a log that is opened for writing: the plan is carried out."""

from __future__ import annotations

import os

from kstore.arguments import warn
from kstore.engine.io.directory import sync_directory, write_whole
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.leader_epochs import LeaderEpochCheckpoint
from kstore.log.files.listing import list_directory
from kstore.log.later import later
from kstore.log.recovery.loader import carried_out, load
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import DataLossWarning, in_short

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kstore.config import LogConfig
    from kstore.log.files.log_directory import PartitionLease
    from kstore.log.files.manifest import ManifestFile
    from kstore.log.files.shared_session import remove_left
    from kstore.log.producers.manager import ProducerStateManager
    from kstore.log.recovery.loader import Loaded
    from kstore.log.segments.rebase_segment import finish_adoptions
    from kstore.log.segments.reports import Reports
else:
    later(
        globals(),
        {
            "kstore.log.files.shared_session": "remove_left",
            "kstore.log.segments.rebase_segment": "finish_adoptions",
        },
    )


def recovered(
    lease: PartitionLease,
    manifest: ManifestFile,
    config: LogConfig,
    options: Mapping[str, Any],
    *,
    is_alone: bool,
) -> Loaded:
    """The log as recovery leaves it. is_alone: no other process has it open. Warns of what is lost.
    CorruptFileError, OSError."""
    directory = str(lease.path)
    repairs = Repairs(directory, keep_cut=options["keep_cut"])
    loaded = load(
        lease.path,
        clean=options["clean"],
        recovery_point=options["recovery_point"],
        log_start_offset=options["log_start_offset"],
        index_interval_bytes=config.index_interval_bytes,
        max_decompressed_bytes=options["max_decompressed_bytes"],
        state=lease.state,
        mode="write",
        is_alone=is_alone,
    )
    end, known = loaded.log_end_offset, manifest.known.truncations
    # Records that others had read may be lost, and new ones get their offsets: so a generation begins where
    # recovery ends the log.
    is_sound = loaded.recovery.clean and end >= loaded.recovery.recovery_point
    if loaded.segments and not is_sound and known.pending != "all":
        manifest.expect(min(end, known.offset) if known.pending else end, known.pending or "recovery")
    loaded = carried_out(loaded, repairs)
    recovery = loaded.recovery
    if recovery.truncated_bytes:
        sync_directory(directory)  # what was cut off must not come back behind what is appended now
        lease.lower_cleaner_offset(loaded.log_end_offset)
    losses = [*recovery.losses, *recovery.missing, *recovery.lost_starts, *lease.losses]
    losses += recovery.lost_producers
    if losses:
        kept = f"; kept in {_in_words(sorted(repairs.kept))}" if repairs.kept else ""
        warn(f"{directory}: {in_short(losses)}{kept}", DataLossWarning)
    return loaded


def with_producers(
    directory: str, loaded: Loaded, producers: ProducerStateManager, now_ms: int
) -> LeaderEpochCheckpoint:
    """Loads the producers of a log that was recovered; its leader epochs. OSError."""
    epochs = LeaderEpochCheckpoint(directory, loaded.leader_epochs)
    for base, index in producers.open(loaded, now_ms).items():
        path = f"{directory}/{layout.segment_stem(base)}.txnindex"
        if not index.is_empty or os.path.exists(path):
            write_whole(path, index.to_bytes())
    return epochs


def _in_words(cut_files: list[str]) -> str:
    return cut_files[0] if len(cut_files) == 1 else f"{len(cut_files)} .cut files, {cut_files[0]} first"


def finish_work(directory: str, lease: PartitionLease, reports: Reports) -> None:
    """Completes or removes what a process that died has left, before the log is recovered."""
    if any(name.endswith(layout.MOVED) for name in list_directory(directory)):
        _finish_adoptions(directory, reports)
    if lease.session is None:
        remove_left(directory)


def _finish_adoptions(directory: str, reports: Reports) -> None:
    for path, error in finish_adoptions(directory):
        if error is None:
            reports.info("%s: a file was taken over that was on its way here: %s", directory, path)
        else:
            warn(
                f"{directory}: a file that was being taken over is not part of the log: {error}",
                DataLossWarning,
            )
