"""The position of a reader in a log, and the rule that detects a truncation behind it."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

from kstore.arguments import MAX64, MAX_EPOCH, instance, integer
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.log_dir_state import locate
from kstore.log.files.manifest import read_manifest, stamp_of, truncations_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.log.files.manifest import Stamp
    from kstore.log.files.truncations import Truncations
    from kstore.log.recovery.loader import Loaded
    from kstore.typed import StrPath


class Position(NamedTuple):
    """Where a reader continues: the offset of the next record, the leader epoch of the record before it (-1
    if it is not known), and the generation of the log from which it read up to there.

    A truncation by kstore begins a generation, one by a broker a leader epoch. A follower that begins at a
    position therefore detects every truncation since. Positions of `store.follow()` also have the id of the
    topic: a later topic of that name has another one. To save a position, save all its fields, for example as
    JSON: `Position(*json.loads(json.dumps(position)))` is equal to `position`.
    """

    offset: int
    leader_epoch: int
    generation: int
    topic_id: str = ""

    def at(self, offset: int) -> Position:
        """The position at an offset before it."""
        return self._replace(offset=offset)


class History(NamedTuple):
    """What detects a truncation of a log: its truncations, its leader epochs, and its end."""

    truncations: Truncations
    leader_epochs: LeaderEpochs
    log_end_offset: int


def history_of(path: StrPath) -> History:
    """What the files of a log say, without loading it: so its end is not known. OSError."""
    try:
        epochs = LeaderEpochs(
            e for e in checkpoints.read_epochs(f"{path}/{layout.LEADER_EPOCHS}") if min(e) >= 0
        )
    except (FileNotFoundError, CorruptFileError):
        epochs = LeaderEpochs()
    return History(truncations_of(path, stamp_of(path)), epochs, MAX64)


def checked_position(name: str, position: Position) -> Position:
    """A position that a caller gives. TypeError, ValueError."""
    return Position(
        integer(f"{name}.offset", position.offset),
        integer(f"{name}.leader_epoch", position.leader_epoch, -1, MAX_EPOCH),
        integer(f"{name}.generation", position.generation, -1),
        instance(f"{name}.topic_id", position.topic_id, str),
    )


def position_in(now: Loaded, offset: int) -> Position:
    """The position at an offset of a log as a snapshot shows it."""
    return Position(offset, epoch_before(now, offset), now.truncations.number)


def are_of_one_topic(a: str, b: str) -> bool:
    """Whether two ids are of one topic, as far as both are known: "" is not known."""
    return a == b or not a or not b


def topic_id_of(path: StrPath) -> str:
    """The id that the topic of a partition has now: a broker's, else the store's. A later topic of that name
    has another one. "" if it is not known."""
    try:
        return checkpoints.topic_id_text(checkpoints.read_topic_id(f"{path}/{layout.METADATA}"))
    except FileNotFoundError:
        pass
    except (CorruptFileError, OSError):
        return ""
    place = locate(path)
    try:
        return _ids_in(place.directory, stamp_of(place.directory)).get(place.name.topic, "")
    except (CorruptFileError, OSError):
        return ""


@lru_cache(maxsize=8)
def _ids_in(directory: str, _: Stamp) -> Mapping[str, str]:
    return {name: topic.id for name, topic in read_manifest(directory).table.topics.items()}


def epoch_before(now: Loaded, offset: int) -> int:
    """The leader epoch of the record before an offset; -1 if it is not known."""
    epochs = now.leader_epochs.entries
    if offset > now.log_end_offset:
        return -1
    at = bisect_right(epochs, offset - 1, key=lambda entry: entry[1])
    return epochs[at - 1][0] if at else -1


def diverged_at(now: Loaded | History, position: Position, isolation: str) -> int:
    """From which offset on, below a position, the log has other records than were read, or none; -1 if it has
    those that were read (KIP-320). CorruptCheckpointError or OSError if that is not known, because the file
    of the truncations is damaged."""
    if position.offset == 0:
        return -1
    found = (
        now.truncations.since(position.generation, isolation),
        now.leader_epochs.end_offset_for(position.leader_epoch, now.log_end_offset)[1],
        now.log_end_offset,
    )
    return min((offset for offset in found if 0 <= offset < position.offset), default=-1)
