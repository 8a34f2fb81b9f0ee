"""A copy that was killed, or that failed, leaves the old destination or the new one; the next run completes it."""

import errno
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.faults import calls_made, fail_call
from tests.copying.test_copies import content, described, make_log, make_store
from tests.helpers.effort import SEED, some, times
from tests.helpers.processes import environment


def copies_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def check_whole(copy: Path, allowed: list[dict[str, object]]) -> None:
    if copy.exists():
        assert described(copy) in allowed


def test_killed(tmp_path: Path) -> None:
    """kill -9 at any moment, at the first copy and at a later one."""
    source, copy = tmp_path / "data", tmp_path / "copy"
    make_store(source)
    command = [sys.executable, "-P", "-m", "kstore", "copy", str(source), str(copy)]
    began = time.monotonic()
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - began
    shutil.rmtree(copy)
    allowed = [described(source)]
    cases = times(4)
    for case in range(cases):
        if case == cases // 2:
            kstore.copy(source, copy)
            with kstore.LogStore(source, mode="a") as store:
                store.extend("orders", [b"later"] * 300, [b"%d" % at for at in range(300)])
            allowed.append(described(source))
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL)
        time.sleep(whole * (0.4 + 0.6 * (case * 37 % 100) / 100))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not copy.exists() and (tmp_path / "copy.previous").exists():
            assert described(tmp_path / "copy.previous") in allowed
        check_whole(copy, allowed)
    kstore.copy(source, copy)
    assert described(copy) == allowed[-1]
    assert copies_in(tmp_path) == ["copy", "data"]


def test_each_call_that_fails(tmp_path: Path) -> None:
    """A full disk, at each call that changes something."""
    source, copy = tmp_path / "data", tmp_path / "copy"
    make_store(source)
    before = described(source)
    kstore.copy(source, copy)
    with kstore.LogStore(source, mode="a") as store:
        store.append("orders", b"later", key=b"k")
    after = described(source)
    shutil.copytree(copy, tmp_path / "kept", copy_function=shutil.copy2)
    fail_call(10**9)
    kstore.copy(source, copy)
    count = calls_made()
    fail_call(0)
    for nth in some(range(1, count + 1), 10, "calls"):
        for path in (copy, tmp_path / "copy.copying", tmp_path / "copy.previous"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", copy, copy_function=shutil.copy2)
        fail_call(nth, errno.ENOSPC)
        with suppress(OSError):
            kstore.copy(source, copy)
        fail_call(0)
        if not copy.exists():
            assert described(tmp_path / "copy.previous") == before, nth
        else:
            assert described(copy) in (before, after), nth
        kstore.copy(source, copy)
        assert described(copy) == after, (nth, SEED)
        assert copies_in(tmp_path) == ["copy", "data", "kept"]


def append(store: kstore.LogStore) -> None:
    store.append("orders", b"later", key=b"k")


def truncate(store: kstore.LogStore) -> None:
    log = store.log("orders", 0)
    log.truncate_to(log.log_end_offset - 2)


def create_again(store: kstore.LogStore) -> None:
    store.delete_topic("orders")
    store.create_topic("orders", 3)
    store.extend("orders", [b"new"] * 20, [b"%d" % at for at in range(20)])


@pytest.mark.parametrize("change", [append, truncate, create_again])
def test_the_source_changes_after_an_interruption(
    tmp_path: Path, change: Callable[[kstore.LogStore], None]
) -> None:
    """The next run makes a copy of the source as it is now, with a manifest of that."""
    source, copy, kept = tmp_path / "data", tmp_path / "copy", tmp_path / "kept"
    make_store(kept)
    with kstore.LogStore(kept, mode="a") as store:
        for _ in range(3):
            store.log("orders", 0).append(b"v")
            store.log("orders", 0).roll()
    shutil.copytree(kept, source)
    fail_call(10**9)
    kstore.copy(source, copy)
    count = calls_made()
    fail_call(0)
    for nth in [*some(range(1, count - 6), 4, change.__name__), *range(count - 6, count + 1)]:
        for path in (source, copy, tmp_path / "copy.copying"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(kept, source)
        fail_call(nth, errno.ENOSPC)
        with suppress(OSError):
            kstore.copy(source, copy)
        fail_call(0)
        with kstore.LogStore(source, mode="a") as store:
            change(store)
        if change is create_again:  # a finished copy keeps the topic that was deleted
            shutil.rmtree(copy, ignore_errors=True)
        for _ in range(2):
            kstore.copy(source, copy)
            assert described(copy) == described(source), (nth, SEED)
            assert kstore.check(copy, manifest=copy / "kstore-copy.jsonl").problems() == [], (nth, SEED)
        assert copies_in(tmp_path) == ["copy", "data", "kept"]


def test_too_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log(tmp_path / "t-0")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 50_000))
    with pytest.raises(
        OSError, match="are to be copied, and only 50000 are free, of which 1048576 stay free"
    ) as caught:
        kstore.copy(tmp_path / "t-0", tmp_path / "copy-0")
    assert caught.value.errno == errno.ENOSPC
    assert copies_in(tmp_path) == ["t-0"]
    monkeypatch.undo()
    kstore.copy(tmp_path / "t-0", tmp_path / "copy-0")
    assert content(tmp_path / "copy-0") == content(tmp_path / "t-0")


def test_two_at_once(tmp_path: Path) -> None:
    make_log(tmp_path / "t-0")
    tried: list[int] = []

    def again(done: int, total: int) -> None:
        if not tried:
            tried.append(done)
            with pytest.raises(kstore.KstoreError, match="another process"):
                kstore.copy(tmp_path / "t-0", tmp_path / "copy-0")

    kstore.copy(tmp_path / "t-0", tmp_path / "copy-0", progress=again)
    assert tried
    assert content(tmp_path / "copy-0") == content(tmp_path / "t-0")
    assert copies_in(tmp_path) == ["copy-0", "t-0"]


def test_what_an_interrupted_copy_had_is_used(tmp_path: Path) -> None:
    make_log(tmp_path / "t-0")

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kstore.copy(tmp_path / "t-0", tmp_path / "copy-0", progress=stop)
    assert copies_in(tmp_path) == ["copy-0.copying", "t-0"]
    report = kstore.copy(tmp_path / "t-0", tmp_path / "copy-0")
    assert report.reused_bytes > report.copied_bytes // 2
    assert content(tmp_path / "copy-0") == content(tmp_path / "t-0")
    assert copies_in(tmp_path) == ["copy-0", "t-0"]
