"""What appending takes of a log: limits by its configuration, and what the engine leaves to Python."""

from __future__ import annotations

from kstore.arguments import DURABILITY, MAX_DECOMPRESSED_BYTES
from kstore.engine.append.log_appender import AppendLimits
from kstore.engine.record.codec import NAMES as CODECS
from kstore.errors import LogFailedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.later import later

if TYPE_CHECKING:
    from kstore.config import LogConfig
    from kstore.engine.append.record_appender import Appended
    from kstore.engine.record.batch import RecordBatch
    from kstore.log.segments.segment_set import SegmentSet
    from kstore.log.write.flusher import Flusher
    from kstore.log.write.log_validator import validate
else:
    later(globals(), {"kstore.log.write.log_validator": "validate"})


def limits_of(
    config: LogConfig, durability: str, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> AppendLimits:
    """The limits for this configuration."""
    name = config.compression_type
    target = -1 if name == "producer" else 0 if name == "uncompressed" else CODECS.index(name)
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return AppendLimits(
        segment_bytes=config.effective_segment_bytes,
        segment_ms=config.effective_segment_ms,
        max_message_bytes=config.max_message_bytes,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        flush_messages=config.flush_messages,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        keys_required="compact" in config.cleanup_policy,
        durability=DURABILITY.index(durability),
        target_codec=target,
        codec=max(target, 0),
        level=levels.get(name, -1),
        max_decompressed_bytes=max_decompressed_bytes,
    )


class AppendHooks:
    """What `LogAppender` of the engine calls while it appends, because it is rare or a matter of policy.

    The thread that appends makes the calls, with the mutex held: they may call what needs the mutex held, and
    must not wait for another thread that takes it. What changes something in several steps does so in
    `LogEnd.unfinished`.
    """

    def __init__(self, segments: SegmentSet, flusher: Flusher) -> None:
        self._segments = segments
        self._log_end = segments.log_end
        self._flusher = flusher

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Before a batch is staged whose leader epoch is not the last one; -1 if it has none. If it raises,
        nothing is appended."""
        epochs = self._segments.epochs
        known = epochs.epochs.entries
        if epoch >= 0:
            epochs.assign(epoch, start_offset)
        elif start_offset >= 0 and known:  # messages of magic 0 and 1 know no epochs
            epochs.clear()
        if epochs.epochs.entries != known:
            self._log_end.note_change()

    def roll(self, reason: str, first_offset: int) -> None:
        """Before a batch is staged that needs a new segment. Publishes another active segment, or raises:
        nothing is appended. The old one is active then, unless a sync has failed: then nothing more is
        written."""
        self._segments.roll(reason, first_offset)

    def flush_due(self) -> None:
        """After a write, once flush.messages records are not durable. They are in the log: it does not raise,
        and leaves the flush to another thread."""
        self._flusher.flush_now()

    def validate(self, encoded: bytes, now: int) -> bytes:
        """For batches that must be decompressed to be checked, or encoded again: the bytes to append. If it
        raises, nothing is appended."""
        return validate(encoded, self._segments.config, now, self._segments.max_decompressed_bytes)

    def analyze(
        self, batches: list[RecordBatch], origin: str, transaction_version: int
    ) -> dict[int, Appended]:
        """For batches of producers, before they are staged: which of them are there already, and where.

        Changes no producer. If none is there, it keeps readers of committed data from going on, and writes
        ahead, which `forget_analysis` or `account` ends.
        """
        segments = self._segments
        producers = segments.producers
        retries = producers.analyze(batches, origin, transaction_version, segments.clock_ms())
        if not retries:
            producers.hold(segments.last_stable_offset())
            if aborted := producers.producers.aborted_by(batches):
                self._log_end.active.write_aborted(aborted)
        return retries

    def forget_analysis(self) -> None:
        """After an append of producers has failed of which nothing is in the log, analyzed or not."""
        self._segments.producers.let_go()
        try:
            self._log_end.active.drop_ahead()
        except OSError as e:  # readers of committed records must not meet it
            self._log_end.refuse(f"a transaction that was not aborted is in the index: {e}")

    def account(self, batches: list[RecordBatch]) -> None:
        """After batches of producers, or a part of them, are written. If it raises, the log refuses all
        further writes."""
        end = self._log_end
        active = end.active
        try:
            self._segments.producers.enter(batches, active.append_aborted, end.offset)
        except OSError as e:  # its batches came to lie in a segment that was begun for them
            raise LogFailedError(
                f"{self._segments.directory}: batches were appended, but not all transactions that they "
                "abort are in the index: open it again"
            ) from e
        end.note_producers()
        if active.transaction_file is not None:
            end.owe_sync([active.transaction_file], True)
