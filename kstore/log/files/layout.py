"""Names of directories and files (spec 1.1, 1.2)."""

import os
import re
from typing import NamedTuple

SEGMENT_KINDS = (".log", ".index", ".timeindex", ".txnindex")
INDEX_KINDS = SEGMENT_KINDS[1:]
KEYS = ".keys"  # where the last record of each key of a segment is: a file that Kafka passes over
KEYS_DRAFT = ".keys.tmp"
LEADER_EPOCHS = "leader-epoch-checkpoint"
METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
OWN_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'  # what is in kstore's; a broker has its own epoch
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (CLEAN_SHUTDOWN, RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)  # of a log directory
IRREPLACEABLE = (LOG_STARTS, CLEANER_OFFSETS)  # checkpoints of which nothing else holds the content
CUT = ".cut"  # what bytes that were cut off, or damaged, are kept under; Kafka passes such files over
REMOTE_INDEXES = "remote-log-index-cache"  # a directory, of a broker with remote storage
OPTIONS = "kstore-config.json"
TRUNCATIONS = "kstore-truncations.json"
DRAFT = ".tmp"  # behind the name of a small file that is being written, as Kafka does it, too
CLUSTER_METADATA = "__cluster_metadata"
# topics that every broker compacts
KAFKAS_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")

# Patterns as texts: re keeps what it has compiled, and to compile one at import takes 0.3 ms.
_LEGAL_TOPIC = r"[a-zA-Z0-9._-]{1,249}"
_MOST_NAME = 255
_OFFSET = r"[+-]?[0-9]+"
_SPECIAL = {suffix: rf"^(\S+)-(\S+)\.(\S+){suffix}" for suffix in ("-delete", "-future", "-stray")}


class TopicPartition(NamedTuple):
    """The name of a topic and the number of a partition; str() gives the name of the directory, such as
    orders-0."""

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
    return topic not in (".", "..") and re.fullmatch(_LEGAL_TOPIC, topic) is not None


def parse_directory(name: str) -> TopicPartition | None:
    """The topic and partition that a directory's name stands for, or None if it is none Kafka would load."""
    for suffix, form in _SPECIAL.items():
        if name.endswith(suffix):
            if re.fullmatch(form, name) is None:
                return None
            name = name[: name.rindex(".")]
            break
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or re.fullmatch(_OFFSET, partition) is None:
        return None
    number = int(partition)
    return TopicPartition(topic, number) if -(2**31) <= number < 2**31 else None


def deleted_name(tp: TopicPartition) -> str:
    """A new name for the directory of a partition that is to be removed; the topic is cut if it would be too
    long."""
    rest = f"-{tp.partition}.{os.urandom(16).hex()}-delete"
    return tp.topic[: _MOST_NAME - len(rest)] + rest


def partition_named(name: str) -> TopicPartition | None:
    """The partition in use to whose directory a broker gives this very name: a legal topic, a dash, a number
    without leading zeros. Two such names stand for two partitions. None if it is no such name."""
    tp = parse_directory(name)
    if tp is None or tp.partition < 0 or str(tp) != name or not is_valid_topic(tp.topic):
        return None
    return tp


def is_partition_name(name: str) -> bool:
    """Whether it is the name of a partition in use."""
    return partition_named(name) is not None


def parse_offset(name: str) -> int | None:
    """The number before the first dot of a file name, or None."""
    stem = name.partition(".")[0]
    if len(stem) == 20 and stem[:2] == "00" and stem.isascii() and stem.isdecimal():  # nearly all
        return int(stem)
    if re.fullmatch(_OFFSET, stem) is None:
        return None
    offset = int(stem)
    return offset if -(2**63) <= offset < 2**63 else None


def segment_offset(name: str) -> int | None:
    """The base offset of the segment whose .log has this very name, or None.

    Kafka takes the number before the first dot, of any length, but opens the name of 20 digits that it makes
    of it: a file such as 00.log is never read.
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
    """Whether kstore gives this very name to an index of keys, or to what will be one."""
    offset = parse_offset(name)
    return (
        offset is not None
        and offset >= 0
        and name in (segment_stem(offset) + kind for kind in (KEYS, KEYS_DRAFT))
    )


def is_draft(name: str) -> bool:
    """Whether a name is that of an unfinished file which only the writer of a partition writes."""
    if not name.endswith(DRAFT):
        return False
    name = name.removesuffix(DRAFT)
    offset = parse_offset(name)
    if offset is not None and offset >= 0:
        return name in (segment_stem(offset) + kind for kind in (*INDEX_KINDS, ".snapshot"))
    return name in (LEADER_EPOCHS, METADATA, OPTIONS, TRUNCATIONS, *CHECKPOINTS)


def segment_stem(base_offset: int) -> str:
    """The name of a segment's files without their kind: the base offset in 20 digits."""
    return f"{base_offset:020d}"
