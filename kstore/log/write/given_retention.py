"""The retention of a configuration that was given: Kafka's defaults alone delete nothing."""

from __future__ import annotations

from pathlib import Path

from kstore.errors import CorruptCheckpointError, InvalidConfigError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.log_dir_state import is_known_compacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.config import LogConfig
    from kstore.log.write.retention import Decision


def retention_of(config: LogConfig) -> LogConfig:
    """The configuration for retention: if only a size was given, age does not count."""
    given = config.given_options()
    if "retention_ms" not in given and given.get("retention_bytes", -1) >= 0:
        return config.replace(retention_ms=-1)
    return config


def unsaid_retention(
    path: str, config: LogConfig, decisions: Sequence[Decision]
) -> InvalidConfigError | None:
    """An error if segments of a log would go by Kafka's default of 7 days, or would go by size or age because
    Kafka's default policy is to delete, though the log is known to be compacted, or the file that says so is
    damaged. Those below the log start offset may go. OSError."""
    given = config.given_options()
    by_time = next((d for d in decisions if d.rule == "time"), None)
    if by_time is not None and "retention_ms" not in given:
        return InvalidConfigError(
            f"{path} was opened without retention_ms, and by Kafka's default of 7 days the segment at offset "
            f"{by_time.base_offset} would be deleted: {by_time.reason}. Give open(), or the topic of a "
            "store, the "
            "retention that is meant, such as retention_ms=-1, or retention_ms=604_800_000 for the default"
        )
    by_policy = next((d for d in decisions if d.rule in ("time", "size")), None)
    if by_policy is None or "cleanup_policy" in given:
        return None
    try:
        if not is_known_compacted(Path(path)):
            return None
        known, remedy = f"{path} is known to be compacted, and", ""
    except CorruptCheckpointError as e:
        known = f"whether {path} was compacted is not known, because a checkpoint is damaged: {e}. It"
        is_kept = e.file.endswith(layout.CUT)
        remedy = f", or remove {e.file}" if is_kept else f", or put back a sound copy of {e.file}"
    return InvalidConfigError(
        f"{known} was opened without cleanup_policy: by Kafka's default, delete, the segment "
        f"at offset {by_policy.base_offset} would be deleted, and the last record of many a key with it: "
        f"{by_policy.reason}. "
        f'Give open(), the topic of a store, or --config the policy that is meant: cleanup_policy="compact" '
        f'or "delete"{remedy}'
    )
