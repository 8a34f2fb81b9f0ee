"""One log and several processes: however they are started, stopped and killed, and whatever fails in one."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.testing
from kstore.engine.io.file import File
from kstore.log.files import lock
from kstore.log.segments.segment_set import SegmentSet
from tests.helpers.effort import some
from tests.helpers.processes import run_python
from tests.helpers.waiting import threads_doing
from tests.shared.processes import ended, started, writer


def values(directory: Path) -> list[bytes | None]:
    log = kstore.open(directory)
    assert [record.offset for record in log] == list(range(log.log_end_offset))
    return [record.value for record in log]


def check_left(directory: Path) -> None:
    """The last process has left the directory as one writer does."""
    assert not {".lock", "kstore-shared", "kstore-shared-directory"}.intersection(os.listdir(directory))  # noqa: PTH208
    recovery = kstore.open(directory).recovery
    assert recovery.clean
    assert not recovery.findings


# ---- ways to start processes -------------------------------------------------------------------------------


def append_some(directory: str, name: int) -> None:
    with kstore.open(directory, "a", shared=True) as log:
        work = [lambda t=t: [log.append(b"%d.%d.%d" % (name, t, n)) for n in range(10)] for t in range(3)]
        with threads_doing(*work):
            pass


def by_fork(directory: Path) -> None:
    for child in [started(lambda name=name: append_some(str(directory), name)) for name in range(4)]:
        assert ended(child) == 0


def by_fork_beside_an_open_log(directory: Path) -> None:
    with kstore.open(directory, "a", shared=True) as log:
        by_fork(directory)
        assert log.log_end_offset == 4 * 30


def by_pool(directory: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(append_some, [(str(directory), name) for name in range(4)])


def by_spawn(directory: Path) -> None:
    program = "import sys; from tests.shared.test_processes import append_some; append_some(sys.argv[1], int(sys.argv[2]))"
    results: list[int] = []
    work = [lambda n=n: results.append(run_python(program, directory, n).returncode) for n in range(4)]
    with threads_doing(*work):
        pass
    assert results == [0] * 4


def before_fork(directory: Path) -> None:
    """As gunicorn with a preloaded application: the parent opens the log, the workers open it again, and the
    parent dies while they live."""
    reading, writing = os.pipe()

    def parent() -> None:
        log = kstore.open(directory, "a", shared=True)
        for name in range(4):
            started(lambda name=name: (append_some(str(directory), name), os.write(writing, b".")))
        assert log is not None
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(started(parent)) == -signal.SIGKILL
    os.close(writing)
    done = b""
    while byte := os.read(reading, 1):
        done += byte
    os.close(reading)
    assert done == b"...."


@pytest.mark.parametrize("start", [by_fork, by_fork_beside_an_open_log, by_pool, by_spawn, before_fork])
def test_each_record_of_each_thread_of_each_process_is_there(
    ram: Path, start: Callable[[Path], None]
) -> None:
    directory = ram / "t-0"
    start(directory)
    assert sorted(filter(None, values(directory))) == sorted(
        b"%d.%d.%d" % (name, t, n) for name in range(4) for t in range(3) for n in range(10)
    )
    if start is not before_fork:
        check_left(directory)


# ---- what each sees of the others --------------------------------------------------------------------------


def test_each_call_sees_what_others_did(ram: Path) -> None:
    directory = ram / "t-0"
    with kstore.open(directory, "a", shared=True) as log, writer(directory) as other:
        assert log.append(b"mine", b"key") == 0
        assert other.do("append") == 1
        assert log.log_end_offset == 2
        assert log.get(1).value == b"child"
        log.roll()
        assert other.do("append") == 2
        assert other.do("roll") == 3
        assert [s.base_offset for s in log.segments] == [0, 2, 3]
        log.configure(retention_ms=12345)
        assert other.do("options") == {"retention_ms": 12345}
        log.assign_leader_epoch(7)
        assert other.do("epoch") == 7
        log.truncate_to(1)
        assert other.do("append") == 1
        assert other.do("read") == [b"mine", b"child"]
        log.append(b"more")
        log.delete_records(2)
        assert other.do("read") == [b"more"]
        assert other.close() == 0
    check_left(directory)


WEEK = 7 * 86_400_000


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"retention_ms": WEEK}, {"retention_ms": None}),  # which is the default
        ({}, {"retention_ms": WEEK}),
        ({"cleanup_policy": "compact"}, {"cleanup_policy": None, "retention_ms": -1}),
        ({"segment_bytes": 1 << 20}, {"segment_bytes": 1 << 30}),
    ],
)
def test_options_are_those_that_were_set_last(
    ram: Path, before: dict[str, Any], change: dict[str, Any]
) -> None:
    """Also which of them are set: what removes records depends on that. Those of no topic are of each process."""
    directory, own = ram / "t-0", {"log_cleaner_dedupe_buffer_size": 2 << 20}
    with kstore.open(directory, "a", shared=True, **before) as log, writer(directory, **own) as other:
        log.configure(**change)
        changed = log.config.given_options()
        assert changed.keys() == {name for name, value in change.items() if value is not None}
        assert other.do("options") == changed | own
        with writer(directory, **before) as third:  # an opening sets options, too
            assert log.config.given_options() == third.do("options")
            assert log.config.given_options() == changed | kstore.LogConfig(**before).given_options()
            assert third.close() == 0
        assert other.close() == 0


def test_readers_followers_and_cursors(ram: Path) -> None:
    directory = ram / "t-0"
    with kstore.open(directory, "a", shared=True) as log, writer(directory) as other:
        reader = kstore.open(directory)
        follower = log.follow(timeout=60)
        beside = reader.follow(timeout=60)
        with log.cursor("group", follow=True, timeout=60) as cursor:
            for offset in range(20):
                assert other.do("append") == offset
                assert next(follower).offset == offset
                assert next(beside).offset == offset
                record = next(iter(cursor))
                assert record.offset == offset
                cursor.commit(record)
                if offset % 7 == 0:
                    other.do("roll")
        assert log.cursors()["group"].offset == 20
        assert other.close() == 0


def test_a_process_that_does_nothing(ram: Path) -> None:
    """A notebook that was left open: others roll, retain and compact, and go on when it closes the log."""
    directory = ram / "t-0"
    options = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.0, "retention_ms": -1}
    with writer(directory, **options) as idle:
        idle.do("append")
        idle.stop()
        for _ in range(3):
            with kstore.open(directory, "a", shared=True) as log:
                for _ in range(3):
                    log.extend([b"v"] * 10, keys=[b"key"] * 10)
                    log.roll()
                log.compact()
                log.retain()
                end = log.log_end_offset
        idle.go_on()
        assert idle.do("end") == end
        assert idle.do("append") == end
        assert idle.close() == 0
    check_left(directory)


# ---- locks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [False, True])
def test_a_writer_that_does_not_share(ram: Path, *, shares: bool) -> None:
    directory = ram / "t-0"
    with kstore.open(directory, "a", shared=shares) as log:
        for wait in (0, 0.05):
            with pytest.raises(kstore.LogLockedError):
                kstore.open(directory, "a", shared=not shares, wait=wait)
            child = started(lambda wait=wait: kstore.open(directory, "a", shared=not shares, wait=wait))
            assert ended(child) == 1
        log.append(b"x")
        child = started(lambda: kstore.open(directory, "a", shared=not shares, wait=60).close())
    assert ended(child) == 0
    assert values(directory) == [b"x"]
    check_left(directory)


@pytest.mark.parametrize("magic", [0x6969, 0x6B414653, 0x19830326, 0xBACBACBC])
def test_a_file_system_of_the_network(ram: Path, monkeypatch: pytest.MonkeyPatch, magic: int) -> None:
    monkeypatch.setattr("kstore.log.files.shared_session.file_system_of", lambda path: magic)
    directory = ram / "data" / "t-0"
    for opens in (
        lambda: kstore.open(directory, "a", shared=True),
        lambda: kstore.LogStore(ram / "data", mode="a", shared=True),
    ):
        with pytest.raises(kstore.KstoreError, match=r"is on \w+: shared=True needs a local file system"):
            opens()
        assert not directory.parent.exists()
    kstore.open(directory, "a").close()


def test_an_interrupt_while_another_process_is_inside_a_call(ram: Path) -> None:
    directory = ram / "t-0"
    stops = False

    def clock() -> int:
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        return 1000

    def other() -> None:
        nonlocal stops
        with kstore.open(directory, "a", shared=True, clock=clock) as log:
            stops = True
            log.append(b"other")
            stops = False

    with kstore.open(directory, "a", shared=True) as log:
        child = started(other)
        os.waitpid(child, os.WUNTRACED)
        timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            log.append(b"mine")
        timer.join()
        os.kill(child, signal.SIGCONT)
        assert ended(child) == 0
        assert log.append(b"mine") == 1
    assert values(directory) == [b"other", b"mine"]
    check_left(directory)


# ---- death and failure in one of them ----------------------------------------------------------------------


def test_the_next_append_after_a_death_inside_a_call(ram: Path) -> None:
    directory = ram / "t-0"
    with kstore.open(directory, "a", shared=True) as log:
        for n in range(5):
            with writer(directory) as other:
                assert other.do("append") == 2 * n
                other.begin("die in an append")
                assert ended(other.pid) == -signal.SIGKILL
                assert log.append(b"mine") == 2 * n + 1
    assert values(directory) == [b"child", b"mine"] * 5
    check_left(directory)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("durability", ["none", "group"])
def test_a_failing_call_in_one_process(ram: Path, error: str, durability: str) -> None:
    """What was acknowledged is there, and at the latest when all have opened the log again they go on."""
    for nth in some(range(1, 120), 12, error):
        directory = ram / f"t{nth}-0"
        acked = ram / f"acked{nth}"

        def work(nth: int = nth, directory: Path = directory, acked: Path = acked) -> None:
            with acked.open("wb", buffering=0) as out, kstore.open(
                directory, "a", shared=True, durability=durability, internal_segment_bytes=1000
            ) as log, kstore.testing.failing(nth, getattr(errno, error)):  # fmt: skip
                for n in range(40):
                    try:
                        log.append(b"%03d" % n + b"." * 60)
                    except (OSError, kstore.KstoreError):
                        continue
                    out.write(b"%d\n" % n)

        log = kstore.open(directory, "a", shared=True)
        log.append(b"first")
        ended(started(work))
        try:
            log.append(b"last")
        except (OSError, kstore.KstoreError):
            with pytest.raises(kstore.KstoreError):
                log.append(b"last")
        log.abandon()
        with kstore.open(directory, "a", shared=True) as log:
            log.append(b"last")
        found = values(directory)
        assert found[0] == b"first"
        assert found[-1] == b"last"
        numbers = [int(value[:3]) for value in found if value is not None and value.endswith(b".")]
        assert numbers == sorted(set(numbers))
        assert {int(line) for line in acked.read_bytes().split()} <= set(numbers)
        check_left(directory)


def test_a_failing_sync_stops_all_until_they_open_the_log_again(ram: Path) -> None:
    directory = ram / "t-0"
    log = kstore.open(directory, "a", shared=True)
    with writer(directory) as other, writer(directory) as idle:
        other.do("append durably")
        other.do("append")
        assert other.do("fail a sync") == "OSError"
        assert other.do("append") == "LogFailedError"
        with pytest.raises(kstore.LogFailedError, match="a sync failed in another process"):
            log.append(b"mine")
        assert log.get(0).value == b"child"
        log.abandon()
        with kstore.open(directory, "a", shared=True) as log:  # beside others that have not closed it yet
            assert log.append(b"mine") == 2
            log.flush()
            assert other.do("append") == "LogFailedError"
            assert idle.do("append") == 3
            idle.close()
            other.close()
    assert values(directory) == [b"child", b"child", b"mine", b"child"]
    check_left(directory)


# ---- other programs ----------------------------------------------------------------------------------------


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(4096))


def turned(path: Path) -> None:
    """Each byte of what the lock guards."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(56)
        file.write(bytes(byte ^ 0xFF for byte in content[56:400]))


def turned_back(path: Path) -> None:
    """The number of the last published end, to that which the other process has seen."""
    with path.open("r+b") as file:
        file.seek(32)
        number = int.from_bytes(file.read(8), "little")
        file.seek(32)
        file.write((number - 2).to_bytes(8, "little"))


def shortened(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [zeroed, turned, turned_back, shortened])
def test_a_damaged_shared_file(ram: Path, damage: Callable[[Path], None]) -> None:
    directory = ram / "t-0"
    log = kstore.open(directory, "a", shared=True)
    with writer(directory) as other:
        for _ in range(3):
            log.append(b"mine")
            other.do("append")
        for _ in range(2):
            log.append(b"mine")
        damage(directory / "kstore-shared")
        with pytest.raises(kstore.LogFailedError):
            log.append(b"more")
        assert other.do("append") == "LogFailedError"
        child = started(lambda: kstore.open(directory, "a", shared=True).append(b"more"))
        assert ended(child) == 1
        log.abandon()
        other.close()
    with kstore.open(directory, "a", shared=True) as log:
        log.append(b"last")
    assert values(directory) == [b"mine", b"child"] * 3 + [b"mine", b"mine", b"last"]
    check_left(directory)


def test_a_removed_shared_file(ram: Path) -> None:
    """Those that have it go on; others are refused until they have left."""
    directory = ram / "t-0"
    with kstore.open(directory, "a", shared=True) as log, writer(directory) as other:
        log.append(b"mine")
        (directory / "kstore-shared").unlink()
        assert other.do("append") == 1
        with pytest.raises(kstore.LogLockedError):
            kstore.open(directory, "a", shared=True)
        assert log.append(b"mine") == 2
        other.close()
    assert values(directory) == [b"mine", b"child", b"mine"]
    with kstore.open(directory, "a", shared=True) as log:
        log.append(b"last")
    check_left(directory)


def renamed(directory: Path) -> None:
    directory.rename(directory.parent / "u-0")


def removed(directory: Path) -> None:
    shutil.rmtree(directory)


@pytest.mark.parametrize("vanishes", [renamed, removed])
@pytest.mark.parametrize("meets", ["roll", "flush", "close"])
def test_a_directory_that_is_no_longer_there(ram: Path, vanishes: Callable[[Path], None], meets: str) -> None:
    """As with one process: no call succeeds that needs it, and closing says which offsets are lost."""
    directory = ram / "t-0"
    log = kstore.open(directory, "a", shared=True)
    with writer(directory) as other:
        log.append(b"mine")
        assert other.do("append") == 1
        vanishes(directory)
        if meets != "close":
            with pytest.raises(kstore.LogFailedError):
                getattr(log, meets)()
            assert other.do("roll") == "LogFailedError"
        with pytest.raises(kstore.LogFailedError, match=r"offsets 0 to \d \(exclusive\) are no longer"):
            log.close()
        assert other.close() == 1
    if vanishes is renamed:
        assert values(ram / "u-0") == [b"mine", b"child"]


def test_a_removed_checkpoint_of_leader_epochs(ram: Path) -> None:
    directory = ram / "t-0"
    with writer(directory) as other:
        log = kstore.open(directory, "a", shared=True, leader_epoch=3)
        log.append(b"mine")
        assert other.do("roll") == 1
        (directory / "leader-epoch-checkpoint").unlink()
        with pytest.raises(kstore.LogFailedError, match="leader-epoch-checkpoint was removed"):
            log.append(b"more")
        assert other.do("append") == 1
        log.abandon()
        with kstore.open(directory, "a", shared=True) as log:
            assert log.append(b"mine") == 2
            assert log.leader_epochs == ((3, 0),)
        assert other.close() == 0
    check_left(directory)


def test_a_process_dies_while_another_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that waits is the first then: it does not take the shared files for those of another process."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"one")
    held, other = Pipe()

    def hold() -> None:
        own = lock.DirectoryLock(str(tmp_path / "t-0"))
        other.send(own.take(shared=True))  # alone, and has let no other in
        signal.pause()

    child = started(hold)
    assert held.recv()
    is_alone = lock.lock_alone

    def and_then_it_dies(file: File) -> bool:
        found = is_alone(file)
        if not found:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            monkeypatch.setattr(lock, "lock_alone", is_alone)
        return found

    monkeypatch.setattr(lock, "lock_alone", and_then_it_dies)
    with kstore.open(tmp_path / "t-0", "a", shared=True, wait=0) as log:
        log.append(b"two")
    assert [record.value for record in kstore.open(tmp_path / "t-0")] == [b"one", b"two"]


@pytest.mark.parametrize("has_left", [False, True])
def test_a_dying_process_keeps_one_of_its_locks_for_a_moment(has_left: bool, tmp_path: Path) -> None:
    """It was alone, and what processes share was not ready, or is removed: another one waits until it is gone."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"one")
    held, other = Pipe()

    def hold() -> None:
        own = lock.DirectoryLock(str(path))
        own.take(shared=True)
        if has_left:
            own.enter()
            assert own.is_last()
        assert own.held is not None
        fcntl.lockf(own.held.fd, fcntl.LOCK_UN)
        other.send("locked")
        time.sleep(0.3)

    child = started(hold)
    assert held.recv()
    with kstore.open(path, "a", shared=True) as log:
        log.append(b"two")
    assert ended(child) == 0
    assert [record.value for record in kstore.open(path)] == [b"one", b"two"]


def truncate_and_die(directory: Path, back: int) -> int:
    """The exit code of a process that dies when it has truncated the log, and has not told the others."""

    def work() -> None:
        store = SegmentSet.store_truncations

        def and_then_die(segments: SegmentSet) -> None:
            store(segments)
            os.kill(os.getpid(), signal.SIGKILL)

        with kstore.open(directory, "a", shared=True) as log:
            SegmentSet.store_truncations = and_then_die  # type: ignore[method-assign]
            log.truncate_to(log.log_end_offset - back)

    return ended(started(work))


def test_a_process_dies_at_the_end_of_a_truncation_below_the_log_start(tmp_path: Path) -> None:
    """It is carried out, and the other processes do not know it yet."""
    with kstore.open(tmp_path / "t-0", "a", shared=True) as log:
        log.extend([b"v"] * 20)
        log.delete_records(15)
        assert truncate_and_die(tmp_path / "t-0", 17) == -signal.SIGKILL
        assert log.append(b"new") == 3
        assert (log.log_start_offset, log.log_end_offset) == (3, 4)


def test_a_process_dies_while_another_compacts(tmp_path: Path) -> None:
    """Those that go on with the log leave what the other one is writing."""
    path = tmp_path / "t-0"
    options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
    with kstore.open(path, "a", shared=True, **options) as log:
        for number in range(40):
            log.append(b"%d" % number, key=b"%d" % (number % 4))
        log.roll()
        log.extend([b"v"] * 4, [b"k"] * 4)
        deaths = []

        def progress(done: int, total: int) -> None:
            if not deaths and list(path.glob("*.cleaned")):
                deaths.append(truncate_and_die(path, 1))
                assert ended(started(lambda: append_one(path))) == 0

        with pytest.raises(kstore.LogChangedError, match="call it again"):  # the log was truncated meanwhile
            log.compact(progress=progress)
        assert deaths == [-signal.SIGKILL]
        assert log.compact().segments
    assert [record.value for record in kstore.open(path)] == [b"36", b"37", b"38", b"39", *[b"v"] * 3, b"one"]


def append_one(directory: Path) -> None:
    with kstore.open(directory, "a", shared=True) as log:
        log.append(b"one", key=b"one")
