"""A topic: its partitions, and where a record goes."""

from __future__ import annotations

import random
from collections.abc import Iterable

from kstore.arguments import integer
from kstore.engine.record.partitions import murmur2
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_SPELL_BYTES = 16384  # Kafka's batch.size


def checked_name(name: object) -> str:
    """A name that Kafka allows for a topic. TypeError, ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"topic must be a str, not {name!r}")
    if not layout.is_valid_topic(name):
        raise ValueError(
            f"{name!r} cannot be the name of a topic: up to 249 of the characters a-z A-Z 0-9 . _ - are "
            "allowed"
        )
    return name


def _check_bytes_like(value: Any) -> None:
    try:
        memoryview(value)
    except TypeError:
        raise TypeError(f"value is bytes-like or None, not {type(value).__name__}") from None


class StickyPartitioner:
    """Which partition a record without a key goes to: one until it has got about 16 KiB, then the next one,
    so that batches are not torn.

    Threads may share it: if two count at one moment, one change comes a little later.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = partitions
        self._at = random.randrange(len(partitions)) if partitions else 0
        self._left = _SPELL_BYTES

    def partition_for(self, size: int) -> int:
        """The partition for a record, or records, of so many bytes."""
        at = self._at
        self._left -= size
        if self._left <= 0:
            self._at = (at + 1) % len(self._partitions)
            self._left = _SPELL_BYTES
        return self._partitions[at]


class Topic:
    """A topic as a store has it at one moment; it never changes.

    `count` is how many partitions the topic has, as keys are spread over them: what the table says, else one
    more than the largest number. `numbers` are those that are here. A broker's directory may hold only some
    of them, as may a store of which a directory failed; another program may also have put one there that the
    table does not know, which is only read. `missing` are those that the table knows and that are not here.
    `id`: that of the table, or ""; a later topic of that name has another one.
    """

    def __init__(
        self, name: str, numbers: Iterable[int], known_count: int | None = None, topic_id: str = ""
    ) -> None:
        self.name = name
        self.id = topic_id
        self.numbers = tuple(sorted(numbers))
        self.missing = tuple(sorted(set(range(known_count or 0)).difference(self.numbers)))
        self.count = known_count or (self.numbers[-1] + 1 if self.numbers else 0)
        self.partitions = tuple(TopicPartition(name, number) for number in self.numbers)
        self._by_number = dict(zip(self.numbers, self.partitions, strict=True))
        self._known = [number for number in self.numbers if number < self.count]
        self._sticky = StickyPartitioner(self._known)

    def partition(self, number: int) -> TopicPartition:
        """The partition of this number. LogNotFoundError if it is not here."""
        tp = self._by_number.get(number)
        if tp is None:
            raise LogNotFoundError(
                f"no partition {number} of topic {self.name} in the store: it has {list(self.numbers)} of "
                f"{self.count}"
            )
        return tp

    def chosen(self, numbers: object) -> tuple[int, ...]:
        """Numbers of partitions that are here, each once. TypeError, ValueError, LogNotFoundError."""
        if not isinstance(numbers, Iterable):
            raise TypeError(f"partitions must be numbers of partitions, not {numbers!r}")
        checked = (integer("partition", each, 0, 2**31 - 1) for each in numbers)
        return tuple(dict.fromkeys(self.partition(each).partition for each in checked))

    def partition_for(self, key: Any, value: object) -> TopicPartition:
        """Where a record goes, as Kafka's default partitioner has it. TypeError for what is no key or value:
        no log must be opened for it."""
        if type(value) is not bytes and value is not None:
            _check_bytes_like(value)
        if key is None:
            size = len(value) if isinstance(value, bytes | bytearray) else 0
            return self.partition(self.sticky(size))
        try:
            return self.partition((murmur2(key) & 0x7FFFFFFF) % self.count)
        except TypeError:
            hint = ": encode it" if isinstance(key, str) else ""
            raise TypeError(f"key must be bytes or None, not {key!r:.80}{hint}") from None

    def sticky(self, size: int = _SPELL_BYTES) -> int:
        """The number of the partition for records without a key of so many bytes. Default: for a whole
        column; the next records go to another partition."""
        if not self._known:
            raise LogNotFoundError(f"no partition of topic {self.name} is in use")
        return self._sticky.partition_for(size)
