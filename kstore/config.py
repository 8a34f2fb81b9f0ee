"""The configuration of a log: Kafka's topic configuration (spec 12.1), with underscores for the dots in its names."""

import dataclasses
import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypedDict

from kstore.errors import InvalidConfigError
from kstore.kinds import MAX32, MAX64, Boolean, Choice, Choices, Kind, Ratio, as_text, int32, int64
from kstore.properties import read_properties

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


class _Synonym(NamedTuple):
    """A broker's name for a topic's key. The key's value is this one's times `factor`."""

    name: str
    kind: Kind
    factor: int = 1


class _Key(NamedTuple):
    """What is known of a key; of its broker synonyms the first that is set counts."""

    kind: Kind
    default: object
    synonyms: tuple[_Synonym, ...]


def _key(kind: Kind, default: object, *synonyms: str | _Synonym) -> Any:
    """A field of LogConfig; a synonym that is only a name has the key's own kind and unit."""
    known = tuple(_Synonym(s, kind) if isinstance(s, str) else s for s in synonyms)
    return dataclasses.field(default=default, metadata={"key": _Key(kind, default, known)})


class ConfigOptions(TypedDict, total=False):
    """The names of LogConfig as keyword arguments, for type checkers: kstore.open and LogConfig take them."""

    segment_bytes: int
    internal_segment_bytes: int | None
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    max_message_bytes: int
    cleanup_policy: Sequence[str]
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    file_delete_delay_ms: int
    preallocate: bool
    compression_type: Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"]
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    remote_storage_enable: bool
    local_retention_ms: int
    local_retention_bytes: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's configuration, with Kafka 4.3.1's names, defaults and limits. Names end in their unit.

    Immutable, and checked when it is made: InvalidConfigError for a name that does not exist (it tells the nearest that
    does) and for a value that Kafka would refuse. Values are typed: an int is no bool, no float and no text; a
    cleanup_policy may also be text with commas. `from_topic` and `from_server_properties` read text.
    """

    segment_bytes: int = _key(int32(1 << 20), 1 << 30, "log.segment.bytes")
    """Size at which a new segment begins. Kafka has no smaller one than 1 MiB, but see internal_segment_bytes."""

    internal_segment_bytes: int | None = _key(int32(), None)
    """Stands above segment_bytes where it is set, and may be as small as a test wants it."""

    segment_ms: int = _key(
        int64(1), 168 * _HOUR_MS, "log.roll.ms", _Synonym("log.roll.hours", int32(1), _HOUR_MS)
    )
    """Age at which a new segment begins: judged at an append, by the records' timestamps (spec 5.1)."""

    segment_jitter_ms: int = _key(
        int64(0), 0, "log.roll.jitter.ms", _Synonym("log.roll.jitter.hours", int32(0), _HOUR_MS)
    )
    """Up to how much earlier than segment_ms that may happen, drawn anew for each segment."""

    segment_index_bytes: int = _key(int32(4), 10 << 20, "log.index.size.max.bytes")
    """Size an index may grow to; a full one begins a new segment."""

    index_interval_bytes: int = _key(int32(0), 4096, "log.index.interval.bytes")
    """More than so many bytes of log lie between two entries of an index."""

    flush_messages: int = _key(int64(1), MAX64, "log.flush.interval.messages")
    """Number of unflushed records that makes an append flush."""

    flush_ms: int = _key(int64(0), MAX64, "log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    """Time since the last flush after which the timer flushes."""

    retention_bytes: int = _key(int64(), -1, "log.retention.bytes")
    """Size below which retention by size never brings the log; negative: no such retention (spec 9.2)."""

    retention_ms: int = _key(
        int64(-1),
        168 * _HOUR_MS,
        _Synonym("log.retention.ms", int64()),
        _Synonym("log.retention.minutes", int32(), _MINUTE_MS),
        _Synonym("log.retention.hours", int32(), _HOUR_MS),
    )
    """Age above which segments go; -1: no retention by time (spec 9.2)."""

    max_message_bytes: int = _key(int32(0), (1 << 20) + 12, "message.max.bytes")
    """Size of the largest batch that is accepted, as it is stored."""

    cleanup_policy: Sequence[str] = _key(Choices(("compact", "delete")), ("delete",), "log.cleanup.policy")
    """What happens to old records: a tuple of "delete" and "compact"; neither: they stay (spec 9.1)."""

    delete_retention_ms: int = _key(int64(0), 24 * _HOUR_MS, "log.cleaner.delete.retention.ms")
    """Time that compaction keeps tombstones and transaction markers."""

    min_compaction_lag_ms: int = _key(int64(0), 0, "log.cleaner.min.compaction.lag.ms")
    """Time for which a record is not compacted."""

    max_compaction_lag_ms: int = _key(int64(1), MAX64, "log.cleaner.max.compaction.lag.ms")
    """Time after which a record is due for compaction, however clean the log is."""

    min_cleanable_dirty_ratio: float = _key(Ratio(), 0.5, "log.cleaner.min.cleanable.ratio")
    """Share of uncompacted bytes above which the log is compacted."""

    file_delete_delay_ms: int = _key(int64(0), _MINUTE_MS, "log.segment.delete.delay.ms")
    """Time between renaming a file to .deleted and removing it."""

    preallocate: bool = _key(Boolean(), False, "log.preallocate")
    """Whether a new segment's file has its full size from the start."""

    compression_type: str = _key(
        Choice(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), "producer", "compression.type"
    )
    """Codec that batches are stored in; "producer": the one they came in."""

    compression_gzip_level: int = _key(int32(1, 9, other=-1), -1, "compression.gzip.level")
    compression_lz4_level: int = _key(int32(1, 17), 9, "compression.lz4.level")
    compression_zstd_level: int = _key(int32(-131072, 22), 3, "compression.zstd.level")

    message_timestamp_type: str = _key(
        Choice(("CreateTime", "LogAppendTime")), "CreateTime", "log.message.timestamp.type"
    )
    """Whose time records bear: the producer's, or that of the append."""

    message_timestamp_before_max_ms: int = _key(int64(0), MAX64, "log.message.timestamp.before.max.ms")
    """How far a CreateTime may lie before the append."""

    message_timestamp_after_max_ms: int = _key(int64(0), _HOUR_MS, "log.message.timestamp.after.max.ms")
    """How far a CreateTime may lie after the append."""

    min_insync_replicas: int = _key(int32(1), 1, "min.insync.replicas")
    unclean_leader_election_enable: bool = _key(Boolean(), False, "unclean.leader.election.enable")
    remote_storage_enable: bool = _key(Boolean(), False)
    local_retention_ms: int = _key(int64(-2), -2, "log.local.retention.ms")
    local_retention_bytes: int = _key(int64(-2), -2, "log.local.retention.bytes")
    remote_log_copy_disable: bool = _key(Boolean(), False)
    remote_log_delete_on_disable: bool = _key(Boolean(), False)

    def __new__(cls, **options: Any) -> Self:
        """Refuses unknown names in kstore's own words; what is known is for the dataclass's own constructor."""
        for name in options:
            if name not in _KEYS:
                raise _unknown(name, "no such option")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, key in _KEYS.items():
            object.__setattr__(self, name, _accept(key, name, getattr(self, name)))
        _check_together(self)

    @classmethod
    def from_topic(cls, topic: Mapping[str, object]) -> Self:
        """From a topic's configuration as Kafka has it: {"segment.bytes": "1048576", "cleanup.policy": "compact"}.

        Values are text, read as Kafka reads it, or typed. The two keys that name throttled replicas are passed over:
        they say nothing of a log.
        """
        return cls(**_topic_options(topic))

    @classmethod
    def from_server_properties(
        cls, broker: str | PathLike[str] | Mapping[str, object], topic: Mapping[str, object] | None = None
    ) -> Self:
        """What a broker with this server.properties (its path, or what it holds) gives a topic with these overrides.

        The topic's own value counts first, then the broker's property (`log.segment.bytes` for segment.bytes), then
        the default; of log.retention.ms, .minutes and .hours the first that is there counts, likewise of log.roll.ms
        and .hours. Every one that is there is checked, also one that does not count. As for the broker, a negative
        log.retention means no limit, and 0 is refused.

        Other properties are passed over, also those that Kafka does not know: the broker does so, and to read its logs
        kstore must end up with what it uses. But for a name in log. that Kafka 4.3.1 does not have, and for a topic's
        name, which has no effect there, a UserWarning says so, since that is rarely what was meant.
        """
        properties = broker if isinstance(broker, Mapping) else read_properties(Path(broker))
        _warn_of_idle(properties)
        return cls(**(_broker_options(properties) | _topic_options(topic or {})))

    def replace(self, **changes: Any) -> Self:
        """A configuration with these values instead, checked anew."""
        return dataclasses.replace(self, **changes)

    def to_topic(self) -> dict[str, str]:
        """What differs from the defaults, as Kafka writes it; `from_topic` makes the same configuration of it."""
        values = {name: getattr(self, name) for name in _KEYS}
        return {_dotted(n): as_text(value) for n, value in values.items() if value != _KEYS[n].default}

    @property
    def effective_segment_bytes(self) -> int:
        """The size that counts: internal_segment_bytes where it is set, else segment_bytes."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def deletes(self) -> bool:
        """Whether cleanup_policy contains delete."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether cleanup_policy contains compact."""
        return "compact" in self.cleanup_policy


_KEYS: dict[str, _Key] = {field.name: field.metadata["key"] for field in dataclasses.fields(LogConfig)}
_THROTTLES = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
_TOPIC_NAMES = {name.replace("_", ".") for name in _KEYS} | _THROTTLES
_TOPIC_NAME_OF = {s.name: name for name, key in _KEYS.items() for s in key.synonyms}
_BROKER_LOG_NAMES = _TOPIC_NAME_OF.keys() | {
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.enable",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.dir",
    "log.dir.failure.timeout.ms",
    "log.dirs",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.initial.task.delay.ms",
    "log.retention.check.interval.ms",
}


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _both(name: str) -> str:
    return f"{name} ({_dotted(name)} in Kafka)"


def _unknown(name: str, what: str) -> InvalidConfigError:
    """The error for a name that does not exist, with the one that was likely meant, in both notations."""
    asked = name.replace(".", "_")
    near = [_TOPIC_NAME_OF[name]] if name in _TOPIC_NAME_OF else difflib.get_close_matches(asked, _KEYS, 1)
    hint = f"; the nearest is {_both(near[0])}" if near else ""
    return InvalidConfigError(f"{what}: {name}{hint}", name=name)


def _accept(key: _Key | _Synonym, name: str, value: object, *, text: bool = False) -> Any:
    """The value as it is kept; text is parsed if `text` says so. `name` is what the error calls it."""
    if value is None and isinstance(key, _Key) and key.default is None:
        return None
    try:
        return key.kind.parse(value) if text and isinstance(value, str) else key.kind.check(value)
    except ValueError:
        raise InvalidConfigError(
            f"{name} is {value!r}, allowed is {key.kind.allowed}", name=name, value=value
        ) from None


def _topic_options(topic: Mapping[str, object]) -> dict[str, Any]:
    """A topic's configuration in Kafka's notation, in Python's."""
    options = {}
    for name, value in topic.items():
        if name not in _TOPIC_NAMES:
            raise _unknown(name, "no such topic configuration")
        if name not in _THROTTLES:
            option = name.replace(".", "_")
            options[option] = _accept(_KEYS[option], name, value, text=True)
    return options


def _broker_options(properties: Mapping[str, object]) -> dict[str, Any]:
    """What a broker's properties say for its topics."""
    options = {}
    for option, key in _KEYS.items():
        given = [s for s in key.synonyms if s.name in properties]
        values = [_accept(s, s.name, properties[s.name], text=True) for s in given]
        if not values:
            continue
        value, synonym = values[0], given[0]
        if synonym.factor != 1:
            value *= synonym.factor
        if option == "retention_ms":
            if value == 0:
                raise InvalidConfigError(
                    f"{synonym.name} is 0, allowed is what makes at least 1 ms, or -1 for no limit",
                    name=synonym.name,
                    value=properties[synonym.name],
                )
            value = max(value, -1)
        options[option] = value
    return options


def _warn_of_idle(properties: Mapping[str, object]) -> None:
    """Warns of properties that look as if they concerned a log, and do not."""
    for name in sorted(properties):
        if name in _TOPIC_NAMES and name not in _TOPIC_NAME_OF:
            synonyms = _KEYS[name.replace(".", "_")].synonyms if name not in _THROTTLES else ()
            hint = f"; a broker calls it {synonyms[0].name}" if synonyms else ""
            warnings.warn(f"{name} has no effect for a broker{hint}", stacklevel=3)
        elif name.startswith("log.") and name not in _BROKER_LOG_NAMES:
            near = difflib.get_close_matches(name, _BROKER_LOG_NAMES, 1)
            hint = f"; the nearest is {near[0]}" if near else ""
            warnings.warn(f"{name} has no effect: Kafka 4.3.1 does not have it{hint}", stacklevel=3)


def _check_together(config: LogConfig) -> None:
    """What Kafka asks of several values at once."""

    def refuse(name: str, text: str) -> InvalidConfigError:
        return InvalidConfigError(text, name=name, value=getattr(config, name))

    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        raise refuse(
            "min_compaction_lag_ms",
            f"min.compaction.lag.ms is {least}, allowed is at most max.compaction.lag.ms, {most}",
        )
    if not config.remote_storage_enable:
        return
    if config.compacts:
        raise refuse(
            "cleanup_policy",
            f"cleanup.policy is {as_text(config.cleanup_policy)!r}, "
            "allowed with remote.storage.enable is delete alone, or nothing at all",
        )
    for unit in ("ms", "bytes"):
        local, total = getattr(config, f"local_retention_{unit}"), getattr(config, f"retention_{unit}")
        if total != -1 and local != -2 and (local == -1 or local > total):
            raise refuse(
                f"local_retention_{unit}",
                f"local.retention.{unit} is {local}, allowed with remote.storage.enable is at most "
                f"retention.{unit}, {total}, or -2 for the same",
            )


__all__ = ["MAX32", "MAX64", "ConfigOptions", "LogConfig"]
