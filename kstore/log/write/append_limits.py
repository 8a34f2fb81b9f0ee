"""What a configuration says of appends, in the plain values that the engine takes."""

from __future__ import annotations

from kstore.arguments import DURABILITY, MAX_DECOMPRESSED_BYTES
from kstore.engine.append.log_appender import AppendLimits
from kstore.engine.record.codec import NAMES as CODECS
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.config import LogConfig


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
