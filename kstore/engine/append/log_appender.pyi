from collections.abc import Callable
from typing import Final, NamedTuple

from kstore.engine.append.log_end import LogEnd
from kstore.engine.io.synchronization import EventFd
from kstore.engine.io.traffic import Traffic
from kstore.engine.segment.active_segment import ActiveSegment

ROLL_REASONS: Final[tuple[str, ...]]

class AppendLimits(NamedTuple):
    """What the configuration of a log says of appends, as plain values.

    `durability` is a place in DURABILITY. `target_codec` is what batches of others are encoded to, -1 for
    what they come in; `codec` and `level` are those of records that are encoded here. A batch that would
    unpack to more than `max_decompressed_bytes`, at which readers stop, is refused."""

    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    before_max_ms: int
    after_max_ms: int
    flush_messages: int
    log_append_time: bool
    keys_required: bool
    durability: int
    target_codec: int
    codec: int
    level: int
    max_decompressed_bytes: int

class LogAppender:
    """Writes to the active segment of a log, one thread at a time."""

    _closed: bool
    _leader_epoch: int
    _log_end: LogEnd
    traffic: Traffic | None

    @property
    def active(self) -> ActiveSegment:
        """The active segment."""
    @property
    def durable_offset(self) -> int:
        """Every record below this offset is on the disk."""
    def wait_until_durable(self, offset: int) -> None:
        """Returns when every record below `offset` is on the disk. ValueError above log_end_offset."""
    def clock_ms(self) -> int:
        """The time by this log's clock, in ms."""
    def notify_at_change(self, event: EventFd) -> None:
        """Sets this event once, after the log has next been changed or closed, if it still exists then."""
    def _apply_limits(self, limits: AppendLimits) -> None: ...
    def _use_clock(self, clock: Callable[[], int]) -> None: ...
    def _set_leader_epoch(self, epoch: int) -> None: ...
    def _use_hooks(self, hooks: object) -> None: ...
