"""The steps of an opening: what is out of order in a directory, and what recovery does about it (spec 8.2 to
8.4, 8.7).

A plan consists of steps. Reading shows them. Writing carries them out in order.
"""

from __future__ import annotations

from enum import Enum

from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, ParamSpec

    from kstore.log.recovery.repairs import Repairs

    _Arguments = ParamSpec("_Arguments")


class Code(Enum):
    """The code of a step: the `kind` of its OpeningFinding, and the text. {be} is "would be" or "was", {were}
    its form for bytes."""

    REMOVAL_UNDER_WAY = "leftover", "{be} deleted: its removal was under way"
    COMPACTION_UNFINISHED = "leftover", "{be} deleted: a compaction that was not finished"
    COMPACTION_REPLACES = "leftover", "{be} deleted: {detail} replaces it"
    DAMAGED_REPLACES = "leftover", "{be} kept in a .cut file: {detail}, which replaces it, is damaged"
    COMPACTION_ALL_BUT_FINISHED = "leftover", "{be} renamed: a compaction that was nearly finished"
    FILE_UNFINISHED = "leftover", "{be} deleted: a file that was not finished when the process died"
    NO_NAME_OF_A_SWAP = "orphan", "not the name of a file that a compaction leaves"
    NO_NAME_OF_A_SEGMENT = "orphan", "not the name of a segment; Kafka refuses to load this"
    OTHER_NAME_OF_A_SEGMENT = (
        "orphan",
        "not read, as by Kafka: the segment at offset {first} is called {detail}",
    )
    INDEX_WITHOUT_LOG = "orphan", "{be} deleted: an index without a log"
    NOT_READ = "orphan", "not read: {detail}"
    NO_OFFSET_INDEX = "missing_index", "no offset index: it is rebuilt from the log"
    NO_TIME_INDEX = (
        "missing_index",
        "no time index: Kafka goes on with an empty one, and by the file's time",
    )
    BROKEN_TRANSACTION_INDEX = "broken_index", "rebuilt from the log: {detail}"
    TRANSACTIONS_BEHIND_END = (
        "broken_index",
        (
            "{bytes} {were} cut off: they name transactions that end at offset {first} or later, where the "
            "log ends"
        ),
    )
    OFFSETS_FAR_APART = "split", "{be} split into {detail} segments: offsets too far apart"
    TORN_TAIL = "torn_tail", "{bytes} {were} cut off{sound}: {detail}"
    CORRUPT_BATCH = "corrupt_batch", "{bytes} {were} cut off{sound}: {detail}"
    SPARE_ROOM = "preallocated", "{bytes} {were} cut off: zeros, as preallocation leaves them"
    OFFSETS_FALL = "corrupt_batch", "{be} emptied{sound}: {detail}"
    BEHIND_DAMAGE = "beyond", "{be} deleted: it comes after what was cut off{sound}"
    BELOW_LOG_START = "beyond", "{be} kept in a .cut file: it is below the log start offset"
    TRUNCATION_LEFT = "beyond", "a truncation was begun: records from offset {first} on {were} removed"
    TAIL_LEFT = "beyond", "{size} bytes follow the last whole batch"
    WRONG_NAME = "beyond", "{size} bytes of batches whose offsets are below the one in its name, or damaged"
    FILE_TAIL = "torn_tail", "{size} bytes follow the last sound batch of the file{detail}"
    DIRECTORY_EMPTY = (
        "empty",
        "the directory is empty, so the partition has no records: they were lost, or none were written yet",
    )
    BYTES_BEFORE_NEXT_SEGMENT = (
        "gap",
        "{size} bytes at its end hold no whole batch, and another segment follows",
    )
    FILE_SHORTENED = (
        "gap",
        (
            "offsets {first} to {last} are missing: an index of the file names them, so it was emptied, cut "
            "off or damaged"
        ),
    )
    OFFSETS_MISSING = (
        "gap",
        "offsets {first} to {last} are in no segment: a file is missing or was cut off",
    )
    SEGMENT_EMPTY = (
        "gap",
        (
            "offsets {first} to {last} are in no segment: a compaction took them all out, or the file was "
            "emptied"
        ),
    )
    OFFSETS_REMOTE = (
        "remote",
        "offsets {first} to {last} are not in this directory: the broker has moved them to remote storage",
    )
    SEGMENTS_OVERLAP = (
        "overlap",
        (
            "offsets {first} to {last} are in it, and the next segment begins at the first: files of several "
            "copies are mixed"
        ),
    )
    CHECKPOINT_DAMAGED = "checkpoint", "{detail}"
    LOG_START_UNKNOWN = "checkpoint", "{detail}. Records that were deleted may be readable again"
    LOG_START_BEYOND_END = (
        "checkpoint",
        (
            "the log start offset {first} does not count: the log ends at {end}. Records that were deleted "
            "may be readable again"
        ),
    )
    MANIFEST_DAMAGED = "checkpoint", "{detail}. It is not known which records were truncated before"
    EPOCHS_DAMAGED = "checkpoint", "damaged or lost, rebuilt from the batches: {detail}"
    ENDS_EARLY = "checkpoint", "the log ends at offset {first}, where it was closed at {end}"
    ENDS_LATE = (
        "checkpoint",
        (
            "the log ends at offset {first}, where it was closed at {end}: files were changed since, or an "
            "offset is damaged"
        ),
    )
    SNAPSHOT_DAMAGED = "checkpoint", "this snapshot of producers does not count: {detail}"
    PRODUCERS_FORGOTTEN = (
        "checkpoint",
        (
            "this snapshot of producers does not count, and no older one is left: {detail}. Producers "
            "without a record in the log are forgotten: a retry of theirs is appended again"
        ),
    )
    FLUSHED_IS_LOST = "checkpoint", "offsets {first} to {last} had been flushed, and are lost"
    # Recovery does these to every segment that it reads, so they are not findings.
    INDEXES_REBUILT = "", "its indexes {be} rebuilt"
    NAMES_SYNCED = "", "what was deleted {be} brought to the disk first"

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text


class OpeningFinding(NamedTuple):
    """What an opening found: a difference from the state after a clean shutdown.

    `kind` is a stable word: "torn_tail", "corrupt_batch", "beyond" (bytes or segments behind the end that
    recovery would remove), "leftover" (a .deleted, .cleaned or .swap file), "preallocated" (zeros behind the
    last batch), "orphan" (an index without log, or a name that is no segment's, such as .log.gz),
    "missing_index", "broken_index", "split", "gap" (offsets, or bytes, that are in no batch between two
    segments), "remote" (offsets in the remote storage of a tiered topic), "overlap" (offsets that are in
    two), "checkpoint", "empty" (a directory without any file). `position` and `size` are in bytes, -1 if they
    mean nothing. `code` is a word that distinguishes more kinds.
    """

    kind: str
    file: str
    position: int
    size: int
    text: str
    code: str


class SoundBatches(NamedTuple):
    """Sound batches behind damage: their number, the first and the last offset, and the byte after the
    last."""

    batch_count: int
    first_offset: int
    last_offset: int
    end: int

    def __str__(self) -> str:
        batches = "1 sound batch" if self.batch_count == 1 else f"{self.batch_count} sound batches"
        return f"{batches}, offsets {self.first_offset} to {self.last_offset}"


class Action(NamedTuple):
    """A call of a method of Repairs."""

    method: Callable[..., object]
    arguments: tuple[Any, ...]

    def run(self, repairs: Repairs) -> None:
        """Make the call. OSError."""
        self.method(repairs, *self.arguments)


def action(
    method: Callable[Concatenate[Repairs, _Arguments], object],
    *args: _Arguments.args,
    **kwargs: _Arguments.kwargs,
) -> Action:
    """Make an Action, with type-checked positional arguments."""
    assert not kwargs
    return Action(method, args)


class Step(NamedTuple):
    """One thing out of order, and the action that repairs it; without an action it is only reported."""

    code: Code
    file: str
    position: int = -1
    size: int = -1
    detail: object = ""
    sound: SoundBatches | None = None
    offsets: tuple[int, int] = (-1, -1)  # the first, and the one after the last
    action: Action | None = None
    is_loss: bool = False  # records had these offsets for certain

    def text(self, *, done: bool) -> str:
        """A sentence about what would be done, or was `done`."""
        first, end = self.offsets
        where = "a .cut file keeps them" if done else "kstore records --as-is, or recover=False, shows them"
        return self.code.text.format(
            be="was" if done else "would be",
            were="would be" if not done else "was" if self.size == 1 else "were",
            bytes="1 byte" if self.size == 1 else f"{self.size} bytes",
            size=self.size,
            detail=self._explained(),
            sound="" if self.sound is None else f" (with {self.sound}; {where})",
            first=first,
            last=end - 1,
            end=end,
        )

    def _explained(self) -> object:
        """The detail; of an error in this very place, without the place."""
        error = self.detail
        if isinstance(error, CorruptFileError) and (error.file, error.position) == (self.file, self.position):
            return error.text
        return error

    def finding(self, *, done: bool) -> OpeningFinding:
        """This step as an OpeningFinding."""
        code = self.code.name.lower()
        return OpeningFinding(self.code.kind, self.file, self.position, self.size, self.text(done=done), code)
