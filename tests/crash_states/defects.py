"""Defects that are put into kstore for a while, to see that the player finds them: a sync left out, an order swapped."""

from collections.abc import Callable
from typing import Any

import pytest

from kstore.engine.append import log_appender as tail
from kstore.engine.io import file
from kstore.engine.io.file import File
from kstore.log import writer
from kstore.log.cursors.group_file import GroupFile
from kstore.log.files import checkpoints, topic_file
from kstore.log.files import log_dir_state as home
from kstore.log.producers import manager as ledger
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.recovery import repairs
from kstore.log.write.deleted_segments import DeletedSegments
from kstore.log.writer import LogWriter
from kstore.store import log_directory

Put = Callable[[pytest.MonkeyPatch], None]
DEFECTS: dict[str, Put] = {}
STORE_DEFECTS: dict[str, Put] = {}  # in what a store does beside its logs


def defect(put: Put) -> Put:
    """Names it."""
    DEFECTS[put.__name__] = put
    return put


def store_defect(put: Put) -> Put:
    """Names it."""
    STORE_DEFECTS[put.__name__] = put
    return put


class _Unsynced:
    """A File whose sync does nothing."""

    def __init__(self, path: str, mode: str = "r") -> None:
        self.file = File(path, mode)

    def sync(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def _nothing(*given: object, **options: object) -> None:
    pass


@defect
def truncation_does_not_sync_the_file(patch: pytest.MonkeyPatch) -> None:
    publish = LogWriter._publish
    patch.setattr(writer, "File", _Unsynced)
    patch.setattr(
        LogWriter,
        "_publish",
        lambda self, sealed, active, cut=None: publish(self, sealed, active, cut and cut.file),
    )


@defect
def recovery_does_not_sync_what_it_cuts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repairs, "File", _Unsynced)


@defect
def checkpoints_are_renamed_before_they_are_synced(patch: pytest.MonkeyPatch) -> None:
    whole = checkpoints.write_whole
    patch.setattr(checkpoints, "write_whole", lambda path, data: whole(path, data, durable=False))


@defect
def no_directory_is_synced(patch: pytest.MonkeyPatch) -> None:
    """That of the writer alone would be no defect: whatever it changes, it writes a checkpoint or a snapshot next."""
    for module in (file, tail, home, repairs, writer):
        patch.setattr(module, "sync_directory", _nothing)


@defect
def sealed_files_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    owe = LogWriter._owe_sync
    patch.setattr(LogWriter, "_owe_sync", lambda self, files, names, base=2**63 - 1: owe(self, [], names))


@defect
def new_names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    owe = LogWriter._owe_sync
    patch.setattr(
        LogWriter, "_owe_sync", lambda self, files, names, base=2**63 - 1: owe(self, files, False, base)
    )


@defect
def files_of_a_dead_writer_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    owe = LogWriter._owe_sync

    def without_paths(self: LogWriter, files: list[Any], names: bool, base: int = 2**63 - 1) -> None:
        owe(
            self,
            [file for file in files if not isinstance(file, str) or file.endswith(".snapshot")],
            names,
            base,
        )

    patch.setattr(LogWriter, "_owe_sync", without_paths)


@defect
def the_index_of_aborted_transactions_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    owe = LogWriter._owe_sync

    def without(self: LogWriter, files: list[Any], names: bool, base: int = 2**63 - 1) -> None:
        owe(
            self,
            [file for file in files if not str(getattr(file, "path", file)).endswith(".txnindex")],
            names,
            base,
        )

    patch.setattr(LogWriter, "_owe_sync", without)


@defect
def truncation_leaves_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_lower_recovery_point", _nothing)


@defect
def truncation_removes_the_first_segment_first(patch: pytest.MonkeyPatch) -> None:
    remove = LogWriter._remove
    patch.setattr(LogWriter, "_remove", lambda self, segments, now: remove(self, segments[::-1], now))


@defect
def the_end_of_a_truncation_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_tell_end", _nothing)


@defect
def delete_records_does_not_store_the_log_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_store", _nothing)


@defect
def the_recovery_point_is_told_before_the_files_are_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_point_to_store", lambda self: self.durable_offset)
    patch.setattr(LogWriter, "_sync_sealed", _nothing)


@defect
def deleted_segments_are_not_set_aside(patch: pytest.MonkeyPatch) -> None:
    def forget(self: DeletedSegments, segment: Any, due_ms: int) -> None:
        self._files.append((due_ms, segment.path))

    patch.setattr(DeletedSegments, "set_aside", forget)


@defect
def aborted_transactions_of_recovered_segments_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    opened = ledger.ProducerStateManager.open
    patch.setattr(
        ledger.ProducerStateManager, "open", lambda self, loaded, now: opened(self, loaded, now) and {}
    )


@defect
def snapshots_are_never_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotFiles, "remove_outside", _nothing)


# ---- of a store -----------------------------------------------------------------------------------------------------


@store_defect
def the_table_of_topics_is_renamed_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    whole = topic_file.write_whole
    patch.setattr(topic_file, "write_whole", lambda path, data: whole(path, data, durable=False))


@store_defect
def new_and_deleted_partitions_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_directory, "sync_directory", _nothing)


@store_defect
def committed_positions_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupFile, "_sync", lambda self, file, end: None)
