"""Names of directories and files (spec 1.1, 1.2)."""

from __future__ import annotations

import os

from kstore.light_typing import NamedTuple
from kstore.properties import is_integer

SEGMENT_KINDS = (".log", ".index", ".timeindex", ".txnindex")
INDEX_KINDS = SEGMENT_KINDS[1:]
KEYS = ".keys"  # positions of the last record of each key of a segment; Kafka ignores the file
KEYS_DRAFT = ".keys.tmp"
SHIPPED = ".shipped"  # in remote directories: the manifest of a segment that was shipped; Kafka ignores it
LEADER_EPOCHS = "leader-epoch-checkpoint"
METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
OWN_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'  # kstore's content; a broker writes its epoch
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (CLEAN_SHUTDOWN, RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)  # of a log directory
IRREPLACEABLE = (LOG_STARTS, CLEANER_OFFSETS)  # checkpoints that cannot be rebuilt from other files
CUT = ".cut"  # files of removed or damaged bytes; Kafka ignores them
REPAIRED = ".repaired.cut"  # those that a repair has made, which an operator has asked for
MOVED = ".moved"  # behind .log: a file on its way into the log; Kafka, and readers, ignore it
REMOTE_INDEXES = "remote-log-index-cache"  # a directory, of a broker with remote storage
MANIFEST = "kstore.json"  # kstore's own file in a partition or a log directory
SHARED = "kstore-shared"  # memory that the processes of a shared log map
SHARED_DIRECTORY = "kstore-shared-directory"  # that of a log directory
SHARES = "kstore-shares"  # a directory in a partition: the states of share groups
DRAFT = ".tmp"  # the suffix of a small file that is being written, as in Kafka
CLUSTER_METADATA = "__cluster_metadata"
# topics that every broker compacts
KAFKAS_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")

_IN_TOPIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_MOST_TOPIC = 249
_MOST_NAME = 255
_SPECIAL = {suffix: rf"^(\S+)-(\S+)\.(\S+){suffix}" for suffix in ("-delete", "-future", "-stray")}


class TopicPartition(NamedTuple):
    """A topic and the number of a partition; str() returns the name of the directory, such as orders-0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class FileName(NamedTuple):
    """The parts of a file name in a partition directory: `stem` + `kind` + `extra`, and the stem's offset."""

    stem: str
    offset: int
    kind: str
    extra: str


def is_valid_topic(topic: str) -> bool:
    """Whether Kafka allows a topic of this name (spec 1.1)."""
    return topic not in (".", "..") and 0 < len(topic) <= _MOST_TOPIC and _IN_TOPIC.issuperset(topic)


def is_set_aside(name: str) -> bool:
    """Whether it is the name of a directory that Kafka has set aside: -delete, -future or -stray."""
    return name.endswith(tuple(_SPECIAL)) and parse_directory(name) is not None


def parse_directory(name: str) -> TopicPartition | None:
    """The topic and partition of a directory's name, or None if Kafka would not load the directory."""
    for suffix, form in _SPECIAL.items():
        if name.endswith(suffix):
            import re  # imported here, for the few directories with such a name

            if re.fullmatch(form, name) is None:
                return None
            name = name[: name.rindex(".")]
            break
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not is_integer(partition):
        return None
    number = int(partition)
    return TopicPartition(topic, number) if -(2**31) <= number < 2**31 else None


def deleted_name(tp: TopicPartition) -> str:
    """A new name for the directory of a deleted partition; a long topic is shortened to fit."""
    rest = f"-{tp.partition}.{os.urandom(16).hex()}-delete"
    return tp.topic[: _MOST_NAME - len(rest)] + rest


def partition_named(name: str) -> TopicPartition | None:
    """The partition for which a broker would create a directory of exactly this name: a legal topic, a dash,
    a number without leading zeros. None for other names, so two names never mean one partition."""
    tp = parse_directory(name)
    if tp is None or tp.partition < 0 or str(tp) != name or not is_valid_topic(tp.topic):
        return None
    return tp


def is_partition_name(name: str) -> bool:
    """Whether a broker would create a partition directory of this name."""
    return partition_named(name) is not None


def parse_offset(name: str) -> int | None:
    """The number before the first dot of a file name, or None."""
    stem = name.partition(".")[0]
    if len(stem) == 20 and stem[:2] == "00" and stem.isascii() and stem.isdecimal():  # the common case
        return int(stem)
    if not is_integer(stem):
        return None
    offset = int(stem)
    return offset if -(2**63) <= offset < 2**63 else None


def segment_offset(name: str) -> int | None:
    """The base offset of the segment whose .log has exactly this name, or None.

    Kafka parses a number of any length before the first dot, but then opens the name of 20 digits. It never
    reads a file such as 00.log.
    """
    offset = parse_offset(name)
    return offset if offset is not None and offset >= 0 and name == f"{segment_stem(offset)}.log" else None


def parse_file(name: str) -> FileName | None:
    """The parts of a segment file's name, `.swap` and the like included; None for any other file."""
    stem, dot, rest = name.partition(".")
    kind, second, extra = rest.partition(".")
    offset = parse_offset(name)
    if not dot or offset is None or dot + kind not in SEGMENT_KINDS:
        return None
    return FileName(stem, offset, dot + kind, second + extra)


def is_key_file(name: str) -> bool:
    """Whether it is the name of a .keys file, or of a draft of one."""
    offset = parse_offset(name)
    return (
        offset is not None
        and offset >= 0
        and name in (segment_stem(offset) + kind for kind in (KEYS, KEYS_DRAFT))
    )


def is_draft(name: str) -> bool:
    """Whether it is the name of an unfinished file that the writer of a partition left."""
    if not name.endswith(DRAFT):
        return False
    name = name.removesuffix(DRAFT)
    offset = parse_offset(name)
    if offset is not None and offset >= 0:
        return name in (segment_stem(offset) + kind for kind in (*INDEX_KINDS, ".snapshot"))
    return name in (LEADER_EPOCHS, METADATA, MANIFEST, *CHECKPOINTS)


def segment_stem(base_offset: int) -> str:
    """The name of a segment's files without the suffix: the base offset in 20 digits."""
    return f"{base_offset:020d}"
