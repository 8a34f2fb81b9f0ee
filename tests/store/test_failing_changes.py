"""A change of topics, or a session, is cut short: by a kill or a failing file operation. It is done, or not
done, and what is acknowledged afterwards is there at the next opening."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.testing import count_calls, failing
from tests.helpers.effort import SEED, some
from tests.store.stores import opened, writer

State = dict[str, tuple[int, dict[str, object], list[bytes | None]]]
Change = Callable[[LogStore], object]

# each is a list of steps: a second topic of the same name has nothing of the first
CHANGES: dict[str, list[Change]] = {
    "create": [lambda store: store.create_topic("new", 5, retention_ms=77)],
    "add": [lambda store: store.add_partitions("old", 5)],
    "alter": [lambda store: store.alter_topic("old", segment_bytes=1 << 21)],
    "delete": [lambda store: store.delete_topic("old")],
    "again": [lambda store: store.delete_topic("old"), lambda store: store.create_topic("old", 2)],
}
EACH = [(name, directories) for directories in (1, 3) for name in CHANGES]

pytestmark = pytest.mark.usefixtures("sound_calls")


def open_in(root: Path, directories: int) -> LogStore:
    paths = [root / str(number) for number in range(directories)]
    return opened(*paths, internal_segment_bytes=10_000, file_delete_delay_ms=0)


def make(root: Path, directories: int) -> None:
    with open_in(root, directories) as store:
        store.create_topic("old", 3, retention_ms=-1)
        store.create_topic("other", 2)
        for number in range(12):
            for topic in ("old", "other"):
                store.append(topic, b"%d" % number, b"%d" % number)
        writer(store, "old", 1).delete_records(1)


def begin(root: Path, directories: int) -> tuple[LogStore, list[kstore.LogWriter]]:
    """A store, and logs of it that are open and have unflushed records."""
    store = open_in(root, directories)
    logs = [writer(store, "old", number) for number in range(2)]
    for log in logs:
        log.append(b"more")
    return store, logs


def state(store: LogStore) -> State:
    """Of each topic the number of partitions, the options and the values."""
    return {
        topic: (
            len(numbers),
            store.describe(topic).options,
            sorted(value or b"" for batch in store.scan(topic, ["value"]) for (value,) in batch.rows()),
        )
        for topic, numbers in store.topics.items()
    }


def states(root: Path, directories: int, steps: list[Change]) -> tuple[list[State], int]:
    """What is there before a change and after each step, and how many calls the change makes."""
    make(root, directories)
    store, _ = begin(root, directories)
    allowed = [state(store)]

    def change() -> None:
        for step in steps:
            step(store)

    if len(steps) > 1:
        make(root / "first", directories)
        first, _ = begin(root / "first", directories)
        with first:
            steps[0](first)
            allowed.append(state(first))
    calls = count_calls(change)
    allowed.append(state(store))
    store.close()
    with open_in(root, directories) as store:
        assert state(store) == allowed[-1]
    assert all(one != another for one, another in pairwise(allowed))
    return allowed, calls


def check(root: Path, directories: int, case: object) -> None:
    """Nothing is left of a change: the store is closed cleanly, and has no other directories."""
    with open_in(root, directories) as store:
        assert store.health().ok, case
        for topic in [*store.topics, "another"]:
            if topic == "another":
                store.create_topic("another", 4)
            end = sum(store.log(topic, number).log_end_offset for number in store.topics[topic])
            assert (
                sum(map(len, store.extend(topic, [b"v"] * 20, [b"%d" % i for i in range(20)]).values())) == 20
            )
            assert sum(store.log(topic, n).log_end_offset for n in store.topics[topic]) == end + 20, case
    reader = LogStore(*[root / str(number) for number in range(directories)])
    assert reader.closed_cleanly, case
    assert not reader.others, case
    for tp in reader:
        log = reader.open(*tp)
        assert log.recovery.clean, case
        assert log.recovery.findings == [], case


@pytest.mark.parametrize(("name", "directories"), EACH)
def test_killed_at_any_call(ram: Path, name: str, directories: int) -> None:
    allowed, calls = states(ram / "whole", directories, CHANGES[name])
    assert calls > 4
    make(ram / "made", directories)
    killed = 0
    for turn, nth in enumerate([1, *some(range(2, calls), 3, (name, directories)), calls]):
        how = ("kill", "kill_half")[turn % 2]
        root, case = ram / str(nth), f"{how} at call {nth}, SEED={SEED}"
        shutil.copytree(ram / "made", root)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                store, _ = begin(root, directories)
                with failing(nth, how=how, this_thread=True):
                    for step in CHANGES[name]:
                        step(store)
            os._exit(0)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        with open_in(root, directories) as store:
            assert store.health().ok, case
            assert state(store) in allowed, case
        check(root, directories, case)
        shutil.rmtree(root)
    assert killed > 2


def append_where_possible(store: LogStore, logs: list[kstore.LogWriter]) -> list[tuple[TopicPartition, int]]:
    acknowledged = []
    for topic in ("old", "other", "new"):
        for key in (b"1", b"2", b"3", b"7", b"9"):
            with contextlib.suppress(OSError, kstore.KstoreError):
                partition, offset = store.append(topic, b"new", key)
                acknowledged.append((TopicPartition(topic, partition), offset))
    for number, log in enumerate(logs):
        with contextlib.suppress(OSError, kstore.KstoreError):
            acknowledged.append((TopicPartition("old", number), log.append(b"new")))
    return acknowledged


@pytest.mark.parametrize(("name", "directories"), EACH)
def test_any_call_fails(ram: Path, name: str, directories: int) -> None:
    """If nothing has happened, the change can be made again. Otherwise no more topics are changed until the
    store is opened again; what is not concerned stays in use."""
    allowed, calls = states(ram / "whole", directories, CHANGES[name])
    make(ram / "made", directories)
    for turn, nth in enumerate(some(range(1, calls + 1), 4, (name, directories))):
        error = (errno.EIO, errno.ENOSPC)[turn % 2]
        root, case = ram / str(nth), f"call {nth}, {errno.errorcode[error]}, SEED={SEED}"
        shutil.copytree(ram / "made", root)
        store, logs = begin(root, directories)
        caught = None
        with failing(nth, error, this_thread=True):
            try:
                for step in CHANGES[name]:
                    step(store)
            except OSError as e:
                caught = e.errno
        assert caught in (None, error), case
        if store.health().unfinished:
            with pytest.raises(kstore.LogFailedError, match="not finished"):
                store.create_topic("another")
            assert store.append("other", b"new", b"30")[1] >= 0, case
        elif caught:
            found = state(store)
            assert found in allowed[:-1], case
            for step in CHANGES[name][allowed.index(found) :]:
                step(store)
            assert state(store) == allowed[-1], case
        elif store.health().ok:
            assert state(store) == allowed[-1], case
        acknowledged = append_where_possible(store, logs)
        assert any(tp.topic == "other" for tp, _ in acknowledged), case
        with contextlib.suppress(OSError, kstore.KstoreError):
            store.close()
        store.abandon()
        with open_in(root, directories) as store:
            assert store.health().ok, case
            for topic in {*store.topics, *allowed[0]}:
                found = state(store).get(topic)
                wanted = [each.get(topic) for each in allowed]
                kept = found and (*found[:2], [value for value in found[2] if value != b"new"])
                assert kept in wanted, case
            for tp, offset in acknowledged:
                assert store.log(*tp).get(offset).value == b"new", (case, tp, offset)
        check(root, directories, case)
        shutil.rmtree(root)


# ---- sessions ----------------------------------------------------------------------------------------------


def append(store: LogStore) -> None:
    for number in range(20):
        store.append("t", b"%d" % number, b"%d" % number)


def session(directory: Path) -> None:
    with opened(directory, max_open_partitions=2) as store:
        append(store)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_any_call_of_a_session_fails(ram: Path, clean: bool) -> None:
    with opened(ram / "made") as store:
        store.create_topic("t", 3)
        append(store)
    if not clean:
        (ram / "made" / ".kafka_cleanshutdown").unlink()
    shutil.copytree(ram / "made", ram / "whole")
    calls = count_calls(lambda: session(ram / "whole"))
    assert calls > 100
    failures, tried = 0, some(range(1, calls + 1), 20, clean)
    for nth in tried:
        directory, case = ram / str(nth), f"call {nth}, SEED={SEED}"
        shutil.copytree(ram / "made", directory)
        failed = False
        with failing(nth, errno.EIO, this_thread=True):
            try:
                session(directory)
            except (OSError, kstore.KstoreError):
                failed = True
        failures += failed
        with opened(directory) as store:
            assert store.health().ok, case
            found = sum(len(batch) for batch in store.scan("t", ["value"]))
            assert 20 <= found <= 40, case
            assert failed or found == 40, case
            append(store)
        reader = LogStore(directory)
        assert reader.closed_cleanly, case
        assert all(reader.open(*tp).recovery.findings == [] for tp in reader), case
    assert failures > len(tried) / 4


def test_flush_goes_on_after_a_failure(tmp_path: Path) -> None:
    with contextlib.suppress(OSError, kstore.KstoreError), opened(tmp_path) as store:
        store.create_topic("t", 2)
        logs = [writer(store, "t", number) for number in range(2)]
        for log in logs:
            log.append(b"v")
        with failing(1, this_thread=True), pytest.raises(OSError, match="Input/output"):
            store.flush()
        assert sorted(log.durable_offset for log in logs) == [0, 1]
