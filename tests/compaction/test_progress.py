"""`progress` of compactions, erasures and lookups: its arguments, what it may do, the bars of commands."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.effort import SEED, some
from tests.tools.conftest import Terminal

COUNT = 1000
KEYS = [b"key %d" % i for i in range(20)]
OPTIONS: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "retention_ms": -1,
    "internal_segment_bytes": 5000,
    "index_interval_bytes": 100,
}


class Told:
    """What progress was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))

    def check(self, least: int = 10) -> None:
        """It rises, never past the end, and ends there."""
        done = [each for each, _ in self.calls]
        totals = [total for _, total in self.calls]
        assert len(done) >= least
        assert done == sorted(done)
        assert totals == sorted(totals)
        assert all(0 <= each <= total for each, total in self.calls)
        assert done[-1] == totals[-1]


class At:
    """Does something at one of the calls of progress. `count` is how many there were."""

    def __init__(self, when: int, do: Callable[[], object]) -> None:
        self.when = when
        self.do = do
        self.count = 0

    def __call__(self, done: int, total: int) -> None:
        self.count += 1
        if self.count == self.when + 1:
            self.do()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "data" / "t-0", "a", **OPTIONS) as log:
        keys = [KEYS[i % 20] for i in range(COUNT)]
        log.extend([b"." * 50] * COUNT, keys, batch_bytes=1000)
        log.roll()
    return tmp_path / "data" / "t-0"


# ---- what it is called with --------------------------------------------------------------------------------


def test_a_compaction(path: Path) -> None:
    with kstore.open(path, "a", **OPTIONS) as log:
        size = sum(segment.size for segment in log.segments)
        planned, done = Told(), Told()
        log.compact(dry_run=True, progress=planned)
        planned.check()
        log.compact(progress=done)
        assert planned.calls == done.calls
        assert done.calls[-1] == (2 * size, 2 * size)  # the map of keys, then the copies
        nothing = Told()
        log.compact(progress=nothing)
        assert nothing.calls == []


def test_a_compaction_of_several_passes(path: Path) -> None:
    """The total is not known at first."""
    told = Told()
    slots = {"log_cleaner_dedupe_buffer_size": 2**20 + 1, "log_cleaner_io_buffer_load_factor": 0.0003}
    with kstore.open(path, "a", **OPTIONS, **slots) as log:
        log.compact(progress=told)
        assert len({total for _, total in told.calls}) > 2
        told.check()
        assert len(list(log)) == len(KEYS)


def test_an_erasure(path: Path) -> None:
    with kstore.open(path, "a", **OPTIONS) as log:
        size = sum(segment.size for segment in log.segments)
        planned, done, rolled = Told(), Told(), Told()
        log.erase(keys=[KEYS[7]], reason="asked for", dry_run=True, progress=planned)
        planned.check()
        log.erase(keys=[KEYS[7]], reason="asked for", progress=done)
        done.check()
        assert done.calls[-1][1] == 4 * size  # to find them, to rewrite, and two digests
        assert size * 3.8 < done.calls[-2][0]
        assert KEYS[7] not in {record.key for record in log}
        log.append(b"value", KEYS[7])  # in the active segment, which is rolled
        log.erase(keys=[KEYS[7]], reason="asked for", progress=rolled)
        rolled.check(2)
        assert log.last(KEYS[7]) is None


def test_lookups(tmp_path: Path) -> None:
    """They call it every 64 MiB of what they read."""
    last, every, none = Told(), Told(), Told()
    with kstore.open(tmp_path / "log", "a", segment_bytes=2**30) as log:
        log.extend([b"." * 100_000] * 1400)
        log.roll()
        log.append(b"value", b"key")
        size = sum(segment.size for segment in log.segments)
        assert log.last(b"nobody", progress=last) is None
    with kstore.open(tmp_path / "log") as log:  # a second lookup would make a map of the keys
        assert list(log.history(b"nobody", progress=every)) == []
        assert log.last(b"key", progress=none) is not None
    for told in (last, every):
        assert len(told.calls) >= 2
        assert {total for _, total in told.calls} == {size}
        assert [done for done, _ in told.calls] == sorted(done for done, _ in told.calls)
    assert none.calls == []


# ---- what it may do ----------------------------------------------------------------------------------------

CALLS: list[Callable[..., object]] = [
    lambda log, progress: log.compact(progress=progress),
    lambda log, progress: log.erase(keys=[KEYS[19]], reason="asked for", progress=progress),
    lambda log, progress: log.erase(keys=[KEYS[19]], reason="asked for", dry_run=True, progress=progress),
]


class StopError(Exception):
    """Enough."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [StopError, StopIteration])
def test_an_exception_is_passed_on(path: Path, call: Callable[..., object], error: type[Exception]) -> None:
    """Whichever call of progress raises, StopIteration too: nothing is done, and it can be called again."""

    def stop() -> None:
        raise error

    with kstore.open(path, "a", **OPTIONS) as log:
        last = {record.key: record for record in log}
        count = Told()
        log.erase(keys=[b"nobody"], reason="asked for", dry_run=True, progress=count)
        for when in [0, *some(range(1, len(count.calls)), 6, "exceptions")]:
            with pytest.raises(error):
                call(log, At(when, stop))
            assert {record.key: record for record in log} == last, (SEED, when)
            assert not list(path.glob("*.cleaned"))
        log.append(b"one more", b"another key")
        log.roll()
        log.compact()
        assert len(list(log)) == len(KEYS) + 1


CHANGES: dict[str, Callable[[kstore.LogWriter], object]] = {
    "truncated": lambda log: log.truncate_to(50),
    "started anew": lambda log: log.truncate_fully_and_start_at(50),
    "retained": lambda log: (log.delete_records(log.segments[1].base_offset), log.retain()),
}


def test_changes_meanwhile_are_no_damage(tmp_path: Path) -> None:
    """A truncation or a retention is met in the middle of a segment, or after its end. The error says to call
    it again: there is nothing to refresh in a log that is open for writing."""
    cases = [
        (number, change, when) for number in range(len(CALLS)) for change in CHANGES for when in range(20)
    ]
    for number, change, when in some(cases, 30, "changes"):
        note = (SEED, number, change, when)
        directory = tmp_path / f"{number}-{change}-{when}" / "t-0"
        with kstore.open(directory, "a", **OPTIONS) as log:
            log.extend([b"." * 50] * COUNT, [KEYS[i % 20] for i in range(COUNT)], batch_bytes=1000)
            log.roll()
            before = {record.offset: record for record in log}
            meanwhile = At(when, lambda log=log, change=change: CHANGES[change](log))
            text = ""
            try:
                CALLS[number](log, meanwhile)
            except kstore.LogChangedError as e:
                text = str(e)
                assert re.search(
                    r" while (compact|erase)\(\) was at work; call it again for what is left$", text
                ), note
                assert "refresh" not in text
            assert meanwhile.count > when, note
            assert text or number != 0 or change == "retained", note  # an erasure may have read enough
            if change != "retained":
                assert log.log_end_offset == 50, note
            assert {r.offset: r for r in log}.items() <= before.items(), note
            assert not list(directory.glob("*.cleaned")), note
            end = log.append(b"goes on", b"key")
            log.roll()
            log.compact()
            assert log.get(end).value == b"goes on", note
        assert not kstore.open(directory).recovery.findings, note


# ---- the bars ----------------------------------------------------------------------------------------------


def run_on_a_terminal(arguments: list[str]) -> str:
    """Runs a command that ends with 0; what stderr was given."""
    with contextlib.redirect_stderr(Terminal()) as shown:
        assert main(arguments) == 0
    return shown.getvalue()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar is shown at once, and at each call."""
    monkeypatch.setattr("kstore.tools.progress.Progress.DELAY", 0.0)
    monkeypatch.setattr("kstore.tools.progress.Progress.INTERVAL", 0.0)


def test_bars(path: Path, capsys: pytest.CaptureFixture[str], at_once: None) -> None:
    (path.parent / "meta.properties").write_text("version=1\nbroker.id=1\n")
    for arguments, what in (
        (["compact", str(path), "--dry-run"], "looking"),
        (["compact", str(path)], "compacting"),
        (["erase", str(path), "--key", "key 7", "--dry-run"], "looking"),
        (["erase", str(path), "--key", "key 7"], "erasing"),
        (["erase", str(path.parent), "t", "--key", "key 8", "--dry-run"], "looking"),
        (["erase", str(path.parent), "t", "--key", "key 8"], "erasing"),
    ):
        shown = run_on_a_terminal([*arguments, "--json"]).split("\r")
        assert shown[1].startswith(f"{what} [")
        assert "%" in shown[1]
        assert shown[-1] == "\x1b[K"  # nothing of it stays
        rows = capsys.readouterr().out.splitlines()
        assert rows
        for row in rows:
            json.loads(row)  # the bar is not among them
