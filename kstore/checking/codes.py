"""The table of codes: the severity, the meaning, the remedy, and whether Kafka's start fails.

docs/checking.md has this table; tests/checking compares the two. A finding of an opening has the code of its
step in kstore/log/recovery/steps.py.
"""

from __future__ import annotations

from kstore.checking.finding import Finding
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

REPAIR = "kstore repair"


class Code(NamedTuple):
    """A row of the table."""

    severity: str
    meaning: str
    remedy: str
    stops_kafka: bool = False


_MOVE = f"{REPAIR} moves the damaged bytes into a .cut file; the records after them stay in the log"
_CUT = f"{REPAIR} moves the removed bytes into a .cut file; copy the partition first"
_INDEX = f"{REPAIR} makes the indexes from the log"
_NOTE = f"{REPAIR} notes the gap; put a lost file back first"
_END = f"{REPAIR} takes the new end, and notes the loss; put a lost file back first"
_REMOVE = "remove the file if it is not needed"
_RENAME = "rename or move the file"

CODES: Mapping[str, Code] = {
    # batches and records
    "corrupt_batch": Code("damaged", "a checksum, a field or an offset of a batch is wrong", _MOVE),
    "foreign_segment": Code(
        "damaged",
        "sound batches have offsets that are not those of the segment",
        f"put the right file in its place; or {REPAIR} moves these batches into a .cut file",
    ),
    "torn_tail": Code("damaged", "the file ends inside a batch", _MOVE),
    "offsets_fall": Code("damaged", "the offsets do not rise from batch to batch", _MOVE),
    "unreadable_records": Code(
        "damaged", "the checksum of a batch is right, and its records are damaged", _MOVE
    ),
    "late_record": Code(
        "damaged",
        "a record is later than the largest timestamp in the header of its batch: lookups by time miss it",
        "copy the records to a new log",
    ),
    "early_records": Code(
        "suspicious",
        "the largest timestamp in the header of a batch is later than all its records",
        "nothing to do, because lookups find the records; retention by time keeps the segment longer",
    ),
    "offset_gap": Code("suspicious", "offsets are missing within a segment", _NOTE),
    "bad_marker": Code(
        "damaged",
        "a transaction marker is too short",
        "put the segment back from a copy; a broker skips the marker once kstore recover closes the log",
        True,
    ),
    "too_large": Code(
        "damaged",
        "a .log file has more than 2147483647 bytes, so neither Kafka nor kstore opens it",
        "copy the file, cut it to 2147483647 bytes, and check again: kstore repair removes what is no batch",
        True,
    ),
    "not_a_log": Code(
        "damaged",
        "a .log file has another format, or only zeros",
        f"{REPAIR} renames it to a .cut file; put the segment back from a copy first",
    ),
    "epoch_falls": Code(
        "suspicious",
        "a batch has a lower leader epoch than an earlier one",
        "put the segment back from a copy, because followers of a broker compare leader epochs",
    ),
    "unreadable_file": Code(
        "damaged", "a file or a directory cannot be read", "correct its permissions, or the disk", True
    ),
    # indexes
    "index_damaged": Code("damaged", "an index is damaged, or does not fit the log", _INDEX),
    "index_differs": Code("damaged", "an entry of an index does not fit the log", _INDEX),
    "transaction_index_differs": Code("damaged", "a transaction index does not fit the log", _INDEX),
    "time_index_short": Code(
        "damaged", "the time index lacks the latest timestamp: lookups by time miss it", _INDEX
    ),
    "no_offset_index": Code("suspicious", "a segment has no offset index", _INDEX),
    "no_time_index": Code("suspicious", "a segment has no time index", _INDEX),
    "broken_transaction_index": Code("damaged", "the transaction index is damaged", _INDEX),
    "transactions_behind_end": Code(
        "suspicious", "the transaction index names transactions after the end of the log", _INDEX
    ),
    "index_without_log": Code("suspicious", "an index has no log: the .log may be lost", _REMOVE),
    # offsets
    "offsets_missing": Code("lost", "offsets are in no segment: a file is missing or was cut off", _NOTE),
    "file_shortened": Code("lost", "an index names offsets that the log does not have", _NOTE),
    "segment_empty": Code("suspicious", "a segment is empty, and offsets are missing after it", _NOTE),
    "gap_noted": Code(
        "note",
        "offsets are missing, as a repair has noted in kstore.json",
        "nothing to do, because the gap was accepted",
    ),
    "end_noted": Code(
        "note",
        "records were lost at the end of the log, as a repair has noted in kstore.json; later records get "
        "their offsets",
        "nothing to do, because the loss was accepted; the note ends when the log is as long again",
    ),
    "offsets_remote": Code(
        "note",
        "offsets are in the remote storage of a tiered topic",
        "nothing to do, because the broker reads them there",
    ),
    "segments_overlap": Code("damaged", "two segments have the same offsets: copies were mixed", _CUT),
    "offsets_far_apart": Code(
        "suspicious", "offsets are too far apart for one segment", f"{REPAIR} splits it"
    ),
    "flushed_is_lost": Code("lost", "records that were flushed are gone", _END),
    "committed_is_lost": Code("lost", "records below the high watermark are gone", _END),
    "ends_early": Code("lost", "the log ends before the offset at which it was closed", _END),
    "ends_late": Code(
        "suspicious",
        "the log ends after the offset at which it was closed",
        f"{REPAIR} takes the new end; put a lost file back first",
    ),
    "spare_room": Code(
        "note",
        "zeros follow the last batch, as preallocation leaves them",
        "nothing to do, because the next opening for writing cuts them off",
    ),
    "behind_damage": Code(
        "lost",
        "the segment follows damage: an opening for writing removes it",
        f"{REPAIR} moves the damage out, and the segment stays",
    ),
    "below_log_start": Code(
        "suspicious", "a segment is below the log start offset", f"{REPAIR} renames it to a .cut file"
    ),
    "truncation_left": Code("note", "a truncation was interrupted", f"{REPAIR} completes it"),
    # interrupted work and other files
    "removal_under_way": Code(
        "note",
        "the file waits for its removal",
        "nothing to do, because the next opening for writing removes it",
    ),
    "compaction_unfinished": Code("note", "a compaction was interrupted", f"{REPAIR} removes its files"),
    "compaction_replaces": Code(
        "note",
        "a compaction replaces the file",
        "nothing to do, because the next opening for writing completes the compaction",
    ),
    "damaged_replaces": Code("damaged", "the file that a compaction puts in its place is damaged", _CUT),
    "compaction_all_but_finished": Code(
        "note", "a compaction was interrupted at its end", f"{REPAIR} completes it"
    ),
    "file_unfinished": Code("note", "a file was not finished when the process died", _REMOVE),
    "no_name_of_a_swap": Code("suspicious", "not the name of a file that a compaction leaves", _RENAME),
    "no_name_of_a_segment": Code("damaged", "a .log file whose name is not an offset", _RENAME, True),
    "other_name_of_a_segment": Code(
        "suspicious", "a .log file whose name has not 20 digits is not read", _RENAME
    ),
    "log_changed": Code(
        "note", "another process replaced files again and again while they were read", "check again"
    ),
    "not_read": Code(
        "suspicious",
        "a file that may be a segment in another form is not read",
        "unpack it and give it the name of a segment if the log lacks its offsets; else remove it",
    ),
    "directory_empty": Code(
        "suspicious",
        "the directory is empty: records were lost, or none were written",
        "put the files back from a copy; nothing to do if no record was written yet",
    ),
    "kept_file": Code("note", "a repair has moved bytes into this file, or renamed it", _REMOVE),
    "cut_off": Code(
        "lost",
        "a recovery has moved bytes into this file",
        "kstore records reads it; then move it elsewhere, or remove it",
    ),
    # checkpoints
    "checkpoint_damaged": Code(
        "damaged", "a checkpoint is damaged", f"{REPAIR} makes it again; the damaged file stays beside it"
    ),
    "log_start_unknown": Code(
        "damaged",
        "the log start offset is unknown: deleted records may be readable",
        f"put the file back from a copy; or {REPAIR} makes it again, from the first offset in the log",
    ),
    "log_start_beyond_end": Code(
        "damaged",
        "the log start offset is beyond the end of the log",
        f"put a lost file back; or {REPAIR} makes the log start at its first segment",
    ),
    "manifest_damaged": Code(
        "damaged",
        "kstore.json is damaged",
        "put it back from a copy; or move it away, which resets options, positions and the table of topics",
    ),
    "epochs_damaged": Code(
        "damaged", "the leader-epoch-checkpoint is damaged or lost", f"{REPAIR} makes it again"
    ),
    "snapshot_damaged": Code("damaged", "a snapshot of producers is damaged", f"{REPAIR} makes it again"),
    "snapshot_differs": Code(
        "suspicious", "a snapshot of producers does not fit the log", f"{REPAIR} makes it again"
    ),
    "epochs_differ": Code(
        "suspicious", "the leader-epoch-checkpoint does not fit the log", f"{REPAIR} makes it again"
    ),
    "epochs_begin_later": Code(
        "suspicious",
        "the leader epochs begin after the start of the log: the log start offset may be lost, so that "
        "deleted records are readable again",
        "put log-start-offset-checkpoint back from a copy",
    ),
    "producers_forgotten": Code(
        "damaged",
        "no snapshot of producers is sound: a retry may be appended again",
        "put it back from a copy; or the next opening for writing makes one from the batches",
    ),
    "not_closed": Code(
        "note",
        "no marker of a clean shutdown: the next opening for writing recovers the logs",
        f"{REPAIR} does, too",
    ),
    "checkpoint_lacks": Code(
        "note", "a checkpoint lacks partitions; the logs are read instead", f"{REPAIR} adds them"
    ),
    "checkpoint_of_none": Code(
        "suspicious",
        "a checkpoint names a partition that is not in the directory",
        "put a lost partition back; else remove its line, and lower the count above, as a broker does",
    ),
    "checkpoint_beyond_end": Code(
        "suspicious", "an offset of a checkpoint is beyond the end of the log", f"{REPAIR} lowers it"
    ),
    "snapshot_missing": Code(
        "note",
        "no snapshot of producers is at the end of the log; the batches are read instead",
        "nothing to do, because the next opening for writing makes it",
    ),
    "position_unused": Code(
        "note",
        "a position belongs to an earlier partition of that name, and is not used",
        "nothing to do, because the group begins there as a new one",
    ),
    "checkpoint_kept": Code("suspicious", "a copy of a checkpoint that was damaged", _REMOVE),
    "topic_id_damaged": Code(
        "damaged",
        "partition.metadata is damaged",
        "write 'version: 0' and 'topic_id: ID' into it, with the ID that kafka-topics.sh --describe prints",
        True,
    ),
    # log directories
    "topic_id_differs": Code(
        "damaged",
        "partition.metadata is missing, or has another topic id than the metadata of the cluster: a broker "
        "sets the partition aside as stray, and begins an empty one",
        "write the topic id of the metadata into it",
    ),
    "partition_missing": Code(
        "lost",
        "a partition of a known topic is in none of the log directories",
        "check all log directories in one call; else put the partition back from a copy",
    ),
    "dangling_link": Code(
        "lost",
        "a symbolic link with the name of a partition has no target",
        "mount or put back the directory to which it leads; or remove the link",
    ),
    "duplicate_partition": Code(
        "damaged", "a partition is in two log directories", "move one of them away", True
    ),
    "foreign_directory": Code(
        "damaged",
        "a directory in a broker's log directory whose name is not that of a partition",
        "move it out of the log directory",
        True,
    ),
    "deleted_partition": Code(
        "note",
        "a partition that waits for its deletion",
        "nothing to do, because the broker or the store deletes it",
    ),
    "future_partition": Code(
        "note",
        "a partition that a broker was moving here from another log directory",
        "nothing to do, because the broker continues the move",
    ),
    "stray_partition": Code(
        "suspicious",
        "a partition that a broker has set aside, because the cluster has it elsewhere",
        "remove it if the cluster has the records elsewhere",
    ),
    "meta_properties_damaged": Code(
        "damaged", "meta.properties is damaged", "kafka-storage.sh makes it again", True
    ),
    "change_unfinished": Code(
        "note", "a change of topics is not finished", "the next opening of the store completes it"
    ),
    "disk_full": Code(
        "suspicious", "the file system is full", "free space before a broker or a store starts"
    ),
    "foreign_owner": Code(
        "suspicious",
        "files belong to another user than the directory",
        "chown them to the user of the broker",
    ),
    # readers and transactions
    "hanging_transaction": Code(
        "suspicious",
        "a transaction is open for longer than its timeout; readers of committed records wait for it",
        "kstore transactions --abort --producer-id ID ends it",
    ),
    "position_beyond_end": Code(
        "suspicious",
        "the position of a group is beyond the end of the partition: the log is older, or was cut",
        "kstore cursors --reset-to moves it",
    ),
    "positions_damaged": Code(
        "damaged",
        "the positions of a group of cursors are damaged",
        "put the file back from a copy; or remove it, and set the group with kstore cursors --reset-to",
    ),
    # a copy and its manifest, and what was shipped
    "remote_differs": Code(
        "suspicious",
        "what was shipped is not of this log",
        "give the URL to which kstore ship has uploaded this log; or ship it to another one",
    ),
    "copy_file_missing": Code("lost", "the manifest of the copy lists the file", "make the copy again"),
    "copy_file_differs": Code(
        "damaged", "the file is not the one that was copied, or was written since", "make the copy again"
    ),
    "copy_file_unlisted": Code(
        "suspicious", "the manifest of the copy does not list the file", "remove it if it is not needed"
    ),
}

ENDS = ("flushed_is_lost", "committed_is_lost", "ends_early")  # a repair notes them, too
GAPS = ("offset_gap", "offsets_missing", "file_shortened", "segment_empty")  # a repair notes them


def why(error: Exception) -> str:
    """The text of an error without the file and the byte."""
    if not isinstance(error, CorruptFileError):
        return str(error)
    if error.expected is None and error.found is None:
        return error.reason
    return f"{error.reason}: expected {error.expected}, found {error.found}"


def found(
    code: str,
    file: str,
    meaning: str = "",
    *,
    position: int = -1,
    offsets: tuple[int, int] | None = None,
    severity: str = "",
    remedy: str = "",
    stops_kafka: bool | None = None,
) -> Finding:
    """A finding, with what the table says unless it is given."""
    row = CODES[code]
    return Finding(
        code,
        severity or row.severity,
        file,
        position,
        offsets,
        meaning or row.meaning,
        remedy or row.remedy,
        row.stops_kafka if stops_kafka is None else stops_kafka,
    )
