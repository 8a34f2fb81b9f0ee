"""kstore top, look by look."""

import io
import json
import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.tools.commands import top
from kstore.tools.terminal import Screen


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("a", 2)
        store.create_topic("b")
        store.extend("b", [b"v"] * 10)
        yield store


def looks(store: Any, monkeypatch: pytest.MonkeyPatch, *steps: Any, **options: Any) -> list[str]:
    """What `main` is told between looks happens there, a second each."""
    clock = [0.0]

    def sleep(_: float) -> None:
        clock[0] += 1
        left.pop(0)()

    left = list(steps)
    # its own: other threads of the process sleep, too
    own = SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0], time_ns=time.time_ns)
    monkeypatch.setattr(top, "time", own)
    arguments = ["top", str(store.path), "--count", str(len(steps) + 1)]
    assert main([*arguments, *options.get("more", [])]) == 0
    monkeypatch.undo()
    return left


@pytest.mark.parametrize("kept", [3000, 100_000])
def test_what_retention_deletes_was_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    """The log is as large as before, and 100 batches of 1 KB were written; all or some of those are deleted meanwhile."""
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("slow", retention_ms=-1)
        store.create_topic("busy", retention_bytes=kept, internal_segment_bytes=2000, file_delete_delay_ms=0)
        busy = store.log("busy")

        def write() -> None:
            for _ in range(100):
                busy.append(b"v" * 1000)
            busy.retain()  # type: ignore[attr-defined]
            store.append("slow", b"v" * 5000)

        write()
        assert looks(store, monkeypatch, write, more=["--json"]) == []
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()][2:]
        assert [row["topic"] for row in rows] == ["busy", "slow"]
        assert 100_000 < rows[0]["bytes_per_second"] < 120_000
        assert 5000 < rows[1]["bytes_per_second"] < 5200


def test_rates_sizes_and_lag(
    store: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with kstore.open(store.path / "b-0").cursor("g") as cursor:
        cursor.commit(next(iter(cursor)))
    before = store.log("a", 1).active.size

    def write() -> None:
        store.log("a", 1).extend([b"v" * 100] * 7)

    def change() -> None:
        store.delete_topic("b")
        store.create_topic("c")

    assert looks(store, monkeypatch, write, change, more=["--json"]) == []
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    first, second, third = rows[:3], rows[3:6], rows[6:]
    assert [(row["topic"], row["partition"]) for row in first] == [("a", 0), ("a", 1), ("b", 0)]
    assert all(row["records_per_second"] is None for row in first)
    assert [row["lag"] for row in first] == [None, None, 9]
    assert [row["log_end_offset"] for row in first] == [0, 0, 10]
    assert (second[0]["topic"], second[0]["partition"]) == ("a", 1)
    assert second[0]["records_per_second"] == 7
    assert second[0]["bytes_per_second"] == second[0]["size"] - before > 0
    assert {row["topic"] for row in third} == {"a", "c"}
    assert [row["records_per_second"] for row in third if row["topic"] == "a"] == [0, 0]


def test_the_lag_of_a_partition_that_a_group_has_not_committed(
    store: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.extend("a", [b"v"] * 8, [b"%d" % i for i in range(8)])
    with store.cursor("g", ["a"]) as cursor:
        record = next(iter(cursor))
        cursor.commit(record)
    looks(store, monkeypatch, more=["--json"])
    rows = {
        (row["topic"], row["partition"]): (row["lag"], row["log_end_offset"])
        for row in map(json.loads, capsys.readouterr().out.splitlines())
    }
    lag, end = rows["a", record.partition]
    assert lag == end - 1
    lag, end = rows["a", 1 - record.partition]
    assert lag == end > 0


def test_a_table(store: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    looks(store, monkeypatch, lambda: store.extend("b", [b"v"] * 5))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert re.fullmatch(r".*Z  3 partitions  \d+ bytes", lines[0])
    assert lines[1].split() == ["RECORDS/S", "BYTES/S", "SIZE", "START", "END", "LAG", "PARTITION"]
    assert lines[4].split()[:2] == ["-", "-"]
    assert lines[7].split()[0] == "5"
    assert lines[7].split()[4:] == ["15", "-", "b-0"]


def test_on_a_terminal_it_fits(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Screen(out))
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: (40, 4))
    top._show(top._Looks(kstore.LogStore(store.path)).rows())
    text = out.getvalue()
    assert text.startswith("\x1b[H\x1b[J")
    lines = text.removeprefix("\x1b[H\x1b[J").splitlines()
    assert len(lines) == 3
    assert all(len(line) < 40 for line in lines)


def test_interrupted(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        top, "time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic, time_ns=time.time_ns)
    )
    assert main(["top", str(store.path)]) == 0


def test_wrong_arguments(tmp_path: Path) -> None:
    assert main(["top", str(tmp_path / "none")]) == 1
    for bad in (["--count", "0"], ["--every", "x"]):
        with pytest.raises(SystemExit):
            main(["top", str(tmp_path), *bad])
