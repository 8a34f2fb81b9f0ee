"""LogConfigTest and its neighbours (spec 12.1, 13.13): names, defaults, limits, a broker's synonyms."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import InvalidConfigError, KstoreError, LogConfig
from tests.conformance.writing import opened, put, rec
from tests.helpers.examples import examples
from tests.helpers.forge import MAX32, MAX64

DEFAULTS = {
    "segment.bytes": 1073741824, "internal.segment.bytes": None, "segment.ms": 604800000,
    "segment.jitter.ms": 0, "segment.index.bytes": 10485760, "index.interval.bytes": 4096,
    "flush.messages": MAX64, "flush.ms": MAX64, "retention.bytes": -1, "retention.ms": 604800000,
    "max.message.bytes": 1048588, "cleanup.policy": ("delete",), "delete.retention.ms": 86400000,
    "min.compaction.lag.ms": 0, "max.compaction.lag.ms": MAX64, "min.cleanable.dirty.ratio": 0.5,
    "file.delete.delay.ms": 60000, "preallocate": False, "compression.type": "producer",
    "compression.gzip.level": -1, "compression.lz4.level": 9, "compression.zstd.level": 3,
    "message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": MAX64,
    "message.timestamp.after.max.ms": 3600000, "min.insync.replicas": 1,
    "unclean.leader.election.enable": False, "remote.storage.enable": False,
    "local.retention.ms": -2, "local.retention.bytes": -2,
    "remote.log.copy.disable": False, "remote.log.delete.on.disable": False,
}  # fmt: skip

# Of a broker only: no topic has them, and they are called the same in server.properties.
BROKER_DEFAULTS = {
    "log.cleaner.dedupe.buffer.size": 134217728, "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.max.bytes.per.second": sys.float_info.max,
    "log.cleaner.enable": True, "log.cleaner.backoff.ms": 15000,
    "log.retention.check.interval.ms": 300000,
    "log.flush.offset.checkpoint.interval.ms": 60000,
    "log.flush.start.offset.checkpoint.interval.ms": 60000,
    "offsets.retention.minutes": 10080, "offsets.retention.check.interval.ms": 600000,
}  # fmt: skip

# The least and the greatest allowed value; the next are not.
RANGES = {
    "segment.bytes": (1048576, MAX32), "internal.segment.bytes": (-(2**31), MAX32),
    "segment.ms": (1, MAX64), "segment.jitter.ms": (0, MAX64), "segment.index.bytes": (4, MAX32),
    "index.interval.bytes": (0, MAX32), "flush.messages": (1, MAX64), "flush.ms": (0, MAX64),
    "retention.bytes": (-(2**63), MAX64), "retention.ms": (-1, MAX64), "max.message.bytes": (0, MAX32),
    "delete.retention.ms": (0, MAX64), "min.compaction.lag.ms": (0, MAX64),
    "max.compaction.lag.ms": (1, MAX64), "file.delete.delay.ms": (0, MAX64),
    "compression.gzip.level": (-1, 9), "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131072, 22), "message.timestamp.before.max.ms": (0, MAX64),
    "message.timestamp.after.max.ms": (0, MAX64), "min.insync.replicas": (1, MAX32),
    "local.retention.ms": (-2, MAX64), "local.retention.bytes": (-2, MAX64),
}  # fmt: skip

COMPRESSION = ["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
TIMES = ["CreateTime", "LogAppendTime"]
BOOLEANS = {"true": True, "TRUE": True, " False ": False, True: True}
POLICIES = {
    "delete": ("delete",), "compact,delete": ("compact", "delete"), "delete,delete,delete": ("delete",),
    " delete ,\tcompact ": ("delete", "compact"), "": (), "  ": (), (): (),
    ("delete", "compact", "delete"): ("delete", "compact"),
}  # fmt: skip
# What a topic may say, with the value that is kept; what it may not; how the error ends.
FORMS: list[tuple[str, dict[Any, Any], list[Any], str]] = [
    *(
        (name, BOOLEANS, ["yes", "1", "", 1, None], "true or false")
        for name in DEFAULTS
        if DEFAULTS[name] is False
    ),
    (
        "min.cleanable.dirty.ratio",
        {"0.5": 0.5, "0": 0.0, "1": 1.0, "1e-1": 0.1, " .5 ": 0.5, "5.e-1": 0.5, 1: 1.0, 0.25: 0.25},
        # NaN too, which Kafka lets pass
        ["1.0001", "-0.1", "NaN", "Infinity", "", "1_0e-1", "x", 2, -1.0, float("nan"), True],
        "a number from 0 to 1",
    ),
    *(
        (name, {f" {word} ": word for word in words}, ["none", words[0].upper(), words[0].swapcase(), "", 3],
         f"one of {', '.join(words)}")
        for name, words in (("compression.type", COMPRESSION), ("message.timestamp.type", TIMES))
    ),
    (
        "cleanup.policy",
        POLICIES,
        ["delete,", ",delete", ",", "Delete", "delete;compact", "purge", [""], [3], 3, None],
        "any of compact, delete",
    ),
]  # fmt: skip


def get(config: LogConfig, name: str) -> Any:
    return getattr(config, name.replace(".", "_"))


def one(option: str, value: Any) -> LogConfig:
    """With one option, by its Python name."""
    return LogConfig(**{option: value})


def broker(**properties: Any) -> LogConfig:
    """From a server.properties with these, underscores for dots, `log.` before each."""
    return LogConfig.from_server_properties({f"log.{k.replace('_', '.')}": v for k, v in properties.items()})


def test_kafka_config_to_props() -> None:
    """Every key and its default; an empty server.properties and an empty topic make the same."""
    config, described = LogConfig(), LogConfig.describe()
    assert {name: get(config, name) for name in DEFAULTS | BROKER_DEFAULTS} == DEFAULTS | BROKER_DEFAULTS
    assert {o.kafka_name for o in described if o.in_kafka} == {*DEFAULTS, *BROKER_DEFAULTS}
    assert [option.name for option in described if not option.in_kafka] == ["key_files"]
    assert LogConfig.from_topic({}) == LogConfig.from_server_properties({}) == config
    assert config.to_topic() == {}


def test_defaults_are_values_that_may_be_given() -> None:
    """Defaults are not checked at each construction: they already have the form in which values are kept."""
    names = [option.name for option in LogConfig.describe()]
    plain = LogConfig()
    again = LogConfig(**{name: getattr(plain, name) for name in names})
    for name in names:
        default, accepted = getattr(plain, name), getattr(again, name)
        assert (type(default), default) == (type(accepted), accepted), name


def test_options_of_the_cleaner() -> None:
    """A broker's properties have them under their own names; a topic has none of them."""
    given = {
        "log.cleaner.dedupe.buffer.size": "2000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.cleaner.io.max.bytes.per.second": "1e6",
    }
    config = LogConfig.from_server_properties(given)
    assert [get(config, name) for name in given] == [2_000_000, 0.5, 1e6]
    assert config.to_topic() == {}
    for name, value in given.items():
        with pytest.raises(InvalidConfigError, match="no such topic configuration"):
            LogConfig.from_topic({name: value})
    wrong = {
        "log_cleaner_dedupe_buffer_size": [1 << 20],
        "log_cleaner_io_buffer_load_factor": [1.1, 0],
        "log_cleaner_backoff_ms": [-1],
        "log_retention_check_interval_ms": [0],
        "log_flush_offset_checkpoint_interval_ms": [1 << 31],
        "offsets_retention_minutes": [0, 1 << 31],
        "offsets_retention_check_interval_ms": [0],
        "log_cleaner_io_max_bytes_per_second": [0, float("nan"), True],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(InvalidConfigError, match=name.replace("_", ".")):
                one(name, value)


@pytest.mark.parametrize("name", RANGES)
def test_from_props_invalid_numbers(name: str) -> None:
    """The ends of a range are allowed, the next are not, in either notation; nor is what is no integer."""
    option, (least, most) = name.replace(".", "_"), RANGES[name]
    wrong = [least - 1, most + 1, *([0] if name == "compression.gzip.level" else [])]
    for value in (least, most) if name != "min.compaction.lag.ms" else (least, most - 1):
        assert getattr(one(option, value), option) == value
        assert get(LogConfig.from_topic({name: f" {value:+d}\t"}), name) == value
        assert get(LogConfig.from_topic({name: value}), name) == value
    for bad in [*wrong, True, 5000000.0, "5000000", [5000000]]:
        with pytest.raises(InvalidConfigError, match=f"{option} is .*, allowed is .*integer from") as caught:
            one(option, bad)
        assert (caught.value.name, caught.value.value) == (option, bad)
    for text in [*map(str, wrong), "", "x", "1e6", "5000000.0", "5_000_000", "0x500000", "5000000 1", "true"]:
        with pytest.raises(InvalidConfigError, match=f"{name} is .*, allowed is .*integer from") as caught:
            LogConfig.from_topic({name: text})
        assert (caught.value.name, caught.value.value) == (name, text)


@pytest.mark.parametrize(("name", "good", "bad", "allowed"), FORMS, ids=[form[0] for form in FORMS])
def test_from_props_invalid_words(name: str, good: dict[Any, Any], bad: list[Any], allowed: str) -> None:
    """Booleans in any case, ratios, words in their own case, lists of which repeated values are merged."""
    for said, kept in good.items():
        value = get(LogConfig.from_topic({name: said}), name)
        assert (type(value), value) == (type(kept), kept)
    for said in bad:
        with pytest.raises(InvalidConfigError, match=f"^{name} is .*,? allowed is {allowed}"):
            LogConfig.from_topic({name: said})


def test_from_props_invalid_in_python() -> None:
    """There booleans are True and False only, and a policy may be a list or a text."""
    with pytest.raises(InvalidConfigError):
        LogConfig(preallocate="true")  # type: ignore[arg-type]
    for policy, kept in POLICIES.items():
        config = LogConfig(cleanup_policy=policy)
        assert config.cleanup_policy == kept
        assert (config.deletes, config.compacts) == ("delete" in kept, "compact" in kept)
    with pytest.raises(InvalidConfigError, match=r"^cleanup_policy is .*, allowed is any of compact, delete"):
        LogConfig(cleanup_policy="delete,")


def test_remote_log_storage_cleanup_policy() -> None:
    """With remote storage: delete, however often, or none; nothing with compact."""
    for policy in ("delete", "delete,delete,delete", ""):
        assert LogConfig(remote_storage_enable=True, cleanup_policy=policy).remote_storage_enable
    for policy in ("compact", "compact,delete", "delete,compact", "delete,delete,delete,compact"):
        with pytest.raises(InvalidConfigError, match=r"cleanup.policy is .* allowed with remote.storage"):
            LogConfig.from_topic({"remote.storage.enable": "true", "cleanup.policy": policy})


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_invalid_local_retention(unit: str) -> None:
    """With remote storage no local retention is longer than the whole one."""
    for local, total, good in ((5, 4, False), (-1, 4, False), (4, 4, True), (-2, 4, True), (5, -1, True)):
        options: dict[str, Any] = {f"local_retention_{unit}": local, f"retention_{unit}": total}
        assert LogConfig(**options)
        if good:
            assert LogConfig(remote_storage_enable=True, **options)
        else:
            with pytest.raises(InvalidConfigError, match=f"local.retention.{unit} is {local}"):
                LogConfig(remote_storage_enable=True, **options)


def test_compaction_lags() -> None:
    """min.compaction.lag.ms is not above max.compaction.lag.ms."""
    assert LogConfig(min_compaction_lag_ms=5, max_compaction_lag_ms=5)
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms is 5, .* max.compaction.lag.ms, 4"):
        LogConfig.from_topic({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})


def test_small_segments(tmp_path: Path) -> None:
    """Kafka allows none; the error names what tests take, which stands above segment.bytes, 0 too."""
    with pytest.raises(InvalidConfigError, match="Set internal_segment_bytes instead"):
        LogConfig(segment_bytes=20_000)
    assert LogConfig().effective_segment_bytes == 1 << 30
    assert LogConfig(segment_bytes=1 << 20).effective_segment_bytes == 1 << 20
    assert LogConfig(internal_segment_bytes=0).effective_segment_bytes == 0
    assert LogConfig(internal_segment_bytes=5).replace(internal_segment_bytes=None) == LogConfig()
    config = LogConfig.from_topic({"internal.segment.bytes": "100", "segment.bytes": "1048576"})
    log = opened(tmp_path, config=config)
    put(log, rec(), rec())
    assert len(log.segments) == 2


# ---- unknown names -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retentionms", "the nearest is retention_ms "),  # nearer than what is no option
        ("partitions", "say how many there are"),
        ("segmet_bytes", r"the nearest is segment_bytes \(segment.bytes in Kafka\)"),
        ("segment.bytes", r"the nearest is segment_bytes \(segment.bytes in Kafka\)"),
        ("segments_bytes", r"the nearest is segment_bytes \(segment.bytes in Kafka\)"),
        ("zzzzz", "zzzzz$"),  # no guess where none is good
    ],
)
def test_unknown_option(name: str, hint: str) -> None:
    """The nearest is told in both notations."""
    with pytest.raises(InvalidConfigError, match=hint) as caught:
        one(name, 1 << 20)
    assert caught.value.name == name
    assert isinstance(caught.value, KstoreError)
    assert isinstance(caught.value, ValueError)


def test_unknown_topic_configuration() -> None:
    """Only Kafka 4's own notation counts: no broker's names, no removed ones. Throttles are ignored."""
    for name in ("segmet.bytes", "segment_bytes", "log.segment.bytes"):
        hint = rf"{name}; (the nearest is|here it is called) segment.bytes$"
        with pytest.raises(InvalidConfigError, match=hint):
            LogConfig.from_topic({name: "1048576"})
    old = ("message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms")
    for name in old:
        with pytest.raises(InvalidConfigError, match=f"no such topic configuration: {name}"):
            LogConfig.from_topic({name: "1"})
    throttles = {f"{who}.replication.throttled.replicas": "*" for who in ("leader", "follower")}
    assert LogConfig.from_topic(throttles) == LogConfig()


@pytest.mark.parametrize("wrong", ["segment.bytes=1", b"", 5, ["segment.bytes"], None])
def test_a_topic_is_a_mapping(wrong: Any) -> None:
    with pytest.raises(TypeError, match="topic is a mapping of option names and values, not "):
        LogConfig.from_topic(wrong)


# ---- server.properties ---------------------------------------------------------------------------


def test_log_retention() -> None:
    """KafkaConfigTest: ms over minutes over hours; any negative one is no limit."""
    for said, expected in [
        ({"hours": "2"}, 7_200_000),
        ({"minutes": "3"}, 180_000),
        ({"ms": "4"}, 4),
        ({"hours": "2", "minutes": "3"}, 180_000),
        ({"hours": "2", "minutes": "3", "ms": "4"}, 4),
        ({"ms": "-1", "hours": "2"}, -1),
        ({"ms": "-7"}, -1),
        ({"minutes": "-7"}, -1),
        ({"hours": -7}, -1),
        ({"hours": "0", "ms": "5"}, 5),
        ({"hours": str(MAX32)}, MAX32 * 3_600_000),
    ]:
        assert broker(**{f"retention_{u}": v for u, v in said.items()}).retention_ms == expected


def test_log_retention_of_zero() -> None:
    """KafkaConfigTest: a broker refuses it, though a topic may have it."""
    for unit in ("ms", "minutes", "hours"):
        with pytest.raises(InvalidConfigError, match=f"log.retention.{unit} is 0"):
            broker(**{f"retention_{unit}": "0"})
    assert LogConfig.from_topic({"retention.ms": "0"}).retention_ms == 0


def test_log_roll_time() -> None:
    """KafkaConfigTest: ms over hours, 168 hours if neither is there; jitter likewise."""
    assert broker(roll_hours="2").segment_ms == 7_200_000
    assert broker(roll_hours="2", roll_ms="5").segment_ms == 5
    assert broker(roll_jitter_hours="2").segment_jitter_ms == 7_200_000
    assert broker(roll_jitter_hours="2", roll_jitter_ms="0").segment_jitter_ms == 0
    assert broker(flush_scheduler_interval_ms="5").flush_ms == 5
    assert broker(flush_scheduler_interval_ms="5", flush_interval_ms="6").flush_ms == 6


@pytest.mark.parametrize(
    "given",
    [
        {"roll_hours": "0", "roll_ms": "5"},
        {"roll_ms": "0"},
        {"roll_jitter_hours": "-1"},
        {"retention_hours": "x", "retention_ms": "5"},
        {"retention_hours": str(MAX32 + 1)},
        {"retention_ms": ""},
        {"segment_bytes": "1048575"},
        {"cleanup_policy": "delete,"},
        {"index_size_max_bytes": "3"},
        {"flush_interval_ms": "-1"},
        {"local_retention_ms": "-3"},
    ],
    ids=str,
)
def test_from_props_invalid(given: dict[str, str]) -> None:
    """What is there is checked, also where another counts; the error names the broker's property."""
    name = next(iter(given)).replace("_", ".")
    with pytest.raises(InvalidConfigError, match=f"^log.{name} is "):
        broker(**given)


SYNONYMS = {  # of a broker: the topic's key, a value
    "log.segment.bytes": ("segment.bytes", 2097152), "log.index.size.max.bytes": ("segment.index.bytes", 4),
    "log.index.interval.bytes": ("index.interval.bytes", 7),
    "log.flush.interval.messages": ("flush.messages", 7), "log.retention.bytes": ("retention.bytes", -5),
    "message.max.bytes": ("max.message.bytes", 7),
    "log.cleaner.delete.retention.ms": ("delete.retention.ms", 7),
    "log.cleaner.min.compaction.lag.ms": ("min.compaction.lag.ms", 7),
    "log.cleaner.max.compaction.lag.ms": ("max.compaction.lag.ms", 7),
    "log.cleaner.min.cleanable.ratio": ("min.cleanable.dirty.ratio", 0.75),
    "log.segment.delete.delay.ms": ("file.delete.delay.ms", 7),
    "compression.type": ("compression.type", "lz4"), "compression.gzip.level": ("compression.gzip.level", 7),
    "compression.lz4.level": ("compression.lz4.level", 7),
    "compression.zstd.level": ("compression.zstd.level", 7),
    "log.message.timestamp.type": ("message.timestamp.type", "LogAppendTime"),
    "log.message.timestamp.before.max.ms": ("message.timestamp.before.max.ms", 7),
    "log.message.timestamp.after.max.ms": ("message.timestamp.after.max.ms", 7),
    "min.insync.replicas": ("min.insync.replicas", 7),
    "log.local.retention.ms": ("local.retention.ms", 7),
    "log.local.retention.bytes": ("local.retention.bytes", 7),
}  # fmt: skip


@pytest.mark.parametrize("name", SYNONYMS)
def test_synonyms(name: str) -> None:
    """Each of the broker's names changes its topic's key only; the topic's own value has precedence."""
    topic, value = SYNONYMS[name]
    assert LogConfig.from_server_properties({name: str(value)}).to_topic() == {topic: str(value)}
    own = DEFAULTS[topic]
    assert LogConfig.from_server_properties({name: str(value)}, {topic: own}) == LogConfig()


def test_booleans_and_policy() -> None:
    """Text as for a topic."""
    config = LogConfig.from_server_properties(
        {"log.preallocate": "TRUE", "unclean.leader.election.enable": "true", "log.cleanup.policy": ""}
    )
    written = {"cleanup.policy": "", "preallocate": "true", "unclean.leader.election.enable": "true"}
    assert config.to_topic() == written


def test_server_properties_of_kafka(tmp_path: Path) -> None:
    """A file such as Kafka ships: what does not concern a log is passed over, in silence."""
    file = tmp_path / "server.properties"
    file.write_text(
        "# Für Åland; ein Kommentar in UTF-8\nprocess.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\nnum.network.threads=3\n"
        "log.dirs=/var/lib/kafka\nnum.partitions=1\nnum.recovery.threads.per.data.dir=2\n"
        "log.retention.hours=24\n#log.retention.bytes=1073741824\n"
        "log.segment.bytes=536870912 \nlog.retention.check.interval.ms=300000\nlog.cleaner.enable=true\n"
        "log.cleanup.policy=compact,\\\n    delete",
        "utf-8",
    )
    expected = {"retention.ms": "86400000", "segment.bytes": "536870912", "cleanup.policy": "compact,delete"}
    for path in (file, str(file)):
        assert LogConfig.from_server_properties(path).to_topic() == expected
    topic = {"retention.ms": "-1", "segment.bytes": "1073741824"}
    config = LogConfig.from_server_properties(file, topic)
    assert config.to_topic() == {"retention.ms": "-1", "cleanup.policy": "compact,delete"}


def test_names_without_effect() -> None:
    """They are passed over, as a broker does, with a warning; what begins otherwise without one."""
    for name, hint in [
        ("log.retention.hour", "the nearest is log.retention.hours"),
        ("log.message.format.version", "Kafka 4.3.1 does not have it"),
        ("retention.ms", "a broker calls it log.retention.ms"),
        ("internal.segment.bytes", "for a broker$"),
        ("leader.replication.throttled.replicas", "for a broker$"),
    ]:
        with pytest.warns(UserWarning, match=f"{name} has no effect.*{hint}") as caught:
            assert LogConfig.from_server_properties({name: "3"}) == LogConfig()
        assert [warning.filename for warning in caught] == [__file__]
    LogConfig.from_server_properties({"log4j.rootLogger": "x", "my.plugin.setting": "y", "logs": "z"})


# ---- values --------------------------------------------------------------------------------------


def test_immutable() -> None:
    """Neither a key nor anything else can be set; equal ones are equal keys of a dict."""
    config = LogConfig(retention_ms=5)
    with pytest.raises(AttributeError):
        config.retention_ms = 6  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        config.other = 6  # type: ignore[attr-defined]
    assert {config: 1}[LogConfig(retention_ms=5)] == 1
    assert config != LogConfig()
    with pytest.raises(TypeError):
        LogConfig(5)  # type: ignore[call-arg]
    assert type(LogConfig(retention_ms=np.int64(5)).retention_ms) is int  # type: ignore[arg-type]


def test_replace() -> None:
    """A new one, checked as the first."""
    config = LogConfig(segment_ms=5)
    assert config.replace(retention_ms=7) == LogConfig(segment_ms=5, retention_ms=7)
    assert config.to_topic() == {"segment.ms": "5"}
    with pytest.raises(InvalidConfigError, match="retention_ms is -2"):
        config.replace(retention_ms=-2)
    with pytest.raises(InvalidConfigError, match="nearest is retention_ms"):
        config.replace(retention=7)
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms is 9"):
        LogConfig(max_compaction_lag_ms=5).replace(min_compaction_lag_ms=9)


@examples(60)
@given(st.data())
def test_to_topic_and_back(data: st.DataObject) -> None:
    """What to_topic writes, from_topic and a broker's topic read back."""
    options: dict[str, Any] = {}
    for name, (least, most) in RANGES.items():
        if name not in ("local.retention.ms", "local.retention.bytes") and data.draw(st.booleans()):
            value = data.draw(st.integers(least, most))
            options[name.replace(".", "_")] = most if name == "compression.gzip.level" else value
    lags = sorted((options.get("min_compaction_lag_ms", 0), options.get("max_compaction_lag_ms", MAX64)))
    options["min_compaction_lag_ms"], options["max_compaction_lag_ms"] = lags[0], max(lags[1], 1)
    options["cleanup_policy"] = data.draw(st.lists(st.sampled_from(["compact", "delete"])))
    options["min_cleanable_dirty_ratio"] = data.draw(st.floats(0, 1))
    options["preallocate"] = data.draw(st.booleans())
    config = LogConfig(**options)
    written = config.to_topic()
    assert all(isinstance(text, str) for text in written.values())
    assert LogConfig.from_topic(written) == LogConfig.from_server_properties({}, written) == config
