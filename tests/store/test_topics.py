"""Topics of a store: made, written, read, changed, deleted, and found again at the next opening."""

import contextlib
import gc
import io
import json
import os
import pickle
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.engine.record.hashes import murmur2
from kstore.log.files import log_dir_state
from kstore.log.files.lock import PartitionLock
from tests.helpers.processes import environment


def partition_of(key: bytes, count: int) -> int:
    """Kafka's default partitioner, in other words."""
    return (murmur2(key) % 2**31) % count


def rows(store: LogStore, topic: str) -> list[tuple[Any, ...]]:
    columns = ["partition", "offset", "key", "value"]
    return [row for batch in store.scan(topic, columns) for row in batch.rows()]


def test_records_come_back(tmp_path: Path) -> None:
    with LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("orders", 4)
        places = {
            b"k%d" % i: store.append("orders", b"v%d" % i, b"k%d" % i, 1000 + i, [("h", b"x")])
            for i in range(50)
        }
        assert {key: place[0] for key, place in places.items()} == {
            key: partition_of(key, 4) for key in places
        }
        log = store.log("orders", 2)
        assert isinstance(log, kstore.LogWriter)
        assert log is store.log("orders", 2)
        assert repr(store) == f"LogStore({str(tmp_path / 'data')!r}, 4 partitions)"
    assert store.is_closed
    assert log.is_closed
    again = LogStore(tmp_path / "data")
    assert again.closed_cleanly
    assert again.topics == {"orders": [0, 1, 2, 3]}
    assert list(again) == [TopicPartition("orders", number) for number in range(4)]
    for i, (key, (partition, offset)) in enumerate(places.items()):
        record = again.log("orders", partition).get(offset)
        assert (record.key, record.value, record.timestamp) == (key, b"v%d" % i, 1000 + i)
        assert record.headers == (("h", b"x"),)
    expected = [(*place, key, b"v%d" % i) for i, (key, place) in enumerate(places.items())]
    assert rows(again, "orders") == sorted(expected)


@pytest.mark.parametrize("with_times", [None, "one", "each"])
@pytest.mark.parametrize("form", [list, tuple, "arrow"])
def test_columns_are_split_as_records_are(tmp_path: Path, form: Any, with_times: str | None) -> None:
    keys = [b"key %d" % (i * i % 37) if i % 7 else None for i in range(1000)]
    values = [b"v" * (i % 50) if i % 11 else None for i in range(1000)]
    times = {None: None, "one": 5_000_000_000_000 // 4, "each": [10**12 + i for i in range(1000)]}[with_times]
    given: Any = (values, keys)
    if form == "arrow":
        arrow = pytest.importorskip("pyarrow")
        given = arrow.chunked_array([values[:300], values[300:]]), arrow.array(keys, arrow.binary())
    else:
        given = form(values), form(keys)
    with LogStore(tmp_path, mode="a", message_timestamp_after_max_ms=2**62) as store:
        store.create_topic("t", 5)
        offsets = store.extend("t", *given, timestamps=times)
        assert sum(map(len, offsets.values())) == 1000
        expected: dict[int, list[Any]] = {number: [] for number in range(5)}
        (keyless,) = {r.key is None and number for number in range(5) for r in store.log("t", number)} - {
            False
        } or {0}
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            number = keyless if key is None else partition_of(key, 5)
            time = times[i] if isinstance(times, list) else times
            expected[number].append((key, value, time))
        for number in range(5):
            log = store.log("t", number)
            found = [(r.key, r.value, r.timestamp if times is not None else None) for r in log]
            assert found == expected[number]
            assert offsets.get(number, range(0)) == range(len(found))


def test_no_key_stays_for_a_while(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 3)
        places = [store.append("t", b"." * 1000)[0] for _ in range(17 * 6)]
        spells = [places[i : i + 17] for i in range(0, len(places), 17)]
        assert all(len(set(spell)) == 1 for spell in spells)
        first = places[0]
        assert [spell[0] for spell in spells] == [(first + i) % 3 for i in range(6)]
        calls = [next(iter(store.extend("t", [b"a", b"b"]))) for _ in range(6)]
        assert sorted(calls) == [0, 0, 1, 1, 2, 2]


def test_nothing_is_written_if_a_column_is_wrong(tmp_path: Path) -> None:
    keys = [b"%d" % i for i in range(100)]
    with LogStore(tmp_path, mode="a", max_message_bytes=2000) as store:
        store.create_topic("t", 4)
        values = [b"x"] * 99 + [b"." * 3000]
        with pytest.raises(kstore.RecordTooLargeError):
            store.extend("t", values, keys)
        with pytest.raises(kstore.InvalidTimestampError):
            store.extend("t", [b"x"] * 100, keys, [1000] * 99 + [2**61])
        for wrong in ([b"x"] * 99, "text", [1] * 100):
            with pytest.raises((ValueError, TypeError)):
                store.extend("t", wrong, keys)
        with pytest.raises(TypeError):
            store.append("t", b"v", "key")
        assert rows(store, "t") == []


def test_configuration_is_kept(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", segment_bytes=1 << 21, retention_ms=7) as store:
        made = store.create_topic("t", retention_ms=5, cleanup_policy=("compact", "delete"))
        assert made.options == {"retention_ms": 5, "cleanup_policy": ("compact", "delete")}
        log: Any = store.log("t")
        assert (log.config.retention_ms, log.config.segment_bytes) == (5, 1 << 21)
        store.alter_topic("t", retention_ms=None, cleanup_policy=["delete"], flush_messages=9)
        assert (log.config.retention_ms, log.config.flush_messages, log.config.cleanup_policy) == (
            7,
            9,
            ("delete",),
        )
        before = store.describe("t")
        for wrong in (
            {"segment_byte": 1},
            {"segment_bytes": 1},
            {"segment_byte": None},
            {"retention_ms": "x"},
        ):
            with pytest.raises(kstore.InvalidConfigError):
                store.alter_topic("t", **wrong)
            with pytest.raises(kstore.InvalidConfigError):
                store.create_topic("u", **{k: v or 0 for k, v in wrong.items()})
        assert store.describe("t") == before
        assert list(store.topics) == ["t"]
    with LogStore(tmp_path, mode="a", segment_bytes=1 << 22) as store:
        assert store.describe("t").options == {"cleanup_policy": ("delete",), "flush_messages": 9}
        log = store.log("t")
        assert (log.config.segment_bytes, log.config.flush_messages) == (1 << 22, 9)
    described = LogStore(tmp_path).describe("t")
    assert described.options == {"cleanup_policy": ("delete",), "flush_messages": 9}
    assert described.partitions == {0: tmp_path / "t-0"}


def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    now = 10**12
    with LogStore(tmp_path, mode="a", clock=lambda: now, file_delete_delay_ms=50) as store:
        store.create_topic("t", 2, retention_ms=3)
        for _ in range(9):
            store.append("t", b"old", b"k")
        partition = partition_of(b"k", 2)
        log: Any = store.log("t", partition)
        log.delete_records(7)
        store.delete_topic("t")
        assert log.is_closed
        assert store.topics == {}
        for call in (lambda: store.append("t", b""), lambda: store.log("t"), lambda: store.scan("t")):
            with pytest.raises(kstore.LogNotFoundError, match="no topic t in"):
                call()
        left = sorted(store.others)
        assert [re.fullmatch(r"t-[01]\.[0-9a-f]{32}-delete", name) is not None for name in left] == [
            True,
            True,
        ]
        store.create_topic("t", 2)
        assert store.describe("t").options == {}
        assert store.append("t", b"new", b"k") == (partition, 0)
        assert sorted(store.others) == left
        now += 50
        store.retain()
        assert store.others == []
        store.delete_topic("t")
        assert len(store.others) == 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == []


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("kept")
    left = tmp_path / f"gone-0.{'0' * 32}-delete"
    left.mkdir()
    (left / "00000000000000000000.log").write_bytes(b"x")
    now = 10**12
    with LogStore(tmp_path, mode="a", clock=lambda: now) as store:
        store.retain()
        assert left.exists()
        now += 60_000
        store.retain()
        assert not left.exists()
        assert store.others == []


def test_names_of_the_longest_topic(tmp_path: Path) -> None:
    name = "n" + 248 * "o"
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic(name, 6)
        store.delete_topic(name)
        (found,) = [other for other in store.others if "-5." in other]
        assert len(found) == 255
        assert found.startswith("n" + 212 * "o" + "-5.")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "a\n", "ä"])
def test_names_that_kafka_refuses(tmp_path: Path, name: str) -> None:
    with LogStore(tmp_path, mode="a") as store:
        with pytest.raises(ValueError, match="cannot be the name of a topic"):
            store.create_topic(name)
        assert len(store) == 0
        assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_names_that_are_taken(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("a.b")
        for name in ("a.b", "a_b"):
            with pytest.raises(ValueError, match=r"there is a topic a\.b"):
                store.create_topic(name)
        with pytest.raises(ValueError, match="has 1 partitions already"):
            store.add_partitions("a.b", 1)
        with pytest.raises(ValueError, match="broker"):
            store.create_topic("__cluster_metadata")
        assert store.add_partitions("a.b", 3).partitions.keys() == {0, 1, 2}
        assert store.append("a.b", b"v", b"key")[0] == partition_of(b"key", 3)


def test_arguments(tmp_path: Path) -> None:
    make: Any = LogStore
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, make),
        (ValueError, lambda: make(tmp_path / "d", mode="w")),
        (TypeError, lambda: make(tmp_path / "d", mode="a", config=1)),
        (ValueError, lambda: make(tmp_path / "d", mode="a", max_open_partitions=0)),
        (ValueError, lambda: make(tmp_path / "d", mode="a", durability="much")),
        (TypeError, lambda: make(tmp_path / "d", mode="a", clock=1)),
        (kstore.InvalidConfigError, lambda: make(tmp_path / "d", mode="a", segment_byte=1)),
        (ValueError, lambda: make(tmp_path / "d", tmp_path / "." / "d", mode="a")),
        (kstore.LogNotFoundError, lambda: make(tmp_path / "d")),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
    assert not (tmp_path / "d").exists()
    with pytest.raises(TypeError, match="give mode='a' to write"):
        make(tmp_path, retention_ms=1)
    with make(tmp_path, mode="a") as store:
        store.create_topic("t")
        for call in (
            lambda: store.create_topic(1),
            lambda: store.create_topic("u", "1"),
            lambda: store.create_topic("u", 0),
            lambda: store.scan("t", start=1),
            lambda: store.scan("t", "key"),
            lambda: store.scan("t", ["partition", "partition"]),
            lambda: store.log("t", "0"),
            lambda: store.log("t", -1),
            lambda: pickle.dumps(store),
        ):
            with pytest.raises((TypeError, ValueError)):
                call()
        for call in (
            lambda: store.log("t", 1),
            lambda: store.scan("t", partitions=[1]),
            lambda: store.describe("u"),
        ):
            with pytest.raises(kstore.LogNotFoundError):
                call()
    for call in (lambda: store.append("t", b""), lambda: store.create_topic("u"), lambda: store.log("t")):
        with pytest.raises(kstore.LogClosedError):
            call()
    store.close()
    reader = make(tmp_path)
    with pytest.raises(io.UnsupportedOperation, match="open for reading"):
        reader.append("t", b"")


def test_one_store_at_a_time(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        with pytest.raises(kstore.LogLockedError):
            LogStore(tmp_path, mode="a")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                LogStore(tmp_path, mode="a")
            except kstore.LogLockedError as e:
                code = 0 if e.pid == os.getppid() else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        store.log("t")
        with pytest.raises(kstore.LogLockedError):
            kstore.open(tmp_path / "t-0", "a")
        assert store.append("t", b"v") == (0, 0)
        assert [r.value for r in LogStore(tmp_path).open("t")] == [b"v"]
    kstore.open(tmp_path / "t-0", "a").close()


def test_a_log_beside_the_store(tmp_path: Path) -> None:
    """A partition that is opened by itself shares the directory with a store of the same process."""
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 2)
        beside = kstore.open(tmp_path / "t-1", "a")
        beside.append(b"v")
        store.log("t", 0)
    assert not LogStore(tmp_path).closed_cleanly
    beside.close()
    again = LogStore(tmp_path)
    assert again.closed_cleanly
    assert again.open("t", 1).recovery.clean
    assert again.open("t", 1).log_end_offset == 1


def test_several_directories(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("a", "b", "c")]
    with LogStore(*dirs, mode="a") as store:
        store.create_topic("t", 7, retention_ms=5)
        assert sorted(len(list(path.glob("t-*"))) for path in dirs) == [2, 2, 3]
        for i in range(100):
            store.append("t", b"%d" % i, b"%d" % i)
        expected = rows(store, "t")
        assert store.paths == tuple(dirs)
    with LogStore(*reversed(dirs), mode="a") as store:
        assert rows(store, "t") == expected
        assert store.describe("t").options == {"retention_ms": 5}
        assert store.health().ok
        store.delete_topic("t")
    assert all(path.name != "t" for path in tmp_path.rglob("t-*"))


def test_a_failed_directory_takes_only_its_own(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("a", "b")]
    with LogStore(*dirs, mode="a") as store:
        store.create_topic("t", 4)
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_bytes(b"no directory")
    with LogStore(*dirs, mode="a") as store:
        assert list(store.health().directories) == [tmp_path / "b"]
        here = store.topics["t"]
        assert len(here) == 2
        done = refused = 0
        for i in range(50):
            key = b"%d" % i
            if partition_of(key, 4) in here:
                assert store.append("t", b"v", key)[0] == partition_of(key, 4)
                done += 1
            else:  # it must not go to a partition that the key does not belong to
                with pytest.raises(kstore.LogNotFoundError, match="no partition"):
                    store.append("t", b"v", key)
                refused += 1
        assert done > 5
        assert refused > 5
        assert {store.append("t", b"." * 20_000)[0] for _ in range(4)} == set(here)
        with pytest.raises(kstore.LogFailedError, match=r"partitions \[.*\] are in none"):
            store.delete_topic("t")
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    with LogStore(*dirs, mode="a") as store:
        assert store.health().ok
        assert store.topics == {"t": [0, 1, 2, 3]}
    (tmp_path / "away").mkdir()
    (tmp_path / "b" / "t-0").mkdir(exist_ok=True)
    (tmp_path / "a" / "t-0").mkdir(exist_ok=True)
    with pytest.raises(kstore.KstoreError, match=r"t-0 lies in .* and in"):
        LogStore(*dirs, mode="a")
    with pytest.raises(kstore.KstoreError, match=r"t-0 lies in .* and in"):
        LogStore(*dirs)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "1", '{"version": 2}', "\xff", "[" * 100_000]
    + [
        json.dumps({"version": 1, "number": 1, "change": change, "topics": {name: entry}})
        for name, entry, change in [
            ("t", {"partitions": -1, "config": {}}, None),
            ("t", {"partitions": 2**40, "config": {}}, None),
            ("t", {"partitions": 1, "config": {"a": "b"}}, None),
            ("t", {"partitions": 1, "config": {"segment.bytes": 1}}, None),
            ("../t", {"partitions": 1, "config": {}}, None),
            ("t", {"partitions": 1, "config": {}}, {"topic": "../x", "delete": True, "make": {}}),
            ("t", {"partitions": 1, "config": {}}, {"topic": "x", "delete": False, "make": {"-1": "x"}}),
            ("t", {"partitions": 1, "config": {}}, {"topic": "x", "delete": False, "make": {"1": 1}}),
            ("t", {"partitions": 1, "config": {}}, {"topic": "x", "delete": 0, "make": {}}),
        ]
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, text: str) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
    (tmp_path / "kstore-topics.json").write_text(text)
    with pytest.raises(kstore.CorruptCheckpointError, match=r"kstore-topics\.json"):
        LogStore(tmp_path, mode="a")
    with pytest.warns(kstore.DataLossWarning, match=r"kstore-topics\.json"):
        reader = LogStore(tmp_path)
    with pytest.raises(kstore.CorruptCheckpointError):
        reader.describe("t")
    assert reader.open("t").log_end_offset == 0
    (tmp_path / "kstore-topics.json").unlink()
    with LogStore(tmp_path, mode="a") as store:  # the lock was given up
        assert store.topics == {"t": [0]}


def test_never_closed(tmp_path: Path) -> None:
    store = LogStore(tmp_path, mode="a")
    store.create_topic("t")
    store.append("t", b"v")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        del store
        while not told:  # a thread of its background may hold it for an instant
            time.sleep(0.001)
    assert "never closed" in str(told[0].message)
    del told  # it holds the store
    with LogStore(tmp_path, mode="a") as store:
        log: Any = store.log("t")
        assert [r.value for r in log] == [b"v"]


def test_arrow_and_other_columns(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 3)
        store.extend("t", [b"v%d" % i for i in range(500)], [b"k%d" % i for i in range(500)], 1000)
        scan = store.scan("t", ["value", "partition"], batch_rows=64)
        table = arrow.table(scan)
        table.validate(full=True)
        assert table.schema.names == ["value", "partition"] == list(scan.columns)
        assert table.schema.field("partition").type == arrow.int32()
        assert not table.schema.field("partition").nullable
        pairs = zip(table["value"].to_pylist(), table["partition"].to_pylist(), strict=True)
        assert {(v, partition_of(b"k" + v[1:], 3)) for v in table["value"].to_pylist()} == set(pairs)
        assert arrow.table(store.scan("t", ["partition"])).num_rows == 500
        assert (
            arrow.table(store.scan("t", ["offset"], partitions=[1])).num_rows
            == store.log("t", 1).log_end_offset
        )
        key = b"k77"
        assert arrow.table(store.scan("t", key=key))["value"].to_pylist() == [b"v77"]
        assert "partitions 0, 1, 2" in repr(scan)


def test_a_child_of_fork_has_no_store(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 2)
        store.append("t", b"parent", b"k")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.append("t", b"child", b"k")
            except kstore.LogClosedError:
                store.close()
                del store
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        store.append("t", b"parent", b"k")
        assert [value for _, _, _, value in rows(store, "t")] == [b"parent"] * 2
    assert LogStore(tmp_path).closed_cleanly


def test_a_partition_that_somebody_made_meanwhile(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        for number in (0, 1):
            with kstore.open(tmp_path / f"u-{number}", "a") as log:
                log.append(b"theirs")
        (tmp_path / "u-1").rename(tmp_path / "t-1")
        with pytest.raises(ValueError, match=r"there is .*u-0"):
            store.create_topic("u")
        with pytest.raises(ValueError, match=r"there is .*t-1"):
            store.add_partitions("t", 2)
        assert store.topics == {"t": [0]}
    with LogStore(tmp_path, mode="a") as store:
        assert store.topics == {"t": [0, 1], "u": [0]}
        assert store.append("u", b"ours") == (0, 1)


def test_a_change_is_finished_where_the_directory_was_moved_to(tmp_path: Path) -> None:
    with LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("t", 3)
    table = json.loads((tmp_path / "data" / "kstore-topics.json").read_text())
    table["change"] = {
        "topic": "t",
        "delete": False,
        "make": {str(n): str(tmp_path / "data") for n in range(3)},
    }
    (tmp_path / "data" / "kstore-topics.json").write_text(json.dumps(table))
    for name in ("t-1", "t-2"):  # as if the process had died before it made them
        (tmp_path / "data" / name / "leader-epoch-checkpoint").unlink()
    (tmp_path / "data" / "t-2").rmdir()
    (tmp_path / "data").rename(tmp_path / "moved")
    with LogStore(tmp_path / "moved", mode="a") as store:
        assert store.health().ok
        assert store.topics == {"t": [0, 1, 2]}
    assert [LogStore(tmp_path / "moved").open("t", n).log_end_offset for n in range(3)] == [0, 0, 0]
    # of several directories, one that is not there
    table["number"] += 1
    (tmp_path / "moved" / "kstore-topics.json").write_text(json.dumps(table))
    with LogStore(tmp_path / "moved", tmp_path / "more", mode="a") as store:
        assert str(tmp_path / "data") in store.health().unfinished
        with pytest.raises(kstore.LogFailedError, match="out of use until"):
            store.append("t", b"v", b"k")
        with pytest.raises(kstore.LogFailedError, match="not finished"):
            store.create_topic("u")


def test_retention_of_all_partitions(tmp_path: Path) -> None:
    now = 10**12
    with LogStore(tmp_path, mode="a", clock=lambda: now, internal_segment_bytes=1000) as store:
        store.create_topic("short", 2, retention_ms=1000)
        store.create_topic("kept", 2, retention_ms=-1)
        store.create_topic("silent", 2)
        for topic in store.topics:
            store.extend(topic, [b"." * 100] * 200, [b"%d" % i for i in range(200)])
        now += 9 * 86_400_000
        told = store.retain(dry_run=True)
        assert {tp.topic for tp, each in told.items() if any(d.delete for d in each)} == {"short"}
        assert store.log("short").log_start_offset == 0
        store.retain()
        # nobody has said how long those of "silent" are kept, so nothing is deleted by Kafka's default
        starts = {tp: store.log(*tp).log_start_offset for tp in store}
        assert {tp.topic for tp, start in starts.items() if start > 0} == {"short"}
        assert all(starts[TopicPartition("short", number)] > 50 for number in (0, 1))
        assert {tp.topic for tp in store.health().partitions} == {"silent"}
        assert "without retention_ms" in store.health().partitions[TopicPartition("silent", 0)]
        store.alter_topic("silent", retention_ms=2000)
        store.retain()
        start = store.log("silent").log_start_offset
        assert start > 50
        assert store.health().ok
        store.extend("silent", [b"." * 100] * 200, [b"%d" % i for i in range(200)])
        store.alter_topic("silent", retention_ms=None)
        now += 9 * 86_400_000
        store.retain()
        assert store.log("silent").log_start_offset == start
        assert not store.health().ok


def interrupted(*args: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """As in a program whose garbage is not collected just now."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "where", ["kstore.store.log_directory.LogDirectory._list", "kstore.log.files.lock._hold"]
)
def test_an_interrupted_opening_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Also while somebody keeps the exception, as a prompt does: its traceback has what was made so far."""
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 3)

    with monkeypatch.context() as patch:
        patch.setattr(where, interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            kstore.LogStore(tmp_path, mode="a", background=False)
    code = f"import kstore; kstore.LogStore({str(tmp_path)!r}, mode='a', background=False).close()"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
    kstore.LogStore(tmp_path, mode="a", background=False).close()
    assert kept.value.__traceback__ is not None


@pytest.mark.parametrize("where", ["log_store.count_recovery", "open_partitions.OpenPartitions.keep"])
def test_an_interrupted_recovery_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Neither the exception, if somebody keeps it, nor a circle of references has a log that was recovered."""
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 3)
    store = kstore.LogStore(tmp_path, mode="a", background=False)
    store.extend("t", [b"value"] * 300, [b"%d" % i for i in range(300)])
    store.abandon()

    with without_collection():
        with monkeypatch.context() as patch:
            patch.setattr(f"kstore.store.{where}", interrupted)
            with pytest.raises(KeyboardInterrupt) as kept:
                kstore.LogStore(tmp_path, mode="a", background=False)
        with kstore.LogStore(tmp_path, mode="a", background=False) as store:
            store.extend("t", [b"value"] * 300, [b"%d" % i for i in range(300)])
            assert sum(len(list(store.log("t", at))) for at in range(3)) == 600
        assert kept.value.__traceback__ is not None


def test_a_partition_whose_opening_was_interrupted_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 1)
        with without_collection():
            for where in ("log_store.count_recovery", "open_partitions._Open"):
                with monkeypatch.context() as patch:
                    patch.setattr(f"kstore.store.{where}", interrupted)
                    with pytest.raises(KeyboardInterrupt) as kept:
                        store.append("t", b"value")
                assert store.append("t", b"value")[0] == 0
                store.log("t").close()
                assert kept.value.__traceback__ is not None


def test_a_topic_that_was_open_before_the_directory_was_a_store_s_is_not_deleted(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", durability="group") as log:
        log.append(b"1")
        with LogStore(tmp_path, mode="a") as store:
            with pytest.raises(kstore.LogLockedError, match="t-0"):
                store.delete_topic("t")
            assert store.health().unfinished == ""
            assert list(store.topics) == ["t"]
        log.append(b"2")
    assert [record.value for record in kstore.open(tmp_path / "t-0")] == [b"1", b"2"]
    with LogStore(tmp_path, mode="a") as store:
        store.delete_topic("t")
        assert list(store.topics) == []


def test_a_directory_that_becomes_a_store_s_while_a_log_in_it_is_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(PartitionLock):
        def __init__(self, directory: Path) -> None:
            LogStore(tmp_path, mode="a").close()
            super().__init__(directory)

    monkeypatch.setattr(log_dir_state, "PartitionLock", Late)
    with pytest.raises(kstore.LogLockedError, match="t-0"):
        kstore.open(tmp_path / "t-0", "a")
    monkeypatch.undo()
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"v") == 0
