"""kstore top: rates, sizes and lag from one refresh to the next."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.tools.commands.stores import top
from tests.tools.conftest import Run, Terminal

Shown = Callable[..., str]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kstore.LogStore]:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("a", 2)
        store.create_topic("b")
        store.extend("b", [b"v"] * 10)
        yield store


@pytest.fixture
def shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What `top` prints if the steps happen between its refreshes, a second each."""

    def call(path: Path, *steps: Callable[[], object], more: tuple[str, ...] = ("--json",)) -> str:
        clock, left = [0.0], list(steps)

        def sleep(_: float) -> None:
            clock[0] += 1
            left.pop(0)()

        # its own: other threads of the process sleep, too
        own = SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0], time_ns=time.time_ns)
        monkeypatch.setattr(top, "time", own)
        code, out, _ = run("top", path, "--count", len(steps) + 1, *more)
        monkeypatch.undo()
        assert (code, left) == (0, [])
        return out

    return call


def rows(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("kept", [3000, 100_000])
def test_what_retention_deletes_was_appended(tmp_path: Path, shown: Shown, kept: int) -> None:
    """The log is as large as before: 100 batches of 1 KB were written, all or some are deleted meanwhile."""
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("slow", retention_ms=-1)
        store.create_topic("busy", retention_bytes=kept, internal_segment_bytes=2000, file_delete_delay_ms=0)
        busy: Any = store.log("busy")

        def write() -> None:
            for _ in range(100):
                busy.append(b"v" * 1000)
            busy.retain()
            store.append("slow", b"v" * 5000)

        write()
        fast, slow = rows(shown(tmp_path, write))[2:]
        assert (fast["topic"], slow["topic"]) == ("busy", "slow")
        assert 100_000 < fast["bytes_per_second"] < 120_000
        assert 5000 < slow["bytes_per_second"] < 5200


def test_rates_sizes_and_lag(store: kstore.LogStore, shown: Shown) -> None:
    with kstore.open(store.path / "b-0").cursor("g") as cursor:
        cursor.commit(next(iter(cursor)))
    log: Any = store.log("a", 1)
    before = log.active.size

    def change() -> None:
        store.delete_topic("b")
        store.create_topic("c")

    found = rows(shown(store.path, lambda: log.extend([b"v" * 100] * 7), change))
    first, second, third = found[:3], found[3:6], found[6:]
    assert [(row["topic"], row["partition"]) for row in first] == [("a", 0), ("a", 1), ("b", 0)]
    assert all(row["records_per_second"] is None for row in first)
    assert [row["lag"] for row in first] == [None, None, 9]
    assert [row["log_end_offset"] for row in first] == [0, 0, 10]
    assert (second[0]["topic"], second[0]["partition"]) == ("a", 1)
    assert second[0]["records_per_second"] == 7
    assert second[0]["bytes_per_second"] == second[0]["size"] - before > 0
    assert {row["topic"] for row in third} == {"a", "c"}
    assert [row["records_per_second"] for row in third if row["topic"] == "a"] == [0, 0]


def test_the_lag_of_a_partition_that_a_group_has_not_committed(store: kstore.LogStore, shown: Shown) -> None:
    store.extend("a", [b"v"] * 8, [b"%d" % i for i in range(8)])
    with store.cursor("g", ["a"]) as cursor:
        record = next(iter(cursor))
        cursor.commit(record)
    found = {(row["topic"], row["partition"]): row for row in rows(shown(store.path))}
    own, other = found["a", record.partition], found["a", 1 - record.partition]
    assert own["lag"] == own["log_end_offset"] - 1
    assert other["lag"] == other["log_end_offset"] > 0


def test_a_table(store: kstore.LogStore, shown: Shown) -> None:
    lines = shown(store.path, lambda: store.extend("b", [b"v"] * 5), more=()).splitlines()
    assert len(lines) == 10
    assert re.fullmatch(r".*Z  3 partitions  \d+ bytes", lines[0])
    assert lines[1].split() == ["RECORDS/S", "BYTES/S", "SIZE", "START", "END", "LAG", "PARTITION"]
    assert lines[4].split()[:2] == ["-", "-"]
    assert lines[7].split()[0] == "5"
    assert lines[7].split()[4:] == ["15", "-", "b-0"]


def test_on_a_terminal_it_fits(store: kstore.LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((40, 4)))
    assert main(["top", str(store.path), "--count", "1"]) == 0
    assert out.getvalue().startswith("\x1b[H\x1b[J")
    lines = out.getvalue().removeprefix("\x1b[H\x1b[J").splitlines()
    assert len(lines) == 3
    assert all(len(line) < 40 for line in lines)


def test_interrupted(store: kstore.LogStore, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    own = SimpleNamespace(sleep=interrupt, monotonic=time.monotonic, time_ns=time.time_ns)
    monkeypatch.setattr(top, "time", own)
    assert run("top", store.path)[0] == 0


def test_wrong_arguments(tmp_path: Path, run: Run) -> None:
    assert run("top", tmp_path / "none")[0] == 1
    for bad in (["--count", "0"], ["--every", "x"]):
        assert run("top", tmp_path, *bad)[0] == 2


def test_what_cannot_be_read_hides_no_other_partition(store: kstore.LogStore, run: Run) -> None:
    store.close()
    path = store.paths[0]
    (path / "a-1" / f"{0:020d}.log").symlink_to(f"{0:020d}.log")
    code, out, err = run("top", path, "--count", 2, "--every", 0.01, "--json")
    assert (code, [f"{row['topic']}-{row['partition']}" for row in rows(out)]) == (1, ["a-0", "b-0"] * 2)
    assert err.count("Too many levels of symbolic links") == 1
