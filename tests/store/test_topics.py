"""Topics of a store: made, written, read, changed, deleted, and there again at the next opening."""

import io
import os
import pickle
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.__main__ import main as run_command
from tests.helpers.files import contents
from tests.helpers.murmur2 import murmur2, partition_of
from tests.store.stores import opened, rows, values, writer

# ---- records -----------------------------------------------------------------------------------------------


def test_records_come_back(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as store:
        store.create_topic("orders", 4)
        places = {
            b"k%d" % i: store.append("orders", b"v%d" % i, b"k%d" % i, 1000 + i, [("h", b"x")])
            for i in range(50)
        }
        assert all(partition == partition_of(key, 4) for key, (partition, _) in places.items())
        log = writer(store, "orders", 2)
        assert log is store.log("orders", 2)
        assert repr(store) == f"LogStore({str(tmp_path / 'data')!r}, 4 partitions)"
    assert store.is_closed
    assert log.is_closed
    again = LogStore(tmp_path / "data")
    assert again.closed_cleanly
    assert again.topics == {"orders": [0, 1, 2, 3]}
    assert list(again) == [TopicPartition("orders", number) for number in range(4)]
    assert [each in again for each in (("orders", 3), ("orders", 4), "orders")] == [True, False, False]
    for i, (key, (partition, offset)) in enumerate(places.items()):
        record = again.log("orders", partition).get(offset)
        assert (record.key, record.value, record.timestamp) == (key, b"v%d" % i, 1000 + i)
        assert record.headers == (("h", b"x"),)
    expected = [(*place, key, b"v%d" % i) for i, (key, place) in enumerate(places.items())]
    assert rows(again, "orders") == sorted(expected)


def test_the_hash_is_kafkas() -> None:
    """The values of UtilsTest.testMurmur2. All tests of stores compare where keys are with this function."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: (murmur2(key) ^ 1 << 31) - (1 << 31) for key in known} == known


def test_records_without_a_key_stay_at_one_partition_for_a_while(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", 3)
        places = [store.append("t", b"." * 1000)[0] for _ in range(17 * 6)]
        spells = [places[i : i + 17] for i in range(0, len(places), 17)]
        assert all(len(set(spell)) == 1 for spell in spells)
        assert [spell[0] for spell in spells] == [(places[0] + i) % 3 for i in range(6)]
        calls = [next(iter(store.extend("t", [b"a", b"b"]))) for _ in range(6)]
        assert sorted(calls) == [0, 0, 1, 1, 2, 2]


def test_scans(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    with opened(tmp_path) as store:
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
        one = arrow.table(store.scan("t", ["offset"], partitions=[1]))
        assert one.num_rows == store.log("t", 1).log_end_offset
        assert arrow.table(store.scan("t", key=b"k77"))["value"].to_pylist() == [b"v77"]
        assert "partitions 0, 1, 2" in repr(scan)


def test_a_key_is_erased_from_a_whole_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is in two partitions, because some were added."""
    with opened(tmp_path) as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 20, [b"k%d" % n for n in range(20)])
        store.add_partitions("t", 4)
        store.extend("t", [b"v"] * 20, [b"k%d" % n for n in range(20)])
        key, other = (next(r.key for r in store.log("t", number)) or b"" for number in (3, 2))
        found = store.erase("t", keys=iter([key]), reason="asked for", dry_run=True)
        assert sorted(n for n, done in found.items() if done.records_erased) == [0, 3]
        assert [row[2] for row in rows(store)].count(key) == 2
        assert sum(d.records_erased for d in store.erase("t", keys=[key], reason="asked for").values()) == 2
        assert [row[2] for row in rows(store)].count(key) == 0
        assert len(rows(store)) == 38
        with pytest.raises(TypeError, match="keys"):
            store.erase("t", keys=b"k", reason="asked for")
    command = ["erase", str(tmp_path), "t", "--key", other.decode()]
    assert run_command([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("\n2 records would be erased\n")
    assert run_command([*command, "--reason", "asked for"]) == 0
    assert capsys.readouterr().out.endswith("\n2 records erased: asked for\n")
    assert run_command(command) == 1
    assert run_command([*command, "--keep-cut"]) == 2


# ---- changes -----------------------------------------------------------------------------------------------


def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    now = 10**12
    with opened(tmp_path, clock=lambda: now, file_delete_delay_ms=50) as store:
        store.create_topic("t", 2, retention_ms=3)
        for _ in range(9):
            store.append("t", b"old", b"k")
        partition = partition_of(b"k", 2)
        log = writer(store, "t", partition)
        log.delete_records(7)
        store.delete_topic("t")
        assert log.is_closed
        assert store.topics == {}
        for call in (lambda: store.append("t", b""), lambda: store.log("t"), lambda: store.scan("t")):
            with pytest.raises(kstore.LogNotFoundError, match="no topic t in"):
                call()
        left = sorted(store.others)
        assert [bool(re.fullmatch(r"t-[01]\.[0-9a-f]{32}-delete", name)) for name in left] == [True, True]
        store.create_topic("t", 2)
        assert store.describe("t").options == {}
        assert store.append("t", b"new", b"k") == (partition, 0)
        assert sorted(store.others) == left
        now += 50
        store.retain()
        assert store.others == []
        store.delete_topic("t")
        assert len(store.others) == 2
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    """A link goes alone, without what it leads to."""
    home, data = tmp_path / "home", tmp_path / "d"
    home.mkdir()
    (home / "letter").write_text("dear")
    with opened(data) as store:
        store.create_topic("kept")
    left = data / f"gone-0.{'0' * 32}-delete"
    left.mkdir()
    (left / "00000000000000000000.log").write_bytes(b"x")
    (data / f"link-0.{'0' * 32}-delete").symlink_to(home)
    (data / "y-0").symlink_to(home)
    (data / "itself-0").symlink_to(data / "itself-0")
    now = 10**12
    with opened(data, clock=lambda: now) as store:
        assert list(store.topics) == ["kept", "y"]
        store.delete_topic("y")
        store.retain()
        assert left.exists()
        now += 60_000
        store.retain()
        assert not left.exists()
    assert [path.name for path in data.iterdir() if path.is_symlink()] == ["itself-0"]
    assert (home / "letter").read_text() == "dear"


def test_names(tmp_path: Path) -> None:
    longest = "n" + 248 * "o"
    with opened(tmp_path) as store:
        for name in ("", ".", "..", "a b", "a/b", "x" * 250, "a\n", "ä"):
            with pytest.raises(ValueError, match="cannot be the name of a topic"):
                store.create_topic(name)
        assert len(store) == 0
        assert not [path for path in tmp_path.iterdir() if path.is_dir()]
        store.create_topic(longest, 6)
        store.delete_topic(longest)
        (found,) = [other for other in store.others if "-5." in other]
        assert len(found) == 255
        assert found.startswith("n" + 212 * "o" + "-5.")
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


def test_a_missing_topic_names_what_may_be_meant(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(kstore.LogNotFoundError, match="which has no topics"):
            store.log("t")
        store.create_topic("orders", 2)
        store.create_topic("clicks")
        for name, hint in [
            ("order", "there is orders"),
            ("orders-1", "orders-1 is partition 1 of topic orders"),
            ("zz", "there are clicks, orders"),
        ]:
            with pytest.raises(kstore.LogNotFoundError, match=hint):
                store.append(name, b"v")
            with pytest.raises(kstore.LogNotFoundError, match=hint):
                store.cursor("g", [name])


# ---- directories -------------------------------------------------------------------------------------------


def test_a_failed_directory_takes_only_its_own_partitions(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("a", "b")]
    with opened(*dirs) as store:
        store.create_topic("t", 4)
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_bytes(b"no directory")
    with opened(*dirs) as store:
        assert list(store.health().directories) == [tmp_path / "b"]
        here = store.topics["t"]
        assert len(here) == 2
        found = set()
        for key in (b"%d" % i for i in range(50)):
            found.add(is_here := partition_of(key, 4) in here)
            if is_here:
                assert store.append("t", b"v", key)[0] == partition_of(key, 4)
            else:  # it must not go to a partition that the key does not belong to
                with pytest.raises(kstore.LogNotFoundError, match="no partition"):
                    store.append("t", b"v", key)
        assert found == {True, False}
        assert {store.append("t", b"." * 20_000)[0] for _ in range(4)} == set(here)
        with pytest.raises(kstore.LogFailedError, match=r"partitions \[.*\] are in none"):
            store.delete_topic("t")
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    with opened(*dirs) as store:
        assert store.health().ok
        assert store.topics == {"t": [0, 1, 2, 3]}
    for name in "ab":
        (tmp_path / name / "t-0").mkdir(exist_ok=True)
    for open_both in (opened, LogStore):
        with pytest.raises(kstore.KstoreError, match=r"t-0 lies in .* and in"):
            open_both(*dirs)


def test_a_partition_that_appears_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
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
    with opened(tmp_path) as store:
        assert store.topics == {"t": [0, 1], "u": [0]}
        assert store.append("u", b"ours") == (0, 1)


def test_a_partition_that_is_removed_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with opened(path) as store:
        store.create_topic("t", 2)
        assert store.health().ok
        shutil.rmtree(path / "t-1")
        assert store.health().partitions == {("t", 1): f"no partition directory at {path / 't-1'}"}
        (path / "t-1").mkdir()
        assert store.health().ok
        store.delete_topic("t")
        store.create_topic("t", 2)
        assert store.health().ok
        path.rename(tmp_path / "away")
        assert list(store.health().directories) == [path]
        (tmp_path / "away").rename(path)
        assert store.health().ok


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("my orders-0", "passes over 'my orders-0'"),
        ("orders-07", "passes over"),
        ("orders", "passes over"),
        ("orders-9", "has 2 partitions, of which orders-9 is none"),
        ("other-1", "topic other .* has no partition 0, so records .* find no place in it"),
        ("orders--1", "topic orders- .* has no partition 0"),
    ],
)
def test_a_new_log_that_the_store_would_not_use(
    tmp_path: Path,
    name: str,
    warning: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(tmp_path / "d") as store:
        store.create_topic("orders", 2)
    with pytest.warns(UserWarning, match=warning):
        kstore.open(tmp_path / "d" / name, "a").close()
    for sound in (f"d/{name}", "d/orders-0", "d/fresh-0"):  # the first warned already
        kstore.open(tmp_path / sound, "a").close()
    if "passes over" not in warning or name == "orders":  # else it looks like a partition that Kafka refuses
        kstore.open(tmp_path / "elsewhere" / name, "a").close()
    shutil.rmtree(tmp_path / "d" / name)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run_command(["append", str(tmp_path / "d" / name)]) == 0
    assert str(tmp_path / "d") in capsys.readouterr().err


# ---- arguments ---------------------------------------------------------------------------------------------


def test_wrong_arguments(tmp_path: Path) -> None:
    make: Any = LogStore
    path = tmp_path / "d"
    invalid, missing = kstore.InvalidConfigError, kstore.LogNotFoundError
    of_opening: list[tuple[type[Exception], str | None, Callable[[], object]]] = [
        (TypeError, "needs the path", make),
        (ValueError, "not an empty one", lambda: make("")),
        (ValueError, "mode", lambda: make(path, mode="w")),
        (TypeError, "mode='a'", lambda: make(path, "a")),
        (ValueError, "max_open_partitions", lambda: make(path, mode="a", max_open_partitions=0)),
        (ValueError, "idle_roll_ms", lambda: make(path, mode="a", idle_roll_ms=0)),
        (invalid, "segment_byte", lambda: make(path, mode="a", segment_byte=1)),
        (ValueError, "named twice", lambda: make(path, tmp_path / "." / "d", mode="a")),
        (missing, "no", lambda: make(path)),
        *[
            (TypeError, "give mode='a' to write", lambda option=option: make(tmp_path, **option))
            for option in ({"retention_ms": 1}, {"background": False}, {"idle_roll_ms": 5})
        ],
    ]
    for error, text, call in of_opening:
        with pytest.raises(error, match=text):
            call()
    assert list(tmp_path.iterdir()) == []
    keys = [b"%d" % i for i in range(100)]
    with make(path, mode="a", background=False) as store:
        store.create_topic("t", 4)
        of_store: list[tuple[Any, str | None, Callable[[], object]]] = [
            (RuntimeError, "open already", lambda: store.__init__(tmp_path)),
            (TypeError, "pickled", lambda: pickle.dumps(store)),
            (TypeError, "pickled", lambda: pickle.dumps(store.scan("t"))),
            (ValueError, "partitions", lambda: store.create_topic("u", 0)),
            (ValueError, "named twice", lambda: store.scan("t", ["partition", "partition"])),
            (missing, "no partition 4", lambda: store.scan("t", partitions=range(4, 10**12))),
            (missing, "no partition", lambda: store.log("t", 4)),
            (missing, "no topic u", lambda: store.describe("u")),
            (TypeError, r"by \(topic, partition\)", lambda: store.follow(start={"t": 0})),
            (ValueError, "an offset or a datetime", lambda: store.cursor("g", ["t"], start="begin")),
            (ValueError, None, lambda: store.extend("t", [b"x"] * 99, keys)),
            (
                (TypeError, ValueError),
                "57",
                lambda: store.extend("t", keys, keys, [1] * 57 + ["x"] + [1] * 42),
            ),
        ]
        for error, text, call in of_store:
            with pytest.raises(error, match=text):
                call()
        assert rows(store) == []
        assert list(store.topics) == ["t"]
    for call in (
        lambda: store.append("t", b""),
        lambda: store.create_topic("u"),
        lambda: store.log("t"),
        store.metrics,
    ):
        with pytest.raises(kstore.LogClosedError):
            call()
    store.close()
    with pytest.raises(io.UnsupportedOperation, match="open for reading"):
        make(path).append("t", b"")


def test_warnings_name_the_line_of_the_program(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as store:
        store.create_topic("t")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store.append("t", b"v", timestamp=1_700_000_000)
            store.extend("t", [b"v"], timestamps=[1_700_000_000])
            store.log("t").append(b"v", timestamp=1_700_000_000)  # type: ignore[attr-defined]
            store.cursor("g", ["t"]).close()
        batch = next(iter(store.log("t").batches()))
    (tmp_path / "d" / ".kafka_cleanshutdown").unlink()
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.size - 1)
        file.write(b"\xff")
    with warnings.catch_warnings(record=True) as more:
        warnings.simplefilter("always")
        list(kstore.open(tmp_path / "d" / "t-0"))
        kstore.open(tmp_path / "d" / "t-0", "a").close()
    assert len(caught) == 3
    assert {warning.category for warning in more} == {kstore.DataLossWarning}
    assert {warning.filename for warning in [*caught, *more]} == {__file__}


def test_never_closed(tmp_path: Path) -> None:
    store = LogStore(tmp_path, mode="a")
    store.create_topic("t")
    store.append("t", b"v")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        del store
        while not caught:  # a thread of its background may hold it for an instant
            time.sleep(0.001)
    assert "never closed" in str(caught[0].message)
    del caught  # it holds the store
    with opened(tmp_path, wait=60) as store:
        assert values(store) == [b"v"]


def test_a_topic_that_may_exist(tmp_path: Path) -> None:
    """It has what the call names, or the error names the difference; nothing else is compared."""
    with opened(tmp_path, retention_ms=5) as store:
        made = store.create_topic("t", 3, exist_ok=True, flush_ms=7)
        assert made == store.describe("t")
        for partitions, options in ((None, {}), (3, {}), (3, {"flush_ms": 7}), (None, {"retention_ms": 5})):
            assert store.create_topic("t", partitions, exist_ok=True, **options) == made  # type: ignore[arg-type]
        wrong: list[tuple[int | None, dict[str, Any], str]] = [
            (4, {}, r"exists with 3 partitions, not 4: add_partitions\(\)"),
            (1, {}, "exists with 3 partitions, not 1: a topic cannot lose partitions"),
            (None, {"flush_ms": 8}, r"exists with flush_ms=7, not 8: alter_topic\(\)"),
            (3, {"flush_ms": 7, "retention_ms": 6}, "exists with retention_ms=5, not 6"),
            (None, {"cleanup_policy": "compact"}, r"cleanup_policy=\('delete',\), not \('compact',\)"),
        ]
        for count, given, text in wrong:
            with pytest.raises(ValueError, match=text):
                store.create_topic("t", count, exist_ok=True, **given)
        assert store.describe("t") == made
        store.alter_topic("t", flush_ms=8)
        assert store.create_topic("t", 3, exist_ok=True).config.flush_ms == 8
        with pytest.raises(ValueError, match="there is a topic t"):
            store.create_topic("t")
        store.create_topic("a.b", cleanup_policy="compact,delete")
        store.create_topic("a.b", exist_ok=True, cleanup_policy=("delete", "compact"))
        with pytest.raises(ValueError, match=r"there is a topic a\.b"):
            store.create_topic("a_b", exist_ok=True)
        with pytest.raises(kstore.InvalidConfigError):
            store.create_topic("t", exist_ok=True, flush_m=1)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="partitions"):
            store.create_topic("t", 0, exist_ok=True)


def test_a_reader_may_start_before_the_writer(tmp_path: Path) -> None:
    def write() -> None:
        with opened(tmp_path / "data") as store:
            store.create_topic("t")
            store.append("t", b"v")

    with pytest.raises(kstore.LogNotFoundError, match="no log directory"):
        LogStore(tmp_path / "data", wait=0.01)
    late = threading.Timer(0.05, write)
    late.start()
    reading = LogStore(tmp_path / "data", wait=60)
    late.join()
    with reading.follow(["t"], "earliest", timeout=60) as follower:
        assert next(iter(follower)).value == b"v"
    with pytest.raises(ValueError, match="wait"):
        LogStore(tmp_path / "data", wait=-1)


@pytest.mark.parametrize("call", ["append", "extend"])
def test_a_wrong_value_opens_no_log(tmp_path: Path, call: str) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.append("t", b"v")
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        before = contents(tmp_path / "t-0")
        with pytest.raises(TypeError, match="value"):
            getattr(store, call)("t", 5)
        assert contents(tmp_path / "t-0") == before
