"""LocalLogTest: the names of directories and files (spec 1.1, 1.2), truncation, flush."""

from pathlib import Path

import pytest

import kstore
from kstore import LogStore
from tests.conformance.writing import SIZE, bases, files, offsets, opened, put, rec
from tests.helpers import forge
from tests.helpers.forge import simple, stem

UUID = "0123456789abcdef" * 2
LONG = "n" + "o" * 212  # a delete name is cut to 255 characters


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("test_topic-0", "test_topic", 0),
        ("foo.bar-testtopic-42", "foo.bar-testtopic", 42),
        ("a-b-c-7", "a-b-c", 7),
        (f"foo.bar-testtopic-42.{UUID}-delete", "foo.bar-testtopic", 42),
        (f"foo.bar-testtopic-42.{UUID}-future", "foo.bar-testtopic", 42),
        (f"foo.bar-testtopic-42.{UUID}-stray", "foo.bar-testtopic", 42),
        ("__consumer_offsets-49", "__consumer_offsets", 49),
        (f"{'t' * 244}-2147483647", "t" * 244, 2147483647),
        (f"{LONG}-5.{UUID}-delete", LONG, 5),
    ],
)
def test_parse_topic_partition_name(tmp_path: Path, name: str, topic: str, partition: int) -> None:
    """The topic may hold dots and dashes; special directories parse as what they were."""
    log = kstore.open(forge.partition(tmp_path, {0: []}, name=name))
    assert log.topic_partition == (topic, partition)
    others = [] if name == f"{topic}-{partition}" else [name]
    store = LogStore(tmp_path)
    assert (list(store), store.others) == ([] if others else [(topic, partition)], others)


def test_parse_invalid_names(tmp_path: Path) -> None:
    """No separator, no topic, no partition, a partition that is no 32-bit number."""
    names = ["testtopic0", "testtopic1999a", "-0", "-1999a", "testtopic-", "testtopic-1999a", "non_kafka_dir"]
    names += [f"{name}.{UUID}-delete" for name in ("testtopic0", "-1999a", "testtopic-", "testtopic-1999a")]
    names += ["non_kafka_dir-delete", "lost+found", "remote-log-index-cache"]
    names += ["foo-2147483648", "foo-1_0", "foo- 1"]
    for name in names:
        assert kstore.open(forge.partition(tmp_path, {0: []}, name=name)).topic_partition is None
    store = LogStore(tmp_path)
    assert (list(store), sorted(store.others)) == ([], sorted(names))


@pytest.mark.parametrize("base", [0, 45, 2**63 - 1])
def test_offset_from_file(tmp_path: Path, base: int) -> None:
    """Names of segments have 20 digits; others are no segments, or what an operation has left."""
    log = opened(tmp_path, log_start_offset=base)
    assert files(tmp_path, ".log") == [base]
    log.close()
    path = tmp_path / "topic-0"
    for name in ("abc.log", "9223372036854775808.log", "45.log", "leader-epoch-checkpoint.log"):
        (path / name).write_bytes(simple(7))
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        for suffix in (".deleted", ".cleaned", ".swap"):
            (path / f"{stem(4711)}{kind}{suffix}").touch()
    (path / f"{stem(4711)}.snapshot").touch()
    assert bases(kstore.open(path)) == [base]
    opened(tmp_path).close()
    assert [p.name for p in path.glob(f"{stem(4711)}*")] == []
    assert len(list(path.glob("*.log"))) == 5


# ---- truncation, flush, roll ---------------------------------------------------------------------


def _twelve(path: Path) -> kstore.LogWriter:
    log = opened(path, segment_bytes=3 * SIZE)
    put(log, *[rec() for _ in range(12)])
    assert bases(log) == [0, 3, 6, 9]
    return log


def test_truncate_fully_and_start_at(tmp_path: Path) -> None:
    """12 records, 3 a segment, started anew at 10: one segment there, the old files go."""
    log = _twelve(tmp_path)
    log.flush()
    log.truncate_fully_and_start_at(10)
    assert (bases(log), log.log_end_offset, log.durable_offset, list(log)) == ([10], 10, 10, [])
    assert files(tmp_path, ".log") == [10]
    assert files(tmp_path, ".log.deleted") == [0, 3, 6, 9]
    assert put(log, rec()).first_offset == 10


def test_truncate_fully_with_log_start(tmp_path: Path) -> None:
    """Spec 8.10: with a log start offset of its own; a snapshot only if there is something between."""
    log = _twelve(tmp_path)
    log.truncate_fully_and_start_at(20, 15)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (15, 20, [20])
    assert files(tmp_path, ".snapshot") == [20]


def test_truncate_to(tmp_path: Path) -> None:
    """12 records, 3 a segment, truncated to 7: 3 segments, durable up to 7; to 6: the last one is emptied."""
    log = _twelve(tmp_path)
    log.flush()
    log.truncate_to(7)
    assert (bases(log), log.log_end_offset, log.durable_offset) == ([0, 3, 6], 7, 7)
    assert offsets(log) == list(range(7))
    assert put(log, rec()).first_offset == 7
    with pytest.raises(ValueError, match="offset is from 0"):
        log.truncate_to(-1)
    log.truncate_to(6)
    assert (bases(log), log.segments[-1].size, log.log_end_offset) == ([0, 3, 6], 0, 6)


def test_truncated_segments_stay_deleted(tmp_path: Path) -> None:
    """A crash after truncation, with the .deleted files still there."""
    log = _twelve(tmp_path)
    log.truncate_to(4)
    put(log, rec(b"tset"))
    log.abandon()
    log = opened(tmp_path, segment_bytes=3 * SIZE)
    assert [(r.offset, r.value) for r in log] == [(i, b"test") for i in range(4)] + [(4, b"tset")]
    assert list((tmp_path / "topic-0").glob("*.deleted")) == []


def test_flush(tmp_path: Path) -> None:
    """What is flushed is durable, and stays so when nothing comes after."""
    log = opened(tmp_path)
    assert log.flush() == 0
    put(log, rec(), rec())
    assert log.durable_offset == 0
    assert (log.flush(), log.durable_offset) == (2, 2)
    log.roll()
    put(log, rec())
    assert (log.durable_offset, log.flush()) == (2, 3)
