"""A transaction that broke off, by a failing call or a killed driver, is finished exactly, whoever came
between."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import Sink, SparkSourceError, Transaction
from kstore.testing import count_calls, failing
from tests.helpers.effort import SEED, some
from tests.spark import sinks
from tests.spark.sinks import COUNTS, HOUR_MS, ROWS, in_child, killed_in_commit, stage, values, wanted

FIRST = Transaction("query", 0)


@pytest.fixture(params=["copied", "moved"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return sinks.ways(monkeypatch, request.param)


@pytest.fixture(params=["copied", "moved", "both", "threads"])
def any_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return sinks.ways(monkeypatch, request.param)


def calls_of_publishing(root: Path) -> int:
    """How many system calls it takes to publish two tasks."""
    sink = Sink(root)
    staged = stage(sink, "a")
    return count_calls(lambda: sink.publish(Transaction("a"), staged, counts=COUNTS))


def check_published_once(root: Path, why: object) -> None:
    """Job a is there once after it was tried again, and another job is published after it."""
    again = Sink(root)
    again.publish(Transaction("a"), stage(again, "a2"), counts=COUNTS)
    found = [value for value in values(root) if value != "stranger"]
    assert found in (wanted("a"), wanted("a2")), why
    assert again.publish(Transaction("b"), stage(again, "b"), counts=COUNTS)
    assert [value for value in values(root) if value != "stranger"] == sorted(found + wanted("b")), why
    assert again.recover() is False


def test_a_system_call_fails_once(ram: Path, any_way: str) -> None:
    calls, failed = calls_of_publishing(ram / "count"), 0
    chosen = some(range(1, calls + 1), 12, f"{any_way} fails")
    for nth in chosen:
        sink = Sink(ram / str(nth) / "log")
        staged = stage(sink, "a")
        try:
            with failing(nth):
                sink.publish(Transaction("a"), staged, counts=COUNTS)
        except SparkSourceError as e:
            failed += 1
            assert e.code in ("KSTORE_IO", "KSTORE_LOG_FAILED"), e  # noqa: PT017
        sink.discard(Transaction("a"), "a")  # Spark calls abort, and the user tries again
        check_published_once(ram / str(nth) / "log", f"call {nth}, SEED={SEED}")
    assert failed > len(chosen) // 5


def test_the_process_dies_at_a_system_call(ram: Path, any_way: str) -> None:
    """Another program writes before the transaction is finished."""
    chosen = some(range(1, calls_of_publishing(ram / "count") + 1), 12, f"{any_way} dies")
    killed = finished = 0
    for nth in chosen:
        root = ram / str(nth) / "log"
        sink = Sink(root)
        staged = stage(sink, "a")

        def publish(sink: Sink = sink, staged: Any = staged, nth: int = nth) -> None:
            with failing(nth, how=("kill", "kill_half")[nth // 2 % 2]):
                sink.publish(Transaction("a"), staged, counts=COUNTS)

        ended = in_child(publish)
        assert ended in (-9, 0), nth  # threads of logs make more calls one time than another
        killed += ended == -9
        for partition in range(2) if root.exists() else ():
            with kstore.open(root / f"t-{partition}", "a") as log:
                log.append(b"stranger")
        finished += sink.recover()
        check_published_once(root, f"call {nth}, SEED={SEED}")
    assert killed > 0.8 * len(chosen)
    assert finished


def test_finishing_breaks_off_too(ram: Path, way: str) -> None:
    def broken_off(root: Path) -> Sink:
        sink = Sink(root)
        killed_in_commit(sink, stage(sink, "a", age_h=48), FIRST)
        return sink

    calls = count_calls(broken_off(ram / "count").recover)
    chosen, broken = some(range(1, calls + 1), 15, f"{way} recover"), 0
    for nth in chosen:
        sink = broken_off(ram / str(nth) / "log")

        def recover(sink: Sink = sink, nth: int = nth) -> None:
            with failing(nth, how=("kill", "kill_half", "error")[nth // 3 % 3]):
                sink.recover()

        broken += in_child(recover) != 0
        sink.recover()
        assert values(ram / str(nth) / "log") == wanted("a"), f"call {nth}, SEED={SEED}"
    assert broken > len(chosen) // 2


@pytest.mark.parametrize("age_h", [0, 24 * 30])
def test_a_driver_that_is_started_again(ram: Path, way: str, age_h: int) -> None:
    """It stages all again, and others have written meanwhile. Nothing of what shows which records are there
    expires, however old they are."""
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.append(b"before")
    killed_in_commit(sink, stage(sink, "q-0", age_h=age_h), FIRST)
    assert 1 < len(values(ram / "log")) < len(wanted("q-0"))
    for partition in (0, 1):
        with kstore.open(ram / "log" / f"t-{partition}", "a") as log:
            log.append(b"stranger")
            log.roll()
            log.append(b"stranger")
    for _ in range(2):
        assert not sink.publish(FIRST, stage(sink, "q-0", age_h=age_h), counts=COUNTS)
        sink.discard(FIRST, "q-0")
        assert values(ram / "log") == sorted([*wanted("q-0"), *["stranger"] * 4, "before"])
    assert not sink.recover()
    assert sink.publish(Transaction("query", 1), stage(sink, "q-1"), counts=COUNTS)
    assert values(ram / "log") == sorted([*wanted("q-0", "q-1"), *["stranger"] * 4, "before"])
    assert not Path(sink.staging).exists()


def test_records_that_are_erased_meanwhile(ram: Path) -> None:
    """The batch before the first record of the transaction is another one then, and its records are not."""
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.extend([b"secret", b"kept"], [b"a", b"b"])
    killed_in_commit(sink, stage(sink, "a"), FIRST, staged_logs=0)
    with kstore.open(ram / "log" / "t-1", "a") as log:
        assert log.erase(keys=[b"a"], reason="asked").records_erased
    assert sink.recover()
    assert values(ram / "log") == sorted([*wanted("a"), "kept"])


def test_it_is_finished_as_it_was_begun(ram: Path) -> None:
    """By a program with another configuration, which would compress otherwise and refuse these timestamps by
    now; also an option that is the default, where the topic has another."""
    config = kstore.LogConfig(compression_type="zstd", message_timestamp_before_max_ms=26 * HOUR_MS)
    sink = Sink(ram / "log", config)
    killed_in_commit(sink, stage(sink, "a", age_h=25), FIRST)
    assert Sink(ram / "log", kstore.LogConfig(message_timestamp_before_max_ms=HOUR_MS)).recover()
    assert values(ram / "log") == wanted("a")
    with kstore.open(ram / "log" / "t-1") as log:
        assert {batch.codec for batch in log.batches()} == {"zstd"}

    with kstore.LogStore(ram / "store", mode="a") as store:
        store.create_topic("t", 2, message_timestamp_type="LogAppendTime")
    sink = Sink(ram / "store", kstore.LogConfig(message_timestamp_type="CreateTime"))
    killed_in_commit(sink, stage(sink, "a", age_h=25), FIRST, staged_logs=0)
    assert Sink(ram / "store").recover()
    with kstore.open(ram / "store" / "t-0") as log:
        assert {record.timestamp_type for record in log} == {"CreateTime"}


def _cut(root: Path, offset: int, then: int = 0) -> None:
    with kstore.open(root / "t-1", "a") as log:
        log.truncate_to(offset)
        for _ in range(then):
            log.append(b"stranger")


def _doubled(root: Path) -> None:
    """A batch of the transaction twice, which no writer of ours leaves."""
    with kstore.open(root / "t-1", "a") as log:
        *_, last = log.batches()
        log.append_batches(last.data, origin="coordinator")


def _deleted(root: Path) -> None:
    with kstore.open(root / "t-1", "a", file_delete_delay_ms=0) as log:
        log.roll()
        log.delete_records(-1)
        log.retain()


CUT = "LOG_CHANGED: topic t, partition 1: the log was truncated: "
LOST = "STAGING_LOST: topic t, partition 1, .* of 60 records 30 are in"
NO_ANSWER = {
    "cut below": ("copied", lambda root: _cut(root, 1), f"{CUT}it ended at offset 2 .* now ends at 1"),
    "cut below a file": ("moved", lambda root: _cut(root, 1), f"{CUT}it ended at offset 2 .* now ends at 1"),
    "written over": (
        "copied",
        lambda root: _cut(root, 1, 50),
        f"{CUT}.* now has other records from offset 1 on",
    ),
    "a file cut": ("moved", lambda root: _cut(root, 3), LOST),
    "a file written over": ("moved", lambda root: _cut(root, 2, 50), LOST),
    "deleted": ("copied", _deleted, "LOG_CHANGED: .* 1: offsets 2 to 17 .exclusive. were deleted"),
    "doubled": (
        "copied",
        _doubled,
        "LOG_CHANGED: .* 1: of its copied records, number 7 follows on number 14",
    ),
}


@pytest.mark.parametrize("name", NO_ANSWER)
def test_what_came_between_leaves_no_right_answer(
    ram: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that says so, the same at every attempt; forget() gives the transaction up."""
    way, change, text = NO_ANSWER[name]
    sinks.ways(monkeypatch, way)
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.append(b"before")
        log.append(b"before")
    killed_in_commit(sink, stage(sink, "a"), FIRST)
    change(ram / "log")
    before = values(ram / "log")
    for attempt in (sink.recover, lambda: sink.publish(Transaction("other"), stage(sink, "other"))):
        with pytest.raises(SparkSourceError, match=f"KSTORE_.*{text}") as e:
            attempt()
        assert "micro-batch 0 of query query" in str(e.value)
        assert "kstore.spark.Sink(" in str(e.value)
        assert values(ram / "log") == before
    assert sink.forget()
    assert not sink.forget()
    assert sink.publish(Transaction("other"), stage(sink, "other"), counts=COUNTS)
    assert values(ram / "log") == sorted([*before, *wanted("other")])


def test_what_was_cut_off_as_a_whole_is_appended_again(ram: Path) -> None:
    """As after a power cut, which takes what was not synced."""
    sink = Sink(ram / "log")
    killed_in_commit(sink, stage(sink, "a"), FIRST)
    _cut(ram / "log", 0, 3)
    assert sink.recover()
    assert values(ram / "log") == sorted([*wanted("a"), *["stranger"] * 3])


def test_moved_files_that_retention_took_were_there(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks.ways(monkeypatch, "moved")
    sink = Sink(ram / "log")
    killed_in_commit(sink, stage(sink, "a"), FIRST)
    _deleted(ram / "log")
    assert sink.recover()
    with kstore.open(ram / "log" / "t-1") as log:
        assert (log.log_start_offset, log.log_end_offset) == (ROWS // 2, ROWS)
        found = [(r.value or b"").decode() for r in log]
    assert found == [f"a-1-{i}" for i in range(1, ROWS, 2)]


def test_staging_that_is_lost(ram: Path, way: str) -> None:
    sink = Sink(ram / "log")
    staged = stage(sink, "q-0")
    Path(staged[-1].path, staged[-1].files[0].name).unlink()
    nothing = r"KSTORE_STAGING_LOST: .*: 0 bytes of \d+; nothing was written"
    with pytest.raises(SparkSourceError, match=nothing):
        sink.publish(FIRST, staged, counts=COUNTS)
    assert not sink.recover()

    killed_in_commit(sink, stage(sink, "q-0"), FIRST, staged_logs=0)
    shutil.rmtree(sink.staging)
    assert sink.publish(FIRST, stage(sink, "q-0"), counts=COUNTS)  # with what the restarted driver has staged
    assert values(ram / "log") == wanted("q-0")

    killed_in_commit(sink, stage(sink, "q-1"), Transaction("query", 1))
    shutil.rmtree(sink.staging)
    before = values(ram / "log")
    text = (
        r"KSTORE_STAGING_LOST: topic t, partition 1, file .*: it is not in the log.*; "
        r"of 60 records 45 are in the logs; .*forget\(\)"
    )
    for _ in range(2):
        with pytest.raises(SparkSourceError, match=text):
            sink.recover()
        assert values(ram / "log") == before
    assert sink.forget()
    assert sink.publish(Transaction("query", 2), stage(sink, "q-2"), counts=COUNTS)
