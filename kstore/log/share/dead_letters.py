"""Dead letters: the records that a share group gives up, in another log, with Kafka's headers (KIP-1191)."""

from __future__ import annotations

from typing import Protocol

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from kstore.log.share.acquired_record import AcquiredRecord

# Kafka's reasons
REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."


class DeadLetterLog(Protocol):
    """A LogWriter."""

    @property
    def append(self) -> Any:
        """Append a record."""

    @property
    def flush(self) -> Any:
        """Bring what was appended to the disk."""


def check_dead_letter_log(log: object, path: str) -> None:
    """Raise TypeError for what cannot take the dead letters of the log at a path, ValueError for that log."""
    if not (hasattr(log, "append") and hasattr(log, "flush")):
        raise TypeError(f"dead_letter_log is a log that is open for writing, not {log!r:.80}")
    if getattr(log, "path", None) == path:
        raise ValueError(f"dead_letter_log is another log than that of the group: {path}")


def append_dead_letter(
    log: DeadLetterLog, group: str, record: AcquiredRecord, reason: str, *, durable: bool
) -> None:
    """Append a copy of a record to a log. What LogWriter.append and flush raise."""
    added = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": group,
        "delivery.count": record.delivery_count,
        "message": reason,
    }
    headers = [(f"__dlq.errors.{name}", str(value).encode()) for name, value in added.items()]
    log.append(record.value, record.key, headers=[*record.headers, *headers])
    if durable:
        log.flush()
