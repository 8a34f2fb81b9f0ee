"""Who asks to be told how far a compaction, an erasure or a lookup is: by the API, and by the bars of the commands."""

import contextlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.tools.progress import Progress

COUNT = 40_000
OPTIONS: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 2_000_000}


class Told:
    """What progress was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))

    def check(self, least: int = 2) -> None:
        """It goes on and on, never past the end, and ends there."""
        done = [each for each, _ in self.calls]
        totals = [total for _, total in self.calls]
        assert len(done) >= least
        assert done == sorted(done)
        assert totals == sorted(totals)
        assert all(0 <= each <= total for each, total in self.calls)
        assert done[-1] == totals[-1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "data" / "t-0", "a", **OPTIONS) as log:
        keys = [b"key %d" % (i % 1000) for i in range(COUNT)]
        log.extend([b"." * 100] * COUNT, keys, batch_bytes=20_000)
        log.roll()
    return tmp_path / "data" / "t-0"


def test_a_compaction(path: Path) -> None:
    with kstore.open(path, "a", **OPTIONS) as log:
        size = sum(segment.size for segment in log.segments)
        looked, done = Told(), Told()
        log.compact(dry_run=True, progress=looked)
        looked.check()
        log.compact(progress=done)
        assert looked.calls == done.calls
        assert done.calls[-1] == (2 * size, 2 * size)  # the map of keys, then the copies
        nothing = Told()
        log.compact(progress=nothing)
        assert nothing.calls == []


def test_a_compaction_of_several_passes(path: Path) -> None:
    """The whole is not known at first."""
    told = Told()
    with kstore.open(
        path, "a", **OPTIONS, log_cleaner_dedupe_buffer_size=2**20 + 1, log_cleaner_io_buffer_load_factor=0.01
    ) as log:
        log.compact(progress=told)
        assert len({total for _, total in told.calls}) > 2
        told.check()
        assert len(list(log)) == 1000


def test_an_erasure(path: Path) -> None:
    with kstore.open(path, "a", **OPTIONS) as log:
        size = sum(segment.size for segment in log.segments)
        looked, done = Told(), Told()
        log.erase(keys=[b"key 7"], reason="asked for", dry_run=True, progress=looked)
        looked.check(10)
        log.erase(keys=[b"key 7"], reason="asked for", progress=done)
        done.check(10)
        assert done.calls[-1][1] == 4 * size  # to find them, to rewrite, and two digests
        assert size * 3.9 < done.calls[-2][0]
        assert b"key 7" not in {record.key for record in log}


def test_an_erasure_that_rolls(path: Path) -> None:
    told = Told()
    with kstore.open(path, "a", **OPTIONS) as log:
        log.append(b"value", b"key 7")
        log.erase(keys=[b"key 7"], reason="asked for", progress=told)
        told.check()
        assert log.last(b"key 7") is None


@pytest.mark.parametrize("writing", [False, True])
def test_lookups(path: Path, writing: bool) -> None:
    last, some, none = Told(), Told(), Told()
    with kstore.open(path, "r+" if writing else "r", **(OPTIONS if writing else {})) as log:
        assert log.last(b"key 7", progress=last) is not None
        assert len(list(log.history(b"key 7", progress=some))) == COUNT // 1000
        assert list(log.history(b"nobody", progress=none)) == []
    for told in (last, some, none):
        assert all(0 <= done <= total for done, total in told.calls)


def test_a_lookup_in_a_large_log(tmp_path: Path) -> None:
    """It looks at signals, and tells of itself, every 64 MiB."""
    last, every = Told(), Told()
    with kstore.open(tmp_path / "log", "a", segment_bytes=2**30) as log:
        log.extend([b"." * 100_000] * 2000)
        log.roll()
        log.append(b"value")
        size = sum(segment.size for segment in log.segments)
        assert log.last(b"nobody", progress=last) is None
    with kstore.open(tmp_path / "log") as log:  # a second lookup would make a map of the keys
        assert list(log.history(b"nobody", progress=every)) == []
    for told in (last, every):
        assert len(told.calls) >= 2
        assert {total for _, total in told.calls} == {size}
        assert [done for done, _ in told.calls] == sorted(done for done, _ in told.calls)


class StopError(Exception):
    """Enough."""


def raising(done: int, total: int) -> None:
    raise StopError


def test_an_exception_ends_it(path: Path) -> None:
    calls: list[Callable[[kstore.LogWriter], object]] = [
        lambda log: log.compact(progress=raising),
        lambda log: log.compact(dry_run=True, progress=raising),
        lambda log: log.erase(keys=[b"key 7"], reason="asked for", progress=raising),
    ]
    with kstore.open(path, "a", **OPTIONS) as log:
        before = [record for record in log]
        for call in calls:
            with pytest.raises(StopError):
                call(log)
            assert list(log) == before
        late = iter(range(4))

        def raise_later(done: int, total: int) -> None:
            if next(late, None) is None:
                raise StopError

        with pytest.raises(StopError):
            log.compact(progress=raise_later)
        log.append(b"one more", b"another key")
        log.compact()
        assert len(list(log)) == 1001


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


CALLS: list[Callable[..., object]] = [
    lambda log, progress: log.compact(progress=progress),
    lambda log, progress: log.erase(keys=[b"key 999"], reason="asked for", progress=progress),
    lambda log, progress: log.erase(keys=[b"key 999"], reason="asked for", dry_run=True, progress=progress),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("change", ["truncate_to", "truncate_fully_and_start_at"])
@pytest.mark.parametrize("when", range(5))
def test_a_truncation_meanwhile_is_no_damage(
    path: Path, call: Callable[..., object], change: str, when: int
) -> None:
    """It is met in the middle of a segment, or behind its end."""
    with kstore.open(path, "a", **OPTIONS) as log:
        cut = At(when, lambda: getattr(log, change)(500))
        with contextlib.suppress(kstore.LogChangedError):  # what was read already may be enough
            call(log, cut)
        assert cut.count > when
        assert log.log_end_offset == 500
        assert all(record.offset < 500 for record in log)
        assert not list(path.glob("*.cleaned"))
        log.append(b"more", b"key")
        log.roll()
        log.compact()
        assert log.last(b"key") is not None


@pytest.mark.parametrize("call", CALLS)
def test_a_stop_iteration_is_passed_on(path: Path, call: Callable[..., object]) -> None:
    """It is an exception as any other, whichever call of progress raises it."""
    with kstore.open(path, "a", **OPTIONS) as log:
        for when in itertools.count():
            calls = itertools.count()

            def stop(done: int, total: int, calls: Iterator[int] = calls, when: int = when) -> None:
                if next(calls) == when:
                    raise StopIteration(when)

            try:
                call(log, stop)
            except StopIteration as e:
                assert e.value == when
            else:
                break
        assert when > 3


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("when", [0, 2])
def test_what_is_said_of_a_change_meanwhile(
    path: Path, call: Callable[..., object], retained: bool, when: int
) -> None:
    """The log is open for writing: there is nothing to refresh."""

    def change() -> None:
        if retained:
            log.delete_records(log.segments[1].base_offset)
            log.retain()
        else:
            log.truncate_to(500)

    progress = At(when, change)
    with kstore.open(
        path, "a", **(OPTIONS | {"cleanup_policy": "compact,delete", "retention_ms": -1})
    ) as log:
        told = ""
        try:
            call(log, progress)
        except kstore.LogChangedError as e:
            told = str(e)
        assert progress.count > when
        if call is not CALLS[-1]:  # a dry run may have read enough
            assert re.search(
                r"\.log: .* while (compact|erase)\(\) was at work; call it again for what is left$", told
            )
        assert "refresh" not in told


def test_what_is_done_inside(path: Path) -> None:
    """Progress is told in between, as a signal handler is: the log may be used, but for what waits for this very call."""
    with kstore.open(path, "a", **OPTIONS) as log:
        refused = 0

        def use(done: int, total: int) -> None:
            nonlocal refused
            log.append(b"more", b"key 7")
            assert log.last(b"key 7").value == b"more"
            for again in (log.compact, log.make_key_files):
                with pytest.raises(kstore.ReentrantCallError):
                    again()
                refused += 1

        log.erase(keys=[b"nobody"], reason="asked for", progress=use)
        assert refused


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_it_cannot_be_closed_inside(path: Path, end: str) -> None:
    """It would wait for itself. Nothing is done then, not the half of it."""
    with kstore.open(path, "a", **OPTIONS) as log:

        def close(done: int, total: int) -> None:
            with pytest.raises(kstore.ReentrantCallError, match="progress"):
                getattr(log, end)()

        for call in CALLS:
            call(log, close)
            assert not log.is_closed
            log.append(b"value", b"another key")


def test_a_store_cannot_be_closed_inside(path: Path) -> None:
    with kstore.LogStore(path.parent, mode="a", background=False, cleanup_policy="compact") as store:

        def close(done: int, total: int) -> None:
            with pytest.raises(kstore.ReentrantCallError):
                store.close()

        store.erase("t", keys=[b"key 7"], reason="asked for", progress=close)
        assert not store.is_closed
        store.append("t", b"value", b"key 7")


@pytest.mark.parametrize("wrong", [1, "bar", True])
def test_it_is_a_function(path: Path, wrong: Any) -> None:
    with kstore.open(path, "a", **OPTIONS) as log:
        calls: list[Callable[[], object]] = [
            lambda: log.compact(progress=wrong),
            lambda: log.erase(keys=[b"key 7"], reason="asked for", progress=wrong),
            lambda: log.last(b"key 7", progress=wrong),
            lambda: log.history(b"key 7", progress=wrong),
        ]
        for call in calls:
            with pytest.raises(TypeError, match="progress is a function of two numbers"):
                call()


# ---- the bars -------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def run_on_a_terminal(arguments: list[str]) -> str:
    """Runs a command that ends with 0; what stderr was given."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(Terminal()) as shown:
        patch.setattr(Progress, "DELAY", 0.0)
        patch.setattr(Progress, "INTERVAL", 0.0)
        assert main(arguments) == 0
    return shown.getvalue()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["compact", "--dry-run"], "looking"),
        (["compact"], "compacting"),
        (["erase", "--key", "key 7", "--dry-run"], "looking"),
        (["erase", "--key", "key 7"], "erasing"),
        (["erase", "t", "--key", "key 7"], "erasing"),
        (["erase", "t", "--key", "key 7", "--dry-run"], "looking"),
    ],
)
def test_a_bar(path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str) -> None:
    command, *more = arguments
    (path.parent / "meta.properties").write_text("version=1\nbroker.id=1\n")
    directory = path.parent if "t" in more else path
    shown = run_on_a_terminal([command, str(directory), *more, "--json"]).split("\r")
    assert shown[1].startswith(f"{what} [")
    assert "%" in shown[1]
    assert shown[-1] == "\x1b[K"  # nothing of it stays
    rows = capsys.readouterr().out.splitlines()
    assert rows
    for row in rows:
        json.loads(row)  # the bar is not among them


def test_a_bar_of_a_lookup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "log", "a", segment_bytes=2**30) as log:
        log.append(b"first", b"wanted")
        log.extend([b"." * 100_000] * 1500)
        log.append(b"last", b"wanted")
    for more in ([], ["--history"]):
        shown = run_on_a_terminal(["get", str(tmp_path / "log"), "--key", "wanted", *more])
        assert shown.startswith("\rlooking [")
        assert shown.endswith("\r\x1b[K")
        assert len(capsys.readouterr().out.splitlines()) == 1 + bool(more)


def test_no_bar_without_a_terminal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", str(path)]) == 0
    assert capsys.readouterr().err == ""
