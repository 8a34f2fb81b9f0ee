"""Which paths kstore.open takes, under which names a log is the same, and that a refusal makes nothing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from tests.helpers.processes import run_python
from tests.unit.logs import filled, offsets

MODES = ("r", "r+", "a")


# ---- what is a partition -------------------------------------------------------------------------


def test_what_is_no_partition_is_not_read_as_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "readme").write_bytes(b"x")
    for mode in ("r", "r+"):
        for name in ("photos", "orders", "orders-0"):
            with pytest.raises(kstore.LogNotFoundError, match=r"no partition at .*no \.log file"):
                kstore.open(tmp_path / name, mode)
    (tmp_path / "orders-0" / "readme").unlink()
    assert list((tmp_path / "orders").iterdir()) == []
    assert list(kstore.open(tmp_path / "orders-0")) == []  # as in Kafka
    assert list((tmp_path / "orders-0").iterdir()) == []
    with kstore.open(tmp_path / "orders-0", "a") as log:
        log.append(b"x")
    assert [record.value for record in kstore.open(tmp_path / "orders-0")] == [b"x"]


def test_a_log_directory_is_not_opened_and_its_partitions_are_named(tmp_path: Path) -> None:
    for n in range(7):
        kstore.open(tmp_path / "data" / f"orders-{n}", "a").close()
    before = sorted(tmp_path.rglob("*"))
    words = r"log directory.*: it holds orders-0, .*orders-4 and 2 more"
    for mode in MODES:
        with pytest.raises(kstore.LogNotFoundError, match=words):
            kstore.open(tmp_path / "data", mode)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_path_that_is_nearly_right(tmp_path: Path) -> None:
    filled(tmp_path / "orders-0").close()
    filled(tmp_path / "orders-1").close()
    beside = "no partition directory at .*; partitions of topic orders beside it: orders-0, orders-1"
    for mode in ("r", "r+"):
        with pytest.raises(kstore.LogNotFoundError, match=beside):
            kstore.open(tmp_path / "orders", mode)
    with pytest.raises(kstore.LogNotFoundError, match=r"the partition orders-1 is open\('orders', 1\)"):
        LogStore(tmp_path).open("orders-1")
    with pytest.raises(kstore.LogNotFoundError, match="is a partition, not a log directory"):
        LogStore(tmp_path / "orders-0")
    assert kstore.open(next((tmp_path / "orders-0").glob("*.log"))).topic_id() is None


def test_no_log_is_made_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "report.csv").touch()
    with pytest.raises(kstore.LogNotFoundError, match=r"other files such as report\.csv"):
        kstore.open(tmp_path, "a")
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]
    for name in ("meta.properties", "lost+found", ".hidden"):
        made = tmp_path / "mount" / name / "t-0"
        made.mkdir(parents=True)
        (made / name).touch()
        kstore.open(made, "a").close()


def test_a_store_opens_only_what_is_in_it(tmp_path: Path) -> None:
    for place in ("other-0", "store/t-0"):
        with kstore.open(tmp_path / place, "a") as log:
            log.append(place.encode())
    store = LogStore(tmp_path / "store")
    wrong: list[tuple[Any, Any, type[Exception]]] = [
        *((topic, 0, ValueError) for topic in ("../other", "..", "", "a/b", "/etc", "a\0")),
        (None, 0, TypeError),
        *(("t", number, TypeError) for number in (1.0, True, "0/../../other-0")),
        *(("t", number, ValueError) for number in (-1, 2**31)),
        ("gone", 0, kstore.LogNotFoundError),
    ]
    for topic, partition, error in wrong:
        with pytest.raises(error):
            store.open(topic, partition)
    assert [record.value for record in store.open("t")] == [b"store/t-0"]


# ---- a log under several names -------------------------------------------------------------------

TRIES = """
import kstore, sys
for path in sys.argv[1:]:
    try:
        kstore.open(path, "a")
    except kstore.LogLockedError:
        print("locked")
"""


@pytest.mark.parametrize("around", ["meta.properties", ""])
def test_one_writer_by_whatever_path(tmp_path: Path, around: str) -> None:
    """Neither a link nor a file that appears around the partition leads to a second lock."""
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
    if around:
        (tmp_path / "A" / around).touch()
    with filled(tmp_path / "A" / "q-0") as log:
        (tmp_path / "B" / "q-0").symlink_to(tmp_path / "A" / "q-0")
        (tmp_path / "B" / "r-0").symlink_to(tmp_path / "A" / "q-0")
        (tmp_path / "A" / "meta.properties").touch()
        (tmp_path / "A" / ".lock").unlink(missing_ok=True)
        paths = (tmp_path / "B" / "q-0", tmp_path / "B" / "r-0", tmp_path / "A" / "q-0")
        for path in paths:
            with pytest.raises(kstore.LogLockedError):
                kstore.open(path, "a")
        assert run_python(TRIES, *paths).stdout == "locked\n" * 3
        log.append(b"goes on")
    kstore.open(tmp_path / "B" / "q-0", "a").close()


def test_a_log_that_this_process_has_open_already(tmp_path: Path) -> None:
    """As when a cell of a notebook is run twice: the error says what to do."""
    words = r"this process .* close\(\) on that log first, or .* `with`"
    with kstore.open(tmp_path / "t-0", "a"), pytest.raises(kstore.LogLockedError, match=words):
        kstore.open(tmp_path / "t-0", "a")
    kstore.open(tmp_path / "t-0", "a").close()
    assert "mode 'r'" in str(kstore.LogLockedError("data", 17))
    assert "all open it with shared=True" in str(kstore.LogLockedError("data", 17))


def test_what_is_neither_a_directory_nor_a_file(tmp_path: Path) -> None:
    """The error names the path that was given, not a file in it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "lost").symlink_to(tmp_path / "gone")
    for name, words in (
        ("pipe", "it is neither a directory nor a regular file"),
        ("loop", "the link leads to itself"),
        ("lost", "no partition directory"),
    ):
        with pytest.raises(kstore.LogNotFoundError, match=words):
            kstore.open(tmp_path / name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda log, cursor: cursor.commit("5"), "record is a Record or the offset of the next one, not '5'"),
        (
            lambda log, cursor: cursor.seek(1.5),
            "place is 'earliest', 'latest', an offset or a datetime, not 1.5",
        ),
        (
            lambda log, cursor: log.cursor("h", b"latest"),
            "start is 'earliest', 'latest', an offset or a datetime",
        ),
        (lambda log, cursor: log.follow([1, 0, 0, ""]), r"offset is an offset or a Position, not \[1"),
    ],
)
def test_what_else_than_an_int_is_allowed(tmp_path: Path, call: Any, words: str) -> None:
    log = filled(tmp_path / "t-0", 2)
    with log, log.cursor("g") as cursor, pytest.raises(TypeError, match=words):
        call(log, cursor)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory whose topic t has 5 records."""
    with LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t", cleanup_policy="compact", retention_ms=-1)
        for i in range(5):
            store.append("t", b"%d" % i, key=b"k%d" % i)
    return tmp_path / "data"


def test_a_partition_on_another_disk(data: Path, tmp_path: Path) -> None:
    """It belongs to the log directory that the link is in, for a store and for kstore.open."""
    with LogStore(data).cursor("g", ["t"], start="earliest") as jobs:
        for record in jobs:
            jobs.commit(record)
    (tmp_path / "disk").mkdir()
    (data / "t-0").rename(tmp_path / "disk" / "t-0")
    (data / "t-0").symlink_to(tmp_path / "disk" / "t-0")
    with kstore.open(data / "t-0", "a") as log:
        assert log.recovery.clean
        assert log.config.cleanup_policy == ("compact",)
        log.append(b"5", b"k5")
    with kstore.open(data / "t-0").cursor("g") as cursor:
        assert [record.value for record in cursor] == [b"5"]
    with LogStore(data, mode="a") as store:
        assert [record.value for record in store.log("t", 0)] == [b"%d" % i for i in range(6)]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["t-0"]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_the_program_goes_to_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """A log that was opened by a relative path stays the same."""
    monkeypatch.chdir(tmp_path)
    filled(Path("t-0"), 5).close()
    with kstore.open("t-0", mode) as log:
        assert log.path == str(tmp_path / "t-0")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert offsets(log) == [0, 1, 2, 3, 4]
        assert sum(len(batch) for batch in log.scan()) == 5
        with log.cursor("group") as cursor:
            assert len(list(cursor)) == 5
            cursor.commit()
        assert next(log.follow(4, timeout=0)).offset == 4
        log.refresh()
        assert log.get(0).offset == 0


# ---- what a mode offers --------------------------------------------------------------------------


def test_a_reader_says_how_to_write(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as writer:
        log = kstore.open(tmp_path / "t-0")
        for name in ("append", "extend", "flush"):
            assert hasattr(writer, name)
            assert not hasattr(log, name)
            assert not hasattr(kstore.PartitionLog, name)
            words = rf"no {name}\(\): kstore.open\(path, 'a'\) opens it for writing"
            with pytest.raises(AttributeError, match=words):
                getattr(log, name)


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_file_that_is_larger_than_a_segment_can_be(tmp_path: Path, mode: Any) -> None:
    """Positions in indexes have 32 bits: Kafka does not open it. It is neither empty nor cut off."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"v")
    file = path / f"{0:020d}.log"
    os.truncate(file, 1 << 31)
    for open_it in (
        lambda: kstore.open(path, mode),
        lambda: kstore.open(path, recover=False),
        lambda: kstore.open(file),
    ):
        with pytest.raises(OSError, match="at most 2147483647 bytes") as caught:
            open_it()
        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file))
    assert file.stat().st_size == 1 << 31
    os.truncate(file, (1 << 31) - 1)
    assert kstore.open(path).log_end_offset == 1
