"""The plan of an opening: what is out of order, step by step, and what recovery does about it (spec 8.2 to
8.4, 8.7).

Loading makes the steps and decides by their codes. A reader shows them. A writer runs them in order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kstore.log.recovery.remains import Remains
from kstore.log.recovery.repairs import Repairs


class Code(StrEnum):
    """What is out of order."""

    REMOVAL_UNDER_WAY = "removal_under_way"
    COMPACTION_UNFINISHED = "compaction_unfinished"
    COMPACTION_REPLACES = "compaction_replaces"
    DAMAGED_REPLACES = "damaged_replaces"
    COMPACTION_ALL_BUT_FINISHED = "compaction_all_but_finished"
    NO_NAME_OF_A_SWAP = "no_name_of_a_swap"
    NO_NAME_OF_A_SEGMENT = "no_name_of_a_segment"
    OTHER_NAME_OF_A_SEGMENT = "other_name_of_a_segment"
    NO_NAME_OF_AN_INDEX = "no_name_of_an_index"
    INDEX_WITHOUT_LOG = "index_without_log"
    KEYS_WITHOUT_LOG = "keys_without_log"
    KEYS_UNFINISHED = "keys_unfinished"
    FILE_UNFINISHED = "file_unfinished"
    NO_OFFSET_INDEX = "no_offset_index"
    NO_TIME_INDEX = "no_time_index"
    BROKEN_TRANSACTION_INDEX = "broken_transaction_index"
    TRANSACTIONS_BEHIND_END = "transactions_behind_end"
    OFFSETS_FAR_APART = "offsets_far_apart"
    TORN_TAIL = "torn_tail"
    CORRUPT_BATCH = "corrupt_batch"
    SPARE_ROOM = "spare_room"
    OFFSETS_FALL = "offsets_fall"
    BEHIND_DAMAGE = "behind_damage"
    BELOW_LOG_START = "below_log_start"
    TAIL_LEFT = "tail_left"
    WRONG_NAME = "wrong_name"
    FILE_TAIL = "file_tail"
    NOT_READ = "not_read"
    DIRECTORY_EMPTY = "directory_empty"
    BYTES_BEFORE_NEXT_SEGMENT = "bytes_before_next_segment"
    FILE_SHORTENED = "file_shortened"
    OFFSETS_MISSING = "offsets_missing"
    OFFSETS_REMOTE = "offsets_remote"
    SEGMENT_EMPTY = "segment_empty"
    SEGMENTS_OVERLAP = "segments_overlap"
    CHECKPOINT_DAMAGED = "checkpoint_damaged"
    LOG_START_UNKNOWN = "log_start_unknown"
    LOG_START_BEYOND_END = "log_start_beyond_end"
    EPOCHS_DAMAGED = "epochs_damaged"
    ENDS_EARLY = "ends_early"
    ENDS_LATE = "ends_late"
    FLUSHED_IS_LOST = "flushed_is_lost"
    INDEXES_REBUILT = "indexes_rebuilt"  # what recovery does to every segment it looks at: no finding
    NAMES_SYNCED = "names_synced"  # no finding either


# Of every code: the word that a Finding has for it, and the text. {be} is "would be" or "was", {were} the
# same of bytes.
_WORDS: dict[Code, tuple[str, str]] = {
    Code.REMOVAL_UNDER_WAY: ("leftover", "{be} deleted: its removal was under way"),
    Code.COMPACTION_UNFINISHED: ("leftover", "{be} deleted: a compaction that was not finished"),
    Code.COMPACTION_REPLACES: ("leftover", "{be} deleted: {detail} replaces it"),
    Code.DAMAGED_REPLACES: ("leftover", "{be} kept in a .cut file: {detail}, which replaces it, is damaged"),
    Code.COMPACTION_ALL_BUT_FINISHED: ("leftover", "{be} renamed: a compaction that was nearly finished"),
    Code.NO_NAME_OF_A_SWAP: ("orphan", "not the name of a file that a compaction leaves"),
    Code.NO_NAME_OF_A_SEGMENT: ("orphan", "not the name of a segment; Kafka refuses to load this"),
    Code.OTHER_NAME_OF_A_SEGMENT: (
        "orphan",
        "not read, as by Kafka: the segment at offset {first} is called {detail}",
    ),
    Code.NO_NAME_OF_AN_INDEX: ("orphan", "not the name of an index; Kafka refuses to load this"),
    Code.INDEX_WITHOUT_LOG: ("orphan", "{be} deleted: an index without a log"),
    Code.KEYS_WITHOUT_LOG: ("orphan", "{be} deleted: an index of keys without a log"),
    Code.KEYS_UNFINISHED: ("leftover", "{be} deleted: an index of keys that was not finished"),
    Code.FILE_UNFINISHED: ("leftover", "{be} deleted: a file that was not finished when the process died"),
    Code.NO_OFFSET_INDEX: ("missing_index", "no offset index: it is rebuilt from the log"),
    Code.NO_TIME_INDEX: (
        "missing_index",
        "no time index: Kafka goes on with an empty one, and by the file's time",
    ),
    Code.BROKEN_TRANSACTION_INDEX: ("broken_index", "rebuilt from the log: {detail}"),
    Code.TRANSACTIONS_BEHIND_END: (
        "broken_index",
        "{bytes} {were} cut off: they name transactions that end at offset {first} or later, where the log ends",
    ),
    Code.OFFSETS_FAR_APART: ("split", "{be} split into {detail} segments: offsets too far apart"),
    Code.TORN_TAIL: ("torn_tail", "{bytes} {were} cut off{remains}: {detail}"),
    Code.CORRUPT_BATCH: ("corrupt_batch", "{bytes} {were} cut off{remains}: {detail}"),
    Code.SPARE_ROOM: ("preallocated", "{bytes} {were} cut off: zeros, as preallocation leaves them"),
    Code.OFFSETS_FALL: ("corrupt_batch", "{be} emptied{remains}: {detail}"),
    Code.BEHIND_DAMAGE: ("beyond", "{be} deleted: it comes after what was cut off{remains}"),
    Code.BELOW_LOG_START: ("beyond", "{be} deleted: it is below the log start offset{remains}"),
    Code.TAIL_LEFT: ("beyond", "{size} bytes follow the last whole batch"),
    Code.WRONG_NAME: (
        "beyond",
        "{size} bytes of batches whose offsets are below the one in its name, or damaged",
    ),
    Code.FILE_TAIL: ("torn_tail", "{size} bytes follow the last sound batch of the file{detail}"),
    Code.DIRECTORY_EMPTY: (
        "empty",
        "the directory is empty, so the partition has no records: they were lost, or nobody has written it yet",
    ),
    Code.NOT_READ: ("orphan", "not read: {detail}"),
    Code.BYTES_BEFORE_NEXT_SEGMENT: (
        "gap",
        "{size} bytes at its end hold no whole batch, and another segment follows",
    ),
    Code.FILE_SHORTENED: (
        "gap",
        "offsets {first} to {last} are missing: an index of the file names them, so it was emptied, cut off or damaged",
    ),
    Code.OFFSETS_MISSING: (
        "gap",
        "offsets {first} to {last} are in no segment: a file is missing or was cut off",
    ),
    Code.OFFSETS_REMOTE: (
        "remote",
        "offsets {first} to {last} are not in this directory: the broker has moved them to remote storage",
    ),
    Code.SEGMENT_EMPTY: (
        "gap",
        "offsets {first} to {last} are in no segment: a compaction took them all out, or the file was emptied",
    ),
    Code.SEGMENTS_OVERLAP: (
        "overlap",
        "offsets {first} to {last} are in it, and the next segment begins at the first: files of several copies are mixed",
    ),
    Code.CHECKPOINT_DAMAGED: ("checkpoint", "{detail}"),
    Code.LOG_START_UNKNOWN: (
        "checkpoint",
        "{detail}. Records that were deleted may be readable again",
    ),
    Code.LOG_START_BEYOND_END: (
        "checkpoint",
        "the log start offset {first} does not count: the log ends at {end}. Records that were deleted may be readable again",
    ),
    Code.EPOCHS_DAMAGED: ("checkpoint", "damaged, rebuilt from the batches: {detail}"),
    Code.ENDS_EARLY: ("checkpoint", "the log ends at offset {first}, where it was closed at {end}"),
    Code.ENDS_LATE: (
        "checkpoint",
        "the log ends at offset {first}, where it was closed at {end}: files were changed since, or an offset is damaged",
    ),
    Code.FLUSHED_IS_LOST: ("checkpoint", "offsets {first} to {last} had been flushed, and are lost"),
    Code.INDEXES_REBUILT: ("", "its indexes {be} rebuilt"),
    Code.NAMES_SYNCED: ("", "what was deleted {be} brought to the disk first"),
}


class Finding(NamedTuple):
    """Something that is not as a clean shutdown leaves it.

    `kind` is a stable word: "torn_tail", "corrupt_batch", "beyond" (bytes or segments behind the end that
    recovery would remove), "leftover" (a .deleted, .cleaned or .swap file), "preallocated" (zeros behind the
    last batch), "orphan" (an index without log, or a name that is no segment's, such as .log.gz),
    "missing_index", "broken_index", "split", "gap" (offsets, or bytes, that are in no batch between two
    segments), "remote" (offsets in the remote storage of a tiered topic), "overlap" (offsets that are in
    two), "checkpoint", "empty" (a directory without any file). `position` and `size` are in bytes, -1 if they
    mean nothing. `code` is a Code, which tells more kinds apart.
    """

    kind: str
    file: str
    position: int
    size: int
    text: str
    code: str


@dataclass(frozen=True)
class Step:
    """One thing out of order, and the deed that is to be done about it; without a deed it is only told."""

    code: Code
    file: str
    position: int = -1
    size: int = -1
    detail: object = ""
    remains: Remains | None = None
    offsets: tuple[int, int] = (-1, -1)  # the first, and the one behind the last
    deed: Callable[[Repairs], object] | None = None
    is_loss: bool = False  # records surely had these offsets

    @property
    def is_finding(self) -> bool:
        """Whether somebody wants to hear of it."""
        return self.code not in (Code.INDEXES_REBUILT, Code.NAMES_SYNCED)

    def text(self, *, done: bool) -> str:
        """What would be done, or was `done`, in words."""
        first, end = self.offsets
        where = "a .cut file keeps them" if done else "recover=False shows them"
        return _WORDS[self.code][1].format(
            be="was" if done else "would be",
            were="would be" if not done else "was" if self.size == 1 else "were",
            bytes="1 byte" if self.size == 1 else f"{self.size} bytes",
            size=self.size,
            detail=self.detail,
            remains="" if self.remains is None else f" (with {self.remains}; {where})",
            first=first,
            last=end - 1,
            end=end,
        )

    def finding(self, *, done: bool) -> Finding:
        """The same for the user."""
        return Finding(
            _WORDS[self.code][0],
            self.file,
            self.position,
            self.size,
            self.text(done=done),
            self.code.value,
        )

    def run(self, repairs: Repairs) -> None:
        """Does it. OSError."""
        if self.deed is not None:
            self.deed(repairs)
