"""Checks that a directory is a partition. Any other directory would look like a log without records."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import scan_directory
from kstore.log.files.manifest import read_manifest

if TYPE_CHECKING:
    from kstore.typed import StrPath

_SIGNS = (layout.LEADER_EPOCHS, layout.METADATA)
# files that a log directory has, too
_WEAK_SIGNS = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.CLEAN_SHUTDOWN)
# a directory with only these may get a partition
_HARMLESS = (*_WEAK_SIGNS, layout.META_PROPERTIES, "lost+found")
_MOST_NAMED = 5


def require_partition(path: StrPath, *, may_be_empty: bool = True) -> None:
    """Raise LogNotFoundError for a directory without a file of a partition. The error names the partitions in
    it, if there are any.

    As in Kafka, an empty directory with a partition's name is a log without records, because a program that
    creates a partition creates the directory first. A path that is not a directory is not checked.
    """
    if not os.path.isdir(path):
        return
    weak = False
    others = False
    directories = []
    with scan_directory(str(path)) as entries:
        for entry in entries:
            if _is_sign(entry.name):
                return
            weak = weak or entry.name in _WEAK_SIGNS
            others = others or not _is_harmless(entry.name)
            directories.append(entry.name)
    below = sorted(tp for tp in map(layout.parse_directory, directories) if tp is not None)
    below = [tp for tp in below if os.path.isdir(f"{path}/{tp}")]
    if below:
        named = ", ".join(map(str, below[:_MOST_NAMED]))
        more = f" and {len(below) - _MOST_NAMED} more" if len(below) > _MOST_NAMED else ""
        error = LogNotFoundError(
            f"{path} is a log directory, not a partition: it holds {named}{more}; give one of the "
            f"partitions, such as {os.path.join(path, str(below[0]))}"
        )
        error.is_log_directory = True
        raise error
    name = os.path.basename(os.path.realpath(path))
    if may_be_empty and not others and layout.is_partition_name(name):
        return
    if not weak and not name.endswith("-delete"):  # Kafka may have deleted its files
        raise LogNotFoundError(f"no partition at {path}: the directory has no .log file")


def is_partition(path: str) -> bool:
    """Whether a path is a partition or a single file, and not a directory of partitions. OSError."""
    if not os.path.isdir(path):
        return True
    try:
        require_partition(path)
    except LogNotFoundError:
        return False
    if layout.parse_directory(os.path.basename(os.path.realpath(path))) is not None:
        return True
    with scan_directory(path) as entries:
        return any(e.name.endswith(".log") and layout.parse_offset(e.name) is not None for e in entries)


def refuse_other_kinds(path: StrPath) -> None:
    """Raise LogNotFoundError for a path that leads to neither a directory nor a regular file."""
    try:
        mode = os.stat(path).st_mode
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise LogNotFoundError(f"no partition at {path}: the link leads to itself") from None
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise LogNotFoundError(f"no partition at {path}: it is neither a directory nor a regular file")


def require_free(path: StrPath) -> None:
    """Raise LogNotFoundError for a directory with other files: a new partition needs an empty one."""
    if not os.path.isdir(path):
        return
    with scan_directory(str(path)) as entries:
        for entry in entries:
            name = entry.name
            if not (_is_harmless(name) or layout.parse_offset(name) is not None):
                raise LogNotFoundError(
                    f"no partition at {path}, and none is made there, in the midst of other files such as "
                    f"{name}: give a new partition a directory of its own, such as data/orders-0"
                )


def doubt_about(path: StrPath) -> str:
    """The reason why a broker, or the store around a path, would not use a new partition there, or ""."""
    home, name = os.path.split(os.path.abspath(path))
    try:
        table = read_manifest(home).table
    except (OSError, KstoreError):
        return ""
    if not table.number:
        if layout.parse_directory(name) is None or layout.is_partition_name(name):
            return ""
        return (
            f"{name!r} is not a name that Kafka gives to the directory of a partition, so brokers and stores "
            "pass over it: a topic has 1 to 249 of the characters a-z, A-Z, 0-9, dot, underscore and dash, "
            "and the number behind it has no leading zeros"
        )
    if not layout.is_partition_name(name):
        return (
            f"{home} is the directory of a store, which passes over {name!r} in it: the name of a partition "
            "is a topic, a dash and a number without leading zeros, such as orders-0"
        )
    topic, _, number = name.rpartition("-")
    known = table.topics.get(topic)
    if known is None:
        if number == "0" or os.path.exists(f"{home}/{topic}-0"):
            return ""
        return (
            f"topic {topic} in {home} has no partition 0, so records without a partition of their own "
            "find no place in it"
        )
    if int(number) < known.count:
        return ""
    return (
        f"topic {topic} in {home} has {known.count} partitions, of which {name} is none: "
        f"store.add_partitions({topic!r}, …), or kstore alter --partitions, adds some"
    )


def not_found(path: StrPath) -> LogNotFoundError:
    """The error for a path that is not a directory. It names partitions of that topic beside the path."""
    parent, topic = os.path.split(os.path.abspath(path))
    known = []
    with contextlib.suppress(OSError):
        known = [
            name
            for name in sorted(os.listdir(parent))
            if name.startswith(f"{topic}-")
            and (tp := layout.parse_directory(name)) is not None
            and tp.topic == topic
            and os.path.isdir(f"{parent}/{name}")
        ]
    hint = f"; partitions of topic {topic} beside it: {', '.join(known[:_MOST_NAMED])}" if known else ""
    return LogNotFoundError(f"no partition directory at {path}{hint}")


def _is_harmless(name: str) -> bool:
    return name.startswith((".", "kstore-", layout.MANIFEST)) or name in _HARMLESS or layout.is_draft(name)


def _is_sign(name: str) -> bool:
    if name in _SIGNS or layout.parse_file(name) is not None:
        return True
    return name.endswith(".snapshot") and layout.parse_offset(name) is not None
