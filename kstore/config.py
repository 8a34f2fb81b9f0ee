"""The configuration of a log, by Kafka's names with underscores for dots (spec 12.1)."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

from kstore.errors import InvalidConfigError
from kstore.properties import parse_integer, read_properties

MAX32 = 2**31 - 1
MAX64 = 2**63 - 1
POLICIES = ("compact", "delete")
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class _Rule(NamedTuple):
    """What a value may be: its kind, its range or choices, and the broker's names for it, the first that is set wins."""

    kind: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, int], ...] = ()  # (name, factor to the topic's unit)


_HOURS, _MINUTES = 3_600_000, 60_000


def _int(least: int, *synonyms: str, most: int = MAX32) -> _Rule:
    return _Rule("int", least, most, (), tuple((name, 1) for name in synonyms))


def _long(least: int, *synonyms: str | tuple[str, int]) -> _Rule:
    named = tuple((s, 1) if isinstance(s, str) else s for s in synonyms)
    return _Rule("int", least, MAX64, (), named)


_RULES: dict[str, _Rule] = {
    "segment_bytes": _int(1 << 20, "log.segment.bytes"),
    "internal_segment_bytes": _int(-MAX32 - 1),
    "segment_ms": _long(1, "log.roll.ms", ("log.roll.hours", _HOURS)),
    "segment_jitter_ms": _long(0, "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOURS)),
    "segment_index_bytes": _int(4, "log.index.size.max.bytes"),
    "index_interval_bytes": _int(0, "log.index.interval.bytes"),
    "flush_messages": _long(1, "log.flush.interval.messages"),
    "flush_ms": _long(0, "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention_bytes": _long(-MAX64 - 1, "log.retention.bytes"),
    "retention_ms": _long(
        -1, "log.retention.ms", ("log.retention.minutes", _MINUTES), ("log.retention.hours", _HOURS)
    ),
    "max_message_bytes": _int(0, "message.max.bytes"),
    "cleanup_policy": _Rule("list", choices=POLICIES, synonyms=(("log.cleanup.policy", 1),)),
    "delete_retention_ms": _long(0, "log.cleaner.delete.retention.ms"),
    "min_compaction_lag_ms": _long(0, "log.cleaner.min.compaction.lag.ms"),
    "max_compaction_lag_ms": _long(1, "log.cleaner.max.compaction.lag.ms"),
    "min_cleanable_dirty_ratio": _Rule(
        "double", 0, 1, synonyms=(("log.cleaner.min.cleanable.ratio", 1),)
    ),
    "file_delete_delay_ms": _long(0, "log.segment.delete.delay.ms"),
    "preallocate": _Rule("bool", synonyms=(("log.preallocate", 1),)),
    "compression_type": _Rule("string", choices=COMPRESSIONS, synonyms=(("compression.type", 1),)),
    "compression_gzip_level": _int(-1, "compression.gzip.level", most=9),
    "compression_lz4_level": _int(1, "compression.lz4.level", most=17),
    "compression_zstd_level": _int(-131072, "compression.zstd.level", most=22),
    "message_timestamp_type": _Rule(
        "string", choices=TIMESTAMP_TYPES, synonyms=(("log.message.timestamp.type", 1),)
    ),
    "message_timestamp_before_max_ms": _long(0, "log.message.timestamp.before.max.ms"),
    "message_timestamp_after_max_ms": _long(0, "log.message.timestamp.after.max.ms"),
    "min_insync_replicas": _int(1, "min.insync.replicas"),
    "unclean_leader_election_enable": _Rule("bool", synonyms=(("unclean.leader.election.enable", 1),)),
    "remote_storage_enable": _Rule("bool"),
    "local_retention_ms": _long(-2, "log.local.retention.ms"),
    "local_retention_bytes": _long(-2, "log.local.retention.bytes"),
    "remote_log_copy_disable": _Rule("bool"),
    "remote_log_delete_on_disable": _Rule("bool"),
}


def _fail(name: str, value: object, allowed: str) -> InvalidConfigError:
    return InvalidConfigError(f"{_dotted(name)} ({name}) is {allowed}, not {value!r}")


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _range(rule: _Rule) -> str:
    if rule.kind == "int":
        most = {MAX32: "2^31 - 1", MAX64: "2^63 - 1"}.get(int(rule.most or 0), rule.most)
        return f"an integer from {rule.least} to {most}"
    if rule.kind == "double":
        return f"a number from {rule.least} to {rule.most}"
    if rule.kind == "bool":
        return "true or false"
    if rule.kind == "list":
        return f"a list of {' and '.join(rule.choices)}"
    return f"one of {', '.join(rule.choices)}"


def _checked(name: str, value: object) -> Any:
    """A typed value, as Kafka's validator for it would let it pass."""
    rule = _RULES[name]
    if rule.kind == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            raise _fail(name, value, _range(rule))
        assert rule.least is not None and rule.most is not None
        if not rule.least <= value <= rule.most or (name == "compression_gzip_level" and value == 0):
            raise _fail(name, value, _range(rule))
    elif rule.kind == "double":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise _fail(name, value, _range(rule))
        return float(value)
    elif rule.kind == "bool":
        if not isinstance(value, bool):
            raise _fail(name, value, _range(rule))
    elif rule.kind == "list":
        words = [w.strip() for w in value.split(",")] if isinstance(value, str) and value.strip() else value
        if isinstance(words, str):
            words = []
        if not isinstance(words, (list, tuple)) or any(w not in rule.choices for w in words):
            raise _fail(name, value, _range(rule))
        return tuple(dict.fromkeys(words))
    elif value not in rule.choices:
        raise _fail(name, value, _range(rule))
    return value


def _parsed(name: str, text: object) -> object:
    """A value as a properties file or a topic's configuration has it: text becomes what the key's kind says."""
    rule = _RULES[name]
    if not isinstance(text, str):
        return text
    text = text.strip()
    try:
        if rule.kind == "int":
            return parse_integer(text)
        if rule.kind == "double":
            return float(text)
    except ValueError:
        raise _fail(name, text, _range(rule)) from None
    if rule.kind == "bool":
        if text.lower() not in ("true", "false"):
            raise _fail(name, text, _range(rule))
        return text.lower() == "true"
    return text


def _known(name: str, written: str) -> str:
    """`name` if it is one of ours; InvalidConfigError with the nearest match otherwise."""
    if name in _RULES:
        return name
    near = difflib.get_close_matches(name, _RULES, 1, 0.5)
    hint = f"; did you mean {near[0] if written == name else _dotted(near[0])}?" if near else ""
    raise InvalidConfigError(f"no such configuration: {written}{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's configuration: Kafka's names, defaults and limits. Times in ms, sizes in bytes. Immutable.

    InvalidConfigError for a value that Kafka would refuse. Take `LogConfig.of(...)` for names that may be wrong.
    """

    segment_bytes: int = 1 << 30
    internal_segment_bytes: int | None = None
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = MAX64
    flush_ms: int = MAX64
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    max_message_bytes: int = (1 << 20) + 12
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX64
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX64
    message_timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False

    def __post_init__(self) -> None:
        for name in _RULES:
            value = getattr(self, name)
            if value is not None or name != "internal_segment_bytes":
                object.__setattr__(self, name, _checked(name, value))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms {self.min_compaction_lag_ms} is above max.compaction.lag.ms "
                f"{self.max_compaction_lag_ms}"
            )
        if self.remote_storage_enable and "compact" in self.cleanup_policy:
            raise InvalidConfigError("remote.storage.enable needs a cleanup.policy of delete, or an empty one")

    @classmethod
    def of(cls, **options: object) -> Self:
        """From keyword arguments; an unknown one is refused with the nearest match."""
        return cls(**{_known(name, name): value for name, value in options.items()})  # type: ignore[arg-type]

    @classmethod
    def from_topic(cls, topic: Mapping[str, object]) -> Self:
        """From a topic's configuration as Kafka names it: {"segment.bytes": "1048576"}; values may be text."""
        options = {}
        for written, value in topic.items():
            name = _known(written.replace(".", "_"), written)
            options[name] = _parsed(name, value)
        return cls(**options)  # type: ignore[arg-type]

    @classmethod
    def from_server_properties(
        cls, broker: str | PathLike[str] | Mapping[str, str], topic: Mapping[str, object] | None = None
    ) -> Self:
        """From a broker's server.properties (its path, or what it holds), and a topic's own settings, which win.

        Of several names of the broker for one thing the more exact wins: ms over minutes over hours. What does not
        concern a log is passed over.
        """
        properties = dict(broker) if isinstance(broker, Mapping) else read_properties(Path(broker))
        options: dict[str, object] = {}
        for name, rule in _RULES.items():
            for synonym, factor in rule.synonyms:
                if synonym in properties:
                    value = _parsed(name, properties[synonym])
                    options[name] = value * factor if factor != 1 and isinstance(value, int) else value
                    break
        retention = options.get("retention_ms")
        if isinstance(retention, int):
            if retention == 0:
                raise InvalidConfigError("a broker's log.retention is at least 1 ms, or -1 for no limit, not 0")
            options["retention_ms"] = max(retention, -1)
        own = cls.from_topic(topic or {})
        for written in topic or {}:
            name = written.replace(".", "_")
            options[name] = getattr(own, name)
        return cls(**options)  # type: ignore[arg-type]

    def replace(self, **changes: object) -> Self:
        """A configuration with some values changed, checked anew."""
        return replace(self, **{_known(name, name): value for name, value in changes.items()})

    @property
    def effective_segment_bytes(self) -> int:
        """segment.bytes, or the internal topic setting that stands above it."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    def to_topic(self) -> dict[str, str]:
        """What differs from the defaults, as Kafka names and writes it."""
        default = {f.name: f.default for f in fields(self)}
        changed = {}
        for name, value in asdict(self).items():
            if name in _RULES and value != default[name]:
                text = ",".join(value) if isinstance(value, tuple) else value
                changed[_dotted(name)] = str(text).lower() if isinstance(text, bool) else str(text)
        return changed
