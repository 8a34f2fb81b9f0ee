"""The configuration of a log: the options of a topic in Kafka (spec 12.1), with underscores for the dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64, instances
from kstore.errors import InvalidConfigError, visible
from kstore.kinds import Boolean, Choice, Choices, Positive, Ratio, as_text, int32, int64
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import Any, NoReturn, Self, Unpack

    from kstore.kinds import Kind
    from kstore.typed import ConfigOptions

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_SEGMENTS_OF_RETENTION = 4
_LEAST_SEGMENT_MS = 60_000


class _Synonym(NamedTuple):
    """A broker's name of an option. The value of the option is the broker's value times `factor`."""

    name: str
    kind: Kind
    factor: int = 1


class _Key(NamedTuple):
    """An option. Of its broker synonyms, the first that is set is used."""

    kind: Kind
    default: object
    synonyms: tuple[_Synonym, ...]
    text: str
    of_topic: bool = True  # False: only a broker's properties have it
    in_kafka: bool = True  # False: an option of kstore's own


class ConfigOption(NamedTuple):
    """An option of LogConfig: its `name` here, in a topic's configuration (`kafka_name`) and in
    server.properties (`broker_names`, of which the first that is set is used).

    `unit`: "bytes", "ms", "records" or "". `allowed`: the allowed values, in words. `text`: what the option
    does. `in_kafka`: False for an option of kstore's own; `kafka_name` is then its name in kstore's files.
    """

    name: str
    kafka_name: str
    broker_names: tuple[str, ...]
    unit: str
    default: object
    allowed: str
    text: str
    in_kafka: bool


def _key(kind: Kind, default: object, *synonyms: str | _Synonym, text: str) -> Any:
    """A field of LogConfig. A synonym that is only a name has the kind and unit of the field."""
    known = tuple(_Synonym(s, kind) if isinstance(s, str) else s for s in synonyms)
    return _Key(kind, default, known, text)


def _broker_key(kind: Kind, default: object, name: str, *, text: str) -> Any:
    """A field of LogConfig that a broker sets for all its topics; a topic cannot set it."""
    return _Key(kind, default, (_Synonym(name, kind),), text, False)


def _own_key(kind: Kind, default: object, *, text: str) -> Any:
    """A field of LogConfig that exists in kstore only."""
    return _Key(kind, default, (), text, in_kafka=False)


_NO_EFFECT = (
    "It has no effect in kstore, which accepts it so that a configuration of Kafka's can be used unchanged."
)


class LogConfig:
    """The configuration of a log: a topic's options in Kafka 4.3.1, with underscores for the dots in their
    names, and key_files.

    LogConfig(segment_bytes=64 << 20, retention_ms=-1) sets two options; the others have Kafka's defaults.
    Times are in milliseconds and sizes in bytes. A configuration is immutable: `replace` makes another one.
    An option that does not exist, or a value that Kafka would refuse, raises InvalidConfigError. `from_topic`
    and `from_server_properties` read Kafka's notation. `describe` lists all options as objects.

    The options:
    """

    segment_bytes: int = _key(
        int32(1 << 20),
        1 << 30,
        "log.segment.bytes",
        text="Size of a segment's .log file at which a new segment begins. Kafka's minimum is 1 MiB; for "
        "smaller segments set internal_segment_bytes instead.",
    )
    internal_segment_bytes: int | None = _key(
        int32(),
        None,
        text="If set, replaces segment_bytes. It has no minimum: Kafka uses it in tests.",
    )
    segment_ms: int = _key(
        int64(1),
        168 * _HOUR_MS,
        "log.roll.ms",
        _Synonym("log.roll.hours", int32(1), _HOUR_MS),
        text="Age of a segment at which the next append begins a new one, by the timestamps of its records. "
        "If this is not set and retention_ms is, the age is at most a quarter of retention_ms, but at least "
        "a minute.",
    )
    segment_jitter_ms: int = _key(
        int64(0),
        0,
        "log.roll.jitter.ms",
        _Synonym("log.roll.jitter.hours", int32(0), _HOUR_MS),
        text="For each segment, a random time up to this is subtracted from segment_ms, so that many logs do "
        "not roll at once.",
    )
    segment_index_bytes: int = _key(
        int32(4),
        10 << 20,
        "log.index.size.max.bytes",
        text="Largest size of an index file. A new segment begins when an index is full.",
    )
    index_interval_bytes: int = _key(
        int32(0),
        INDEX_INTERVAL_BYTES,
        "log.index.interval.bytes",
        text="An index gets an entry after more than this many bytes of the .log file. A smaller value makes "
        "lookups faster and indexes larger.",
    )
    flush_messages: int = _key(
        int64(1),
        MAX64,
        "log.flush.interval.messages",
        text="Number of unsynced records at which an append flushes.",
    )
    flush_ms: int = _key(
        int64(0),
        MAX64,
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        text="Time after which a background thread flushes appended records.",
    )
    retention_bytes: int = _key(
        int64(),
        -1,
        "log.retention.bytes",
        text="retain() deletes the oldest segments as long as the others have at least this size together. "
        "-1: no limit of size. If this is set and retention_ms is not, nothing is deleted by age.",
    )
    retention_ms: int = _key(
        int64(-1),
        168 * _HOUR_MS,
        _Synonym("log.retention.ms", int64()),
        _Synonym("log.retention.minutes", int32(), _MINUTE_MS),
        _Synonym("log.retention.hours", int32(), _HOUR_MS),
        text="retain() deletes the oldest segments whose newest record is older than this, also the active "
        "one. -1: no limit of age. Segments are deleted as a whole, so a record stays for up to retention_ms "
        'plus the age of a segment; longer with cleanup_policy="compact,delete", because a compaction merges '
        "segments.",
    )
    max_message_bytes: int = _key(
        int32(0),
        (1 << 20) + 12,
        "message.max.bytes",
        text="Size of the largest batch that can be appended, after compression.",
    )
    cleanup_policy: Sequence[str] = _key(
        Choices(("compact", "delete")),
        ("delete",),
        "log.cleanup.policy",
        text="What happens to old records, as a tuple of words or as text with commas. "
        '"delete": retain() deletes old segments, by retention_ms and retention_bytes. '
        '"compact": compact() keeps the newest record of each key and removes the others; records need a '
        "key. Neither: all records are kept.",
    )
    delete_retention_ms: int = _key(
        int64(0),
        24 * _HOUR_MS,
        "log.cleaner.delete.retention.ms",
        text="How long compact() keeps tombstones (records that delete a key) and transaction markers after "
        "it first read them.",
    )
    min_compaction_lag_ms: int = _key(
        int64(0),
        0,
        "log.cleaner.min.compaction.lag.ms",
        text="Minimum age of a segment's newest record before compact() reads the segment.",
    )
    max_compaction_lag_ms: int = _key(
        int64(1),
        MAX64,
        "log.cleaner.max.compaction.lag.ms",
        text="Age of a record at which compact() begins in spite of min_cleanable_dirty_ratio. If "
        "cleanup_policy has compact, the log also rolls at this age.",
    )
    min_cleanable_dirty_ratio: float = _key(
        Ratio(),
        0.5,
        "log.cleaner.min.cleanable.ratio",
        text="Share of uncompacted bytes above which compact() begins.",
    )
    file_delete_delay_ms: int = _key(
        int64(0),
        _MINUTE_MS,
        "log.segment.delete.delay.ms",
        text="A deleted file is first renamed to .deleted, and removed after this time.",
    )
    preallocate: bool = _key(
        Boolean(),
        False,
        "log.preallocate",
        text="True: the .log file of a new segment has its full size from the start.",
    )
    compression_type: str = _key(
        Choice(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        "producer",
        "compression.type",
        text='Compression of stored batches. "producer": batches of append_batches() keep their compression; '
        'append() and extend() do not compress. "uncompressed": none.',
    )
    compression_gzip_level: int = _key(
        int32(1, 9, other=-1),
        -1,
        "compression.gzip.level",
        text="Level of gzip, if compression_type is gzip. -1 is gzip's own default. Higher: smaller and "
        "slower.",
    )
    compression_lz4_level: int = _key(
        int32(1, 17),
        9,
        "compression.lz4.level",
        text="Level of lz4, if compression_type is lz4. Higher: smaller and slower.",
    )
    compression_zstd_level: int = _key(
        int32(-131072, 22),
        3,
        "compression.zstd.level",
        text="Level of zstd, if compression_type is zstd. Higher: smaller and slower.",
    )
    message_timestamp_type: str = _key(
        Choice(("CreateTime", "LogAppendTime")),
        "CreateTime",
        "log.message.timestamp.type",
        text='"CreateTime": a record keeps its timestamp. "LogAppendTime": it gets the time of the append.',
    )
    message_timestamp_before_max_ms: int = _key(
        int64(0),
        MAX64,
        "log.message.timestamp.before.max.ms",
        text="A record whose timestamp is earlier than the time of the append by more than this is refused. "
        "For CreateTime only.",
    )
    message_timestamp_after_max_ms: int = _key(
        int64(0),
        _HOUR_MS,
        "log.message.timestamp.after.max.ms",
        text="A record whose timestamp is later than the time of the append by more than this is refused. "
        "For CreateTime only.",
    )
    min_insync_replicas: int = _key(
        int32(1),
        1,
        "min.insync.replicas",
        text="Number of replicas that must have a record before it is acknowledged. " + _NO_EFFECT,
    )
    unclean_leader_election_enable: bool = _key(
        Boolean(),
        False,
        "unclean.leader.election.enable",
        text="Whether a replica that lacks records may become the leader. " + _NO_EFFECT,
    )
    remote_storage_enable: bool = _key(
        Boolean(),
        False,
        text="Whether old segments are moved to remote storage. kstore has no remote storage. It only "
        "checks, as Kafka does, that other options are compatible.",
    )
    local_retention_ms: int = _key(
        int64(-2),
        -2,
        "log.local.retention.ms",
        text="retention_ms for local segments; -2: as retention_ms. " + _NO_EFFECT,
    )
    local_retention_bytes: int = _key(
        int64(-2),
        -2,
        "log.local.retention.bytes",
        text="retention_bytes for local segments; -2: as retention_bytes. " + _NO_EFFECT,
    )
    remote_log_copy_disable: bool = _key(
        Boolean(),
        False,
        text="Whether copying to remote storage is disabled. " + _NO_EFFECT,
    )
    remote_log_delete_on_disable: bool = _key(
        Boolean(),
        False,
        text="Whether remote segments are deleted when remote storage is disabled. " + _NO_EFFECT,
    )
    key_files: bool = _own_key(
        Boolean(),
        False,
        text="True: a background thread writes a .keys file for each sealed or compacted segment, so that "
        "lookups of keys are fast. See make_key_files of LogWriter. Kafka has no such option.",
    )
    log_cleaner_dedupe_buffer_size: int = _broker_key(
        int64((1 << 20) + 1),
        128 << 20,
        "log.cleaner.dedupe.buffer.size",
        text="Largest map of keys of compact(), at 24 bytes a key. If the keys do not fit, compact() makes "
        "several passes. An option of a broker, not of a topic.",
    )
    log_cleaner_io_buffer_load_factor: float = _broker_key(
        Ratio(),
        0.9,
        "log.cleaner.io.buffer.load.factor",
        text="Share of the map of keys that may be filled. A larger value allows more keys and is slower. An "
        "option of a broker, not of a topic.",
    )
    log_cleaner_io_max_bytes_per_second: float = _broker_key(
        Positive(),
        1.7976931348623157e308,
        "log.cleaner.io.max.bytes.per.second",
        text="Most bytes that compact() reads and writes in a second, together. erase(), make_key_files() "
        "and dry runs have this limit, too. An option of a broker, not of a topic.",
    )
    log_cleaner_enable: bool = _broker_key(
        Boolean(),
        True,
        "log.cleaner.enable",
        text="Whether a LogStore compacts in the background. An option of a store, not of a topic.",
    )
    log_cleaner_backoff_ms: int = _broker_key(
        int64(0),
        15_000,
        "log.cleaner.backoff.ms",
        text="How often a LogStore looks for partitions to compact. An option of a store, not of a topic.",
    )
    log_retention_check_interval_ms: int = _broker_key(
        int64(1),
        5 * _MINUTE_MS,
        "log.retention.check.interval.ms",
        text="How often a LogStore deletes old segments. An option of a store, not of a topic.",
    )
    log_flush_offset_checkpoint_interval_ms: int = _broker_key(
        int32(0),
        _MINUTE_MS,
        "log.flush.offset.checkpoint.interval.ms",
        text="How often a LogStore writes the checkpoint files. An option of a store, not of a topic.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = _broker_key(
        int32(0),
        _MINUTE_MS,
        "log.flush.start.offset.checkpoint.interval.ms",
        text="How often Kafka writes log start offsets; kstore writes them at once. " + _NO_EFFECT,
    )
    offsets_retention_minutes: int = _broker_key(
        int32(1),
        7 * 24 * 60,
        "offsets.retention.minutes",
        text="How long the positions of a cursor group are kept after its last member has left. A LogStore "
        "expires them only if this is set. An option of a store, not of a topic.",
    )
    offsets_retention_check_interval_ms: int = _broker_key(
        int64(1),
        10 * _MINUTE_MS,
        "offsets.retention.check.interval.ms",
        text="How often a LogStore looks for positions to expire. An option of a store, not of a topic.",
    )

    def __init__(self, **options: Unpack[ConfigOptions]) -> None:
        for name, value in options.items():
            if name not in _KEYS:
                raise _unknown(name, "no such option", _both)
            self.__dict__[name] = _accept(_KEYS[name], name, value)  # the class has the defaults
        _check_together(self)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a LogConfig cannot be changed: replace({name}=...) makes another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a LogConfig cannot be changed: replace() makes another one")

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, LogConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"LogConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in _KEYS)})"

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _KEYS)

    @classmethod
    def from_topic(cls, topic: Mapping[str, object]) -> Self:
        """Make a configuration from a topic's options in Kafka's notation, such as {"segment.bytes":
        "1048576"}.

        Values are text, which is parsed as Kafka parses it, or have the right type. The two options that name
        throttled replicas are ignored. InvalidConfigError for an unknown name or a value that is not allowed.
        """
        return cls(**_topic_options(topic))

    @classmethod
    def from_server_properties(
        cls, broker: str | PathLike[str] | Mapping[str, object], topic: Mapping[str, object] | None = None
    ) -> Self:
        """Make the configuration that a topic has on a broker, from the broker's server.properties and the
        topic's options.

        broker: the path of the file, or a mapping with its content. topic: as in `from_topic`. The topic's
        value has precedence over the broker's (log.segment.bytes for segment.bytes), and that over the
        default. Of log.retention.ms, log.retention.minutes and log.retention.hours the first that is set is
        used, likewise of log.roll.ms and log.roll.hours. All of them are checked. A negative log.retention
        means no limit, and 0 is refused, as by the broker.

        Other properties are ignored, as by the broker. A UserWarning names each property that begins with
        log. and does not exist in Kafka 4.3.1, and each topic option, such as segment.bytes, which has no
        effect in that file.

        Raises InvalidConfigError for a value that is not allowed, OSError if the file cannot be read.
        """
        properties = broker if isinstance(broker, Mapping) else read_properties(broker)
        instances("the names of broker", properties, str)
        _warn_of_idle(properties)
        return cls(**(_broker_options(properties) | _topic_options(topic or {})))

    def replace(self, **changes: Unpack[ConfigOptions]) -> Self:
        """Make a copy with other values for some options: config.replace(segment_bytes=64 << 20).

        InvalidConfigError for an unknown option or a value that is not allowed.
        """
        return type(self)(**self.__dict__ | dict(changes))

    def given_options(self) -> dict[str, Any]:
        """The options that were set, by name, even if they are the defaults:
        `LogConfig(**config.given_options())` is an equal configuration. Options that were not set have the
        values that the log or the store has saved.
        """
        return {name: self.__dict__[name] for name in _KEYS if name in self.__dict__}

    def to_topic(self) -> dict[str, str]:
        """The options that differ from their defaults, as text in Kafka's notation: {"segment.bytes":
        "1048576"}.

        `from_topic` makes an equal configuration from it. If key_files is set, the result has key.files,
        which Kafka refuses.
        """
        values = {name: getattr(self, name) for name, key in _KEYS.items() if key.of_topic}
        return {_dotted(n): as_text(value) for n, value in values.items() if value != _KEYS[n].default}

    @classmethod
    def describe(cls) -> list[ConfigOption]:
        """All options with their names, units, defaults, allowed values and explanations."""
        return [
            ConfigOption(
                name,
                _dotted(name),
                tuple(synonym.name for synonym in key.synonyms),
                _unit_of(name),
                key.default,
                key.kind.allowed,
                key.text,
                key.in_kafka,
            )
            for name, key in _KEYS.items()
        ]

    @property
    def effective_segment_bytes(self) -> int:
        """Size at which a new segment begins: internal_segment_bytes if it is set, else segment_bytes."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def effective_segment_ms(self) -> int:
        """Age at which a new segment begins: segment_ms; or less, so that retention and compaction can work.

        Retention deletes a segment once its newest record is too old, so a busy log would keep records for
        retention_ms and a whole segment, by default 7 days, longer. Unless segment_ms was set, a segment is
        no longer than a quarter of a retention_ms that was set, but at least a minute, so that a short
        retention_ms makes no crowd of segments. Compaction has to reach each record within
        max_compaction_lag_ms.
        """
        given = self.given_options()
        limits = [self.segment_ms]
        if self.deletes and given.get("retention_ms", -1) >= 0 and "segment_ms" not in given:
            limits.append(max(self.retention_ms // _SEGMENTS_OF_RETENTION, _LEAST_SEGMENT_MS))
        if self.compacts and self.max_compaction_lag_ms > 0:
            limits.append(self.max_compaction_lag_ms)
        return min(limits)

    @property
    def deletes(self) -> bool:
        """Whether cleanup_policy contains delete."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether cleanup_policy contains compact."""
        return "compact" in self.cleanup_policy


def changed(config: LogConfig, changes: Mapping[str, Any]) -> LogConfig:
    """The configuration with these changes. None restores the default of an option, as if it had not been
    set. InvalidConfigError."""
    for name in changes:
        if name not in _KEYS:
            raise _unknown(name, "no such option", _both)
    options = {**config.given_options(), **changes}
    return LogConfig(**{name: value for name, value in options.items() if value is not None})


def with_topic_options(config: LogConfig, options: Mapping[str, str]) -> LogConfig:
    """The configuration with these topic options, in Kafka's notation, instead of its own.
    InvalidConfigError."""
    others = {n: value for n, value in config.given_options().items() if not _KEYS[n].of_topic}
    return LogConfig(**others, **in_python(options))


def given_in_text(config: LogConfig) -> dict[str, str]:
    """The topic options that were set, in Kafka's notation."""
    given = config.given_options().items()
    return {_dotted(n): as_text(value) for n, value in given if _KEYS[n].of_topic and value is not None}


def in_python(options: Mapping[str, str]) -> dict[str, Any]:
    """Convert options from Kafka's notation to those of LogConfig. InvalidConfigError."""
    parsed = LogConfig.from_topic(options)
    names = [name.replace(".", "_") for name in options]
    return {name: getattr(parsed, name) for name in names if hasattr(parsed, name)}


_KEYS: dict[str, _Key] = {name: key for name, key in vars(LogConfig).items() if isinstance(key, _Key)}
for _name, _known in _KEYS.items():
    setattr(LogConfig, _name, _known.default)
_THROTTLES = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
_TOPIC_NAMES = {name.replace("_", ".") for name, key in _KEYS.items() if key.of_topic} | _THROTTLES
_TOPIC_NAME_OF = {s.name: name for name, key in _KEYS.items() for s in key.synonyms}
_BROKER_LOG_NAMES = _TOPIC_NAME_OF.keys() | {
    "log.cleaner.io.buffer.size",
    "log.cleaner.threads",
    "log.dir",
    "log.dir.failure.timeout.ms",
    "log.dirs",
    "log.initial.task.delay.ms",
}


# Names that users mistake for options of a configuration.
_PARTITIONS = "create_topic(name, partitions) and add_partitions(topic, total) say how many there are"
_DURABILITY = "durability is an argument of kstore.open and LogStore, not of a topic"
_MEANT = {
    "partitions": _PARTITIONS,
    "num_partitions": _PARTITIONS,
    "durability": _DURABILITY,
    "durable": _DURABILITY,
    "fsync": _DURABILITY,
    "sync": _DURABILITY,
    "acks": _DURABILITY,
    "keep_for": "keep_for is an argument of LogStore, and of retain()",
    "leader_epoch": "leader_epoch is an argument of kstore.open and LogStore",
    "keep_cut": "keep_cut is an argument of kstore.open and LogStore",
}


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _unit_of(name: str) -> str:
    if name == "flush_messages":
        return "records"
    return next((u for u in ("bytes", "ms") if name.endswith(u)), "bytes" if name.endswith("_size") else "")


def _help(option: ConfigOption) -> str:
    """The text about an option in help(LogConfig)."""
    default = repr(option.default) + (f" {option.unit}" if option.unit and option.default is not None else "")
    name = f"; in Kafka {option.kafka_name}" if option.in_kafka else ""
    import textwrap  # imported here: only help() needs it

    text = f"{option.text} Default {default}{name}."
    return f"    {option.name}:\n" + textwrap.indent(textwrap.fill(text, 108), " " * 8)


def _both(name: str) -> str:
    return (
        f"{name} ({_dotted(name)} in Kafka)" if _KEYS[name].in_kafka else f"{name} ({_dotted(name)} as text)"
    )


def _unknown(name: str, what: str, called: Callable[[str], str]) -> InvalidConfigError:
    """The error for a name that does not exist, with the most similar one in its notation."""
    import difflib

    asked = name.replace(".", "_")
    brokers = name.replace("_", ".")
    near = (
        [_TOPIC_NAME_OF[brokers]] if brokers in _TOPIC_NAME_OF else difflib.get_close_matches(asked, _KEYS, 1)
    )
    hint = f"; the nearest is {called(near[0])}" if near else ""
    meant = difflib.get_close_matches(asked, [*_KEYS, *_MEANT], 1, 0.65)
    if meant and meant[0] in _MEANT:
        hint = f"; {_MEANT[meant[0]]}"
    if near == [asked] and not _KEYS[asked].of_topic:
        hint = (
            f"; {_both(near[0])} is an option of a whole store or broker: "
            "LogStore and, on the command line, --server-properties take it"
        )
    elif near == [name]:  # the name in the other notation
        hint = f"; here it is called {_dotted(name)}"
    return InvalidConfigError(f"{what}: {name}{hint}", name=name)


def _accept(key: _Key | _Synonym, name: str, value: object, *, text: bool = False) -> Any:
    """Check a value, or parse it if it is text and `text` is set. `name`: its name in the error."""
    if value is None and isinstance(key, _Key) and key.default is None:
        return None
    try:
        return key.kind.parse(value) if text and isinstance(value, str) else key.kind.check(value)
    except (ValueError, TypeError, OverflowError):  # an array, or a number that no float holds
        hint = ""
        if isinstance(value, str) and value == "none" and "uncompressed" in key.kind.allowed:
            hint = "; none is called uncompressed here"
        elif key is _KEYS["segment_bytes"]:
            other = "internal.segment.bytes" if "." in name else "internal_segment_bytes"
            hint = f". Set {other} instead for smaller segments"
        raise InvalidConfigError(
            f"{name} is {value!r}, allowed is {key.kind.allowed}{hint}", name=name, value=value
        ) from None


def _topic_options(topic: Mapping[str, object]) -> dict[str, Any]:
    """Convert a topic's configuration from Kafka's notation."""
    if not isinstance(topic, Mapping):
        raise TypeError(f"topic is a mapping of option names and values, not {topic!r:.80}")
    options = {}
    instances("the names of topic", topic, str)
    for name, value in topic.items():
        if name not in _TOPIC_NAMES:
            raise _unknown(name, "no such topic configuration", _dotted)
        if name not in _THROTTLES:
            option = name.replace(".", "_")
            options[option] = _accept(_KEYS[option], name, value, text=True)
    return options


def _broker_options(properties: Mapping[str, object]) -> dict[str, Any]:
    """The options of topics in a broker's properties."""
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
    """Warn of properties that look like options of a log and have no effect."""
    import difflib
    import warnings

    for name in sorted(properties):
        if name in _TOPIC_NAMES and name not in _TOPIC_NAME_OF:
            synonyms = _KEYS[name.replace(".", "_")].synonyms if name not in _THROTTLES else ()
            hint = f"; a broker calls it {synonyms[0].name}" if synonyms else ""
            warnings.warn(f"{visible(name)} has no effect for a broker{hint}", stacklevel=3)
        elif name.startswith("log.") and name not in _BROKER_LOG_NAMES:
            near = difflib.get_close_matches(name, _BROKER_LOG_NAMES, 1)
            hint = f"; the nearest is {near[0]}" if near else ""
            warnings.warn(f"{visible(name)} has no effect: Kafka 4.3.1 does not have it{hint}", stacklevel=3)


def _check_together(config: LogConfig) -> None:
    """Check the combinations of values that Kafka checks. InvalidConfigError."""

    def refuse(name: str, text: str) -> InvalidConfigError:
        return InvalidConfigError(text, name=name, value=getattr(config, name))

    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        raise refuse(
            "min_compaction_lag_ms",
            f"min.compaction.lag.ms is {least}, allowed is at most max.compaction.lag.ms, {most}",
        )
    slots = config.log_cleaner_dedupe_buffer_size // 24
    if slots * config.log_cleaner_io_buffer_load_factor <= 1:
        raise refuse(
            "log_cleaner_io_buffer_load_factor",
            f"log.cleaner.io.buffer.load.factor is {config.log_cleaner_io_buffer_load_factor}, allowed is "
            f"what leaves room for more than one key of {slots}",
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


class _Documentation:
    """A docstring that is built at the first use."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, owner: object) -> str:
        return self._text.rstrip() + "\n" + "\n".join(map(_help, LogConfig.describe())) + "\n"


if LogConfig.__doc__ is not None:  # not under python -OO
    LogConfig.__doc__ = _Documentation(LogConfig.__doc__)  # type: ignore[assignment]

__all__ = ["ConfigOption", "LogConfig"]
