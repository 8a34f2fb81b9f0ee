"""LogConfigTest: names, defaults, limits, and which of several settings wins."""

from pathlib import Path
from typing import Any

import pytest
from writing import opened, put, rec

from kstore import InvalidConfigError, LogConfig

MAX64 = 2**63 - 1
DEFAULTS = {
    "segment.bytes": 1073741824,
    "segment.ms": 604800000,
    "segment.jitter.ms": 0,
    "segment.index.bytes": 10485760,
    "index.interval.bytes": 4096,
    "flush.messages": MAX64,
    "flush.ms": MAX64,
    "retention.bytes": -1,
    "retention.ms": 604800000,
    "max.message.bytes": 1048588,
    "cleanup.policy": ("delete",),
    "delete.retention.ms": 86400000,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": MAX64,
    "min.cleanable.dirty.ratio": 0.5,
    "file.delete.delay.ms": 60000,
    "preallocate": False,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": MAX64,
    "message.timestamp.after.max.ms": 3600000,
    "min.insync.replicas": 1,
    "unclean.leader.election.enable": False,
    "remote.storage.enable": False,
    "local.retention.ms": -2,
    "local.retention.bytes": -2,
    "remote.log.copy.disable": False,
    "remote.log.delete.on.disable": False,
}
NOT_A_NUMBER = "not_a_number"
INVALID: dict[str, tuple[str, ...]] = {
    "segment.bytes": (NOT_A_NUMBER, "1048575", "0", "-1", "2147483648"),
    "segment.ms": (NOT_A_NUMBER, "-2", "0"),
    "segment.jitter.ms": (NOT_A_NUMBER, "-2"),
    "segment.index.bytes": (NOT_A_NUMBER, "3", "-2"),
    "index.interval.bytes": (NOT_A_NUMBER, "-2"),
    "flush.messages": (NOT_A_NUMBER, "-2", "0"),
    "flush.ms": (NOT_A_NUMBER, "-2"),
    "retention.bytes": (NOT_A_NUMBER,),
    "retention.ms": (NOT_A_NUMBER, "-2"),
    "max.message.bytes": (NOT_A_NUMBER, "-2"),
    "cleanup.policy": ("true", "foobar", "delete,foobar", "DELETE", "delete,"),
    "delete.retention.ms": (NOT_A_NUMBER, "-2"),
    "min.compaction.lag.ms": (NOT_A_NUMBER, "-2"),
    "max.compaction.lag.ms": (NOT_A_NUMBER, "-2", "0"),
    "min.cleanable.dirty.ratio": (NOT_A_NUMBER, "-0.1", "1.2"),
    "file.delete.delay.ms": (NOT_A_NUMBER, "-2"),
    "preallocate": ("not_a_boolean", "1"),
    "compression.type": ("none", "GZIP", ""),
    "compression.gzip.level": ("0", "10", "-2", "x"),
    "compression.lz4.level": ("0", "18", "x"),
    "compression.zstd.level": ("-131073", "23", "0.1"),
    "message.timestamp.type": ("create", "createtime"),
    "message.timestamp.before.max.ms": ("-1", "x"),
    "message.timestamp.after.max.ms": ("-1", "x"),
    "min.insync.replicas": (NOT_A_NUMBER, "0", "-1"),
    "unclean.leader.election.enable": ("not_a_boolean",),
    "local.retention.ms": ("-3",),
    "local.retention.bytes": ("-3",),
    "remote.storage.enable": ("not_a_boolean",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), DEFAULTS.items())
def test_kafka_config_to_props(name: str, value: Any) -> None:
    """Every default; and an empty configuration of a topic or a broker changes none."""
    for config in (LogConfig(), LogConfig.from_topic({}), LogConfig.from_server_properties({})):
        assert getattr(config, name.replace(".", "_")) == value


def test_all_names_are_covered() -> None:
    """Spec 12.1, and internal.segment.bytes."""
    assert {n.replace("_", ".") for n in LogConfig.__slots__} == {*DEFAULTS, "internal.segment.bytes"}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in INVALID.items() for v in values])
def test_from_props_invalid(name: str, value: str) -> None:
    """What each validator refuses."""
    with pytest.raises(InvalidConfigError, match=name):
        LogConfig.from_topic({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", 1048576),
        ("retention.bytes", -5),
        ("retention.ms", -1),
        ("retention.ms", 0),
        ("max.message.bytes", 0),
        ("segment.index.bytes", 4),
        ("index.interval.bytes", 0),
        ("compression.gzip.level", 9),
        ("compression.zstd.level", -131072),
        ("min.cleanable.dirty.ratio", 1),
        ("local.retention.ms", -2),
    ],
)
def test_from_props_valid(name: str, value: Any) -> None:
    """Values at the edge of what is allowed."""
    assert getattr(LogConfig.from_topic({name: str(value)}), name.replace(".", "_")) == value


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("delete", ("delete",)),
        ("compact,delete", ("compact", "delete")),
        ("delete, compact", ("delete", "compact")),
        ("delete,delete,delete", ("delete",)),
        ("", ()),
    ],
)
def test_cleanup_policy(text: str, policies: tuple[str, ...]) -> None:
    """Repeated values are merged, an empty list is allowed."""
    assert LogConfig.from_topic({"cleanup.policy": text}).cleanup_policy == policies


@pytest.mark.parametrize(
    "name",
    [
        "unknown",
        "message.timestamp.difference.max.ms",
        "message.format.version",
        "message.downconversion.enable",
    ],
)
def test_unknown_names(name: str) -> None:
    """Unknown names, and those that Kafka has removed."""
    with pytest.raises(InvalidConfigError):
        LogConfig.from_topic({name: "1"})


def test_compaction_lags_of_wrong_order() -> None:
    """min.compaction.lag.ms above max.compaction.lag.ms."""
    with pytest.raises(InvalidConfigError):
        LogConfig.from_topic({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"})


HOUR, MINUTE = 3_600_000, 60_000


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"log.retention.hours": "1"}, HOUR),
        ({"log.retention.minutes": "30"}, 30 * MINUTE),
        ({"log.retention.ms": "1800000"}, 1800000),
        ({"log.retention.minutes": "30", "log.retention.hours": "1"}, 30 * MINUTE),
        ({"log.retention.ms": "1800000", "log.retention.minutes": "10"}, 1800000),
        ({"log.retention.ms": "1800000", "log.retention.hours": "10"}, 1800000),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
        ({}, 168 * HOUR),
    ],
)
def test_log_retention_time(broker: dict[str, str], expected: int) -> None:
    """Milliseconds over minutes over hours; negative is without limit."""
    assert LogConfig.from_server_properties(broker).retention_ms == expected


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_log_retention_zero(name: str) -> None:
    """The broker refuses 0."""
    with pytest.raises(InvalidConfigError):
        LogConfig.from_server_properties({name: "0"})


@pytest.mark.parametrize(
    ("broker", "name", "expected"),
    [
        ({"log.roll.ms": "1800000"}, "segment_ms", 1800000),
        ({"log.roll.hours": "1"}, "segment_ms", HOUR),
        ({"log.roll.ms": "1800000", "log.roll.hours": "1"}, "segment_ms", 1800000),
        ({"log.roll.jitter.hours": "2"}, "segment_jitter_ms", 2 * HOUR),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "9"}, "flush_ms", 9),
        ({"message.max.bytes": "500"}, "max_message_bytes", 500),
        ({"log.cleanup.policy": "compact"}, "cleanup_policy", ("compact",)),
        ({"log.segment.delete.delay.ms": "5"}, "file_delete_delay_ms", 5),
        ({"log.cleaner.min.cleanable.ratio": "0.2"}, "min_cleanable_dirty_ratio", 0.2),
        ({"broker.id": "1", "advertised.listeners": "x"}, "segment_ms", 604800000),
    ],
)
def test_broker_synonyms(broker: dict[str, str], name: str, expected: Any) -> None:
    """The broker's names for a topic's settings; what is none of the log's is passed over."""
    assert getattr(LogConfig.from_server_properties(broker), name) == expected


def test_topic_wins_over_broker(tmp_path: Path) -> None:
    """A topic's own setting, then the broker's, then the default; from a file too."""
    file = tmp_path / "server.properties"
    file.write_text("# a broker\nlog.segment.bytes = 2097152\nlog.retention.ms=5\n")
    config = LogConfig.from_server_properties(file, {"retention.ms": "6"})
    assert (config.segment_bytes, config.retention_ms, config.flush_ms) == (2097152, 6, MAX64)


@pytest.mark.parametrize("policy", ["delete", "delete,delete,delete", ""])
def test_remote_storage_with_policy(policy: str) -> None:
    """Remote storage: delete, repeated or not, and the empty policy."""
    LogConfig.from_topic({"remote.storage.enable": "true", "cleanup.policy": policy})


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_remote_storage_with_compaction(policy: str) -> None:
    """Remote storage: not with compact."""
    with pytest.raises(InvalidConfigError):
        LogConfig.from_topic({"remote.storage.enable": "true", "cleanup.policy": policy})


def test_internal_segment_bytes(tmp_path: Path) -> None:
    """internal.segment.bytes stands above segment.bytes, without its lower limit."""
    config = LogConfig.from_topic({"internal.segment.bytes": "100", "segment.bytes": "1048576"})
    assert config.effective_segment_bytes == 100
    assert LogConfig().effective_segment_bytes == 1 << 30
    log = opened(tmp_path, config=config)
    put(log, rec(), rec())
    assert len(log.segments) == 2


def test_overridden_configs_as_topic(tmp_path: Path) -> None:
    """What differs from the defaults, in Kafka's words; read back it is the same."""
    config = LogConfig(retention_ms=5, cleanup_policy=("compact", "delete"), preallocate=True)
    told = {"retention.ms": "5", "cleanup.policy": "compact,delete", "preallocate": "true"}
    assert config.to_topic() == told
    assert LogConfig.from_topic(told) == config
    log = opened(tmp_path)
    log.configure(retention_ms=5)
    assert log.config.to_topic() == {"retention.ms": "5"}
    with pytest.raises(InvalidConfigError):
        log.configure(retention_ms=-2)
    assert log.config.retention_ms == 5
