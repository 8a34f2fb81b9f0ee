"""Publishing without Spark: every system call of it fails once, or the process dies there; each record is there once."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.file import calls_made, fail_call
from kstore.spark import publish, transfer
from kstore.spark.errors import SparkSourceError
from kstore.spark.packing import pack_splits
from kstore.spark.publish import JOURNAL, Sink, Transaction
from kstore.spark.staging import Staged
from tests.helpers.calls import some_calls

pa = pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def _no_fault_stays() -> Iterator[None]:
    yield
    fail_call(0)


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in memory, where the system has such; these tests sync thousands of times."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)


def stage(sink: Sink, job: str, tasks: int = 2, rows: int = 30) -> list[Any]:
    """Rows task-number, for three partitions by their keys."""
    staged: list[Any] = []
    for task in range(tasks):
        stage = sink.stage(job, f"p{task}", topic="t", counts={"t": 3}, task=task)
        for start in (0, rows // 2):
            names = [f"{job}-{task}-{i}".encode() for i in range(start, start + rows // 2)]
            stage.add(pa.RecordBatch.from_pydict({"value": names, "key": names}))
        staged += stage.close()
    return staged


def values(root: Path) -> list[bytes]:
    found: list[bytes] = []
    store = kstore.LogStore(root)
    for tp in store:
        with store.open(*tp) as log:
            found += [r.value or b"" for r in log]
    return sorted(found)


def expected(*jobs: str) -> list[bytes]:
    return sorted(f"{job}-{task}-{i}".encode() for job in jobs for task in range(2) for i in range(30))


def files(one: Staged) -> list[Path]:
    return [Path(one.path, file.name) for file in one.files]


def left(sink: Sink) -> list[Path]:
    return [p for p in Path(sink.staging).rglob("*") if p.is_file()]


def test_once_for_each_transaction(ram: Path) -> None:
    sink = Sink(ram / "log")
    assert sink.publish(Transaction("q", 0), stage(sink, "q-0"), counts={"t": 3})
    assert sink.publish(Transaction("q", 1), stage(sink, "q-1"), counts={"t": 3})
    assert not sink.publish(Transaction("q", 1), stage(sink, "q-1"), counts={"t": 3})
    assert sink.publish(Transaction("other", 0), stage(sink, "o-0"), counts={"t": 3})
    assert sink.publish(Transaction("job"), stage(sink, "job"))
    assert not sink.publish(Transaction("job"), stage(sink, "job"))
    assert values(ram / "log") == expected("q-0", "q-1", "o-0", "job")
    assert kstore.LogStore(ram / "log").topics == {"t": [0, 1, 2]}
    for log in (kstore.open(ram / "log" / f"t-{p}") for p in range(3)):
        for batch in log.batches():
            batch.ensure_valid()


@pytest.fixture(params=["alone", "threads", "moved", "both"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Partitions one after the other, and each in a thread, as when much is published; or staged files become segments,
    all or (those of one task being smaller) some."""
    if request.param == "threads":
        monkeypatch.setattr(publish, "_THREADED", 0)
        monkeypatch.setattr("os.cpu_count", lambda: 3)
    elif request.param != "alone":
        monkeypatch.setattr(transfer, "_LARGE", 0 if request.param == "moved" else 300)
    return str(request.param)


def test_a_system_call_fails_once(ram: Path, way: str) -> None:
    """One in two; all with KSTORE_CALLS=all."""
    counting = Sink(ram / "count")
    staged = stage(counting, "a")
    fail_call(0)
    counting.publish(Transaction("a"), staged, counts={"t": 3})
    calls = calls_made()
    assert calls > 50
    failed = 0
    for nth in some_calls(calls, 2, f"{way} fails"):
        sink = Sink(ram / str(nth) / "log")
        staged = stage(sink, "a")
        fail_call(nth)
        try:
            sink.publish(Transaction("a"), staged, counts={"t": 3})
        except SparkSourceError as e:
            failed += 1
            assert e.code in ("KSTORE_IO", "KSTORE_LOG_FAILED"), e  # noqa: PT017
        finally:
            fail_call(0)
        sink.discard(Transaction("a"), "a")  # Spark calls abort, and the user tries again
        again = Sink(ram / str(nth) / "log")
        again.publish(Transaction("a"), stage(again, "a2"), counts={"t": 3})
        found = values(again_root := ram / str(nth) / "log")
        assert found in (expected("a"), expected("a2")), nth
        assert again.publish(Transaction("b"), stage(again, "b"), counts={"t": 3})
        assert values(again_root) == sorted(found + expected("b"))
        assert again.recover() is False
    assert failed > 15


def test_the_process_dies_at_a_system_call(ram: Path, way: str) -> None:
    """One in four; all with KSTORE_CALLS=all."""
    counting = Sink(ram / "count")
    staged = stage(counting, "a")
    fail_call(0)
    counting.publish(Transaction("a"), staged, counts={"t": 3})
    chosen, killed = some_calls(calls_made(), 4, f"{way} dies"), 0
    for nth in chosen:
        sink = Sink(ram / str(nth) / "log")
        staged = stage(sink, "a")
        child = os.fork()
        if child == 0:
            try:
                fail_call(nth, how=("kill", "kill_half")[nth // 2 % 2])
                sink.publish(Transaction("a"), staged, counts={"t": 3})
                os._exit(0)  # the logs' threads make more calls one time than another
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        assert status in (9, 0), nth
        killed += status == 9
        if (ram / str(nth) / "log" / JOURNAL).exists():
            sink.recover()
        again = Sink(ram / str(nth) / "log")
        again.publish(Transaction("a"), stage(again, "a2"), counts={"t": 3})
        assert values(ram / str(nth) / "log") in (expected("a"), expected("a2")), nth
    assert killed > 0.8 * len(chosen)


def test_what_is_staged_is_needed_until_it_is_published(ram: Path) -> None:
    sink = Sink(ram / "log", lock_wait=0)
    staged = stage(sink, "a")
    with kstore.open(ram / "log" / "t-1", "a"), pytest.raises(SparkSourceError, match=r"KSTORE_LOG_LOCKED"):
        sink.publish(Transaction("a"), staged, counts={"t": 3})
    assert left(sink)
    sink.sweep()
    assert left(sink)
    sink.discard(Transaction("a"), "a")
    assert not left(sink)
    with pytest.raises(SparkSourceError, match=r"KSTORE_STAGING_LOST: .*file .*a/p0"):
        sink.publish(Transaction("a"), staged, counts={"t": 3})
    assert sink.publish(Transaction("b"), stage(sink, "b"), counts={"t": 3})
    assert values(ram / "log") == expected("b")
    stage(sink, "c")
    sink.sweep(0)
    assert not Path(sink.staging).exists()


@pytest.mark.parametrize("job", ["", ".", "..", "../log", "a/../../log", "a\0", 5])
def test_what_is_no_name_of_a_job(ram: Path, job: Any) -> None:
    """Nothing is removed, in staging or elsewhere."""
    sink = Sink(ram / "log")
    assert sink.publish(Transaction("a"), stage(sink, "a"), counts={"t": 3})
    staged = stage(sink, "b")
    there = sorted(ram.rglob("*"))
    for call in (
        lambda: sink.discard(Transaction("b"), job),
        lambda: sink.stage(job, "p0"),
        lambda: sink.stage("b", job),
    ):
        with pytest.raises((TypeError, ValueError), match=r"job|attempt"):
            call()
    for wrong in (
        lambda: sink.discard("b", "b"),  # type: ignore[arg-type]
        lambda: sink.discard(Transaction("b"), "b", [job]),
        lambda: sink.publish("b", staged),  # type: ignore[arg-type]
        lambda: sink.publish(Transaction("b"), [job]),
        lambda: pack_splits([job]),
    ):
        with pytest.raises(TypeError, match=r"transaction|staged|splits"):
            wrong()
    assert sorted(ram.rglob("*")) == there
    assert sink.publish(Transaction("b"), staged)
    assert values(ram / "log") == expected("a", "b")


def test_other_writers_may_come_between(ram: Path, way: None) -> None:
    """A transaction that stopped half way goes on where it stopped, though another program has written since."""
    sink = Sink(ram / "log")
    staged = stage(sink, "a")
    halves = 0
    for nth in range(40, 400, 9):
        root = ram / str(nth) / "log"
        sink = Sink(root)
        staged = stage(sink, "a")
        fail_call(nth)
        try:
            sink.publish(Transaction("a"), staged, counts={"t": 3})
        except SparkSourceError:
            pass
        finally:
            fail_call(0)
        if not root.exists():
            continue
        for partition in range(3):
            with kstore.open(root / f"t-{partition}", "a") as log:
                log.append(b"stranger")
        halves += sink.recover()
        again = Sink(root)
        again.publish(Transaction("a"), stage(again, "a2"), counts={"t": 3})
        found = [v for v in values(root) if v != b"stranger"]
        assert found in (expected("a"), expected("a2"))
    assert halves


def test_rows_for_several_topics(ram: Path) -> None:
    sink = Sink(ram / "log")
    stage = sink.stage("a", "p0")
    rows = pa.RecordBatch.from_pydict({"value": [b"1", b"2", b"4"], "topic": ["one", "two", "one"]})
    stage.add(rows)
    for topic, text in (("a/b", "topic a/b: no name of a topic"), (None, "a row")):
        column = pa.array([topic], pa.string())
        with pytest.raises(SparkSourceError, match=f"KSTORE_INVALID_RECORD: {text}"):
            stage.add(pa.RecordBatch.from_pydict({"value": [b"5"], "topic": column}))
    assert sink.publish(Transaction("a"), stage.close())
    # the option topic says where all rows go, whatever the column says, as with Spark's sink for Kafka
    stage = sink.stage("b", "p0", topic="rest")
    stage.add(rows)
    assert sink.publish(Transaction("b"), stage.close())
    found = {}
    for topic in ("one", "two", "rest"):
        with kstore.open(ram / "log" / f"{topic}-0") as log:
            found[topic] = [r.value for r in log]
    assert found == {"one": [b"1", b"4"], "two": [b"2"], "rest": [b"1", b"2", b"4"]}


@pytest.mark.parametrize("chunk", [61, 100, 1500, 4000])
def test_staged_files_come_in_pieces(ram: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces smaller than a batch, and such as end in one."""
    monkeypatch.setattr(transfer, "_CHUNK", chunk)
    sink = Sink(ram / "log")
    assert sink.publish(Transaction("a"), stage(sink, "a"), counts={"t": 3})
    assert values(ram / "log") == expected("a")


@pytest.mark.parametrize(
    ("at", "what", "code"),
    [
        (-1, b"", "KSTORE_CORRUPT_BATCH: topic t, partition 1, file .*: CRC 0x"),
        (8, b"\xff", "KSTORE_CORRUPT_BATCH: topic t, partition 1, file .*: a batch of -"),
        (8, b"\x7f", "KSTORE_CORRUPT_BATCH: topic t, partition 1, file .*: a batch of 2"),
        (None, b"", r"KSTORE_STAGING_LOST: .*: \d+ bytes of \d+; nothing was written"),
    ],
)
def test_staged_records_that_the_disk_changed(ram: Path, at: int | None, what: bytes, code: str) -> None:
    sink = Sink(ram / "log")
    staged = stage(sink, "a", tasks=1)
    [one] = [one for one in staged if one.partition == 1]
    [file] = files(one)
    data = bytearray(file.read_bytes())
    if at is None:
        del data[-1:]
    else:
        data[at] = data[at] ^ 1 if at < 0 else what[0]
    file.write_bytes(data)
    with pytest.raises(SparkSourceError, match=code):
        sink.publish(Transaction("a"), staged, counts={"t": 3})


@pytest.mark.parametrize("at", [-1, 8, 30, None])
def test_segments_that_the_disk_changed(ram: Path, at: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that would be moved; nothing has been published then, and the job may be run again."""
    monkeypatch.setattr(transfer, "_LARGE", 0)
    sink = Sink(ram / "log")
    staged = [one for one in stage(sink, "a", tasks=1) if one.partition == 1]
    [file] = files(staged[0])
    data = bytearray(file.read_bytes())
    if at is None:
        del data[-1:]
    else:
        data[at] ^= 0x41
    file.write_bytes(data)
    code = "STAGING_LOST" if at is None else "CORRUPT_BATCH"
    with pytest.raises(SparkSourceError, match=rf"KSTORE_{code}: topic t, partition 1, .*a/p0"):
        sink.publish(Transaction("a"), staged, counts={"t": 3})
    sink.discard(Transaction("a"), "a")
    assert not left(sink)
    assert sink.publish(Transaction("a"), stage(sink, "b"), counts={"t": 3})
    assert values(ram / "log") == expected("b")


def test_large_staged_files_are_moved(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very file becomes a segment, behind what is there, and readers that were there before go on into it."""
    monkeypatch.setattr(transfer, "_LARGE", 0)
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.append(b"before")
    reader = kstore.open(ram / "log" / "t-1")
    assert len(list(reader)) == 1
    staged = stage(sink, "a")
    inodes = [file.stat().st_ino for one in staged for file in files(one)]
    assert sink.publish(Transaction("a"), staged, counts={"t": 3})
    assert set(inodes) <= {path.stat().st_ino for path in (ram / "log").rglob("*.log")}
    assert values(ram / "log") == sorted([*expected("a"), b"before"])
    reader.refresh()
    total = sum(one.record_count for one in staged if one.partition == 1)
    assert [r.offset for r in reader] == list(range(total + 1))
    assert not Path(sink.staging).exists()


@pytest.mark.parametrize("why", ["another file system", "the time is given when they are published"])
def test_staged_files_that_cannot_be_moved(ram: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_LARGE", 0)
    config = kstore.LogConfig()
    if why == "another file system":

        def refused(*names: str) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr("os.link", refused)
    else:
        config = config.replace(message_timestamp_type="LogAppendTime")
    sink = Sink(ram / "log", config)
    assert sink.publish(Transaction("a"), stage(sink, "a"), counts={"t": 3})
    assert values(ram / "log") == expected("a")
    with kstore.open(ram / "log" / "t-0") as log:
        assert all(batch.producer_id >= 0 for batch in log.batches())


def test_moved_files_that_are_lost(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing broke off after one partition; somebody wiped staging: that is told, not taken for done."""
    monkeypatch.setattr(transfer, "_LARGE", 0)
    sink = Sink(ram / "log")
    staged = stage(sink, "a")
    adopt = kstore.LogWriter.adopt

    def broken(log: kstore.LogWriter, path: str) -> range:
        if log.path.endswith("t-1"):
            raise OSError(errno.EIO, "injected")
        return adopt(log, path)

    with monkeypatch.context() as patch:
        patch.setattr("kstore.log.writer.LogWriter.adopt", broken)
        with pytest.raises(SparkSourceError, match="injected"):
            sink.publish(Transaction("a"), staged, counts={"t": 3})
    shutil.rmtree(sink.staging)
    text = r"KSTORE_STAGING_LOST: topic t, partition 1, file .*: it is not in the log.*of 60 records \d+ are in the logs.*job a; .*forget\(\)"
    with pytest.raises(SparkSourceError, match=text):
        sink.recover()
