"""The arguments of cursors, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from kstore.arguments import MAX32, boolean, each_of, integer, moment, number
from kstore.errors import OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.offset_commits import MAX_METADATA_BYTES
from kstore.log.files.layout import TopicPartition

if TYPE_CHECKING:
    from kstore.log.view.log_view import LogView

_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_NAMES = ("earliest", "latest")


def is_group(name: str) -> bool:
    """Whether a group can have this name, which is part of the name of a file."""
    return _GROUP.fullmatch(name) is not None


def checked_group(group: object) -> str:
    """The name of a group. TypeError, ValueError."""
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, not {group!r}")
    if not is_group(group):
        raise ValueError(
            f"group is the name of a file: up to 200 of the characters a-z A-Z 0-9 . _ -, not {group!r}"
        )
    return group


def checked_groups(name: str, groups: Iterable[str]) -> list[str]:
    """Names of groups. TypeError, ValueError."""
    return [checked_group(group) for group in each_of(f"{name} must be a list of names of groups", groups)]


def checked_partition(name: str, key: object) -> TopicPartition:
    """A key of a mapping of positions, as a TopicPartition. TypeError, ValueError."""
    if not (isinstance(key, tuple) and len(key) == 2):
        raise TypeError(
            f"{name} has positions or offsets by (topic, partition): {{('orders', 0): 17}}, not by "
            f"{key!r:.80}"
        )
    topic, partition = key
    if not isinstance(topic, str):
        raise TypeError(f"{name} has a topic that is not a str: {topic!r:.80}")
    return TopicPartition(topic, integer(f"the partition in {name}", partition, 0, MAX32))


def checked_place(name: str, value: object) -> str | int | datetime:
    """A checked start: "earliest", "latest", an offset or a datetime. TypeError, ValueError."""
    kind = "'earliest', 'latest', an offset or a datetime"
    if isinstance(value, str):
        if value not in _NAMES:
            raise ValueError(f"{name} is {kind}, not {value!r}")
        return value
    if isinstance(value, datetime):
        moment(name, value)
        return value
    return integer(name, value, kind=kind)


def checked_timeout(timeout: object, follow: bool) -> float | None:
    """The longest wait for a record, in seconds; None waits for ever. TypeError, ValueError."""
    if timeout is None:
        return None
    timeout = number("timeout", timeout, 0)
    if timeout > 0 and not follow:
        raise ValueError(
            f"timeout={timeout:g} needs follow=True: without it a cursor ends where the log ends, and "
            "does not wait"
        )
    return timeout


def check_commit(durable: object, metadata: object) -> None:
    """Check the arguments of a commit. TypeError, ValueError."""
    boolean("durable", durable)
    if not isinstance(metadata, str):
        raise TypeError(f"metadata must be a str, not {metadata!r}")
    try:
        size = len(metadata.encode())
    except UnicodeEncodeError:
        raise ValueError(f"metadata has no UTF-8: {metadata!r:.80}") from None
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"metadata has more than {MAX_METADATA_BYTES} bytes")


def check_delivered(name: str, offset: int, position: int) -> None:
    """Raise ValueError for the offset of a commit beyond the position of the cursor."""
    if offset > position:
        raise ValueError(
            f"{name}: offset {offset} is beyond what was delivered, the records before offset {position}. "
            "The offset of a commit is that of the next record to read; to skip records, seek() first"
        )


def offset_of(view: LogView, place: str | int | datetime, isolation: str) -> int:
    """The offset of a start, in a view. OffsetOutOfRangeError."""
    first, end = view.log_start_offset, view.log_end_offset
    if isinstance(place, datetime):
        found = view.find_timestamp(moment("start", place))
        return end if found is None else max(int(found.offset), first)
    if place == "earliest":
        return first
    if place == "latest":  # an open transaction may still be committed
        return end if isolation == "read_uncommitted" else max(min(view.last_stable_offset(), end), first)
    assert isinstance(place, int)
    if not first <= place <= end:
        raise OffsetOutOfRangeError(place, first, end)
    return place
