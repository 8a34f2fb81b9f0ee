"""What a share group delivers, and how a worker acknowledges it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple  # made for each delivery; that of light_typing takes four times as long

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from kstore.engine.record.batch import Record


class AcknowledgeType(Enum):
    """What a worker reports of a record, with Kafka's names and numbers.

    ACCEPT: the work is done. RELEASE: the record is to be delivered again. REJECT: the record cannot be
    processed, and is not delivered again.
    """

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class AcquiredRecord(NamedTuple):
    """A record that a share group has delivered to a worker, which has it locked.

    `delivery_count`: how often it was delivered, this time included. It has the offset, timestamp, key, value
    and headers of its record.
    """

    topic: str
    partition: int
    record: Record
    delivery_count: int

    @property
    def offset(self) -> int:
        """The offset in its partition."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970; -1 for none."""
        return self.record.timestamp

    @property
    def key(self) -> bytes | None:
        """The key."""
        return self.record.key

    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone."""
        return self.record.value

    @property
    def headers(self) -> Any:
        """The headers."""
        return self.record.headers
