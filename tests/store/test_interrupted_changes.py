"""A change of topics is interrupted, or fails: what is acknowledged afterwards is there at the next opening.

Some of the points each; all with KSTORE_CALLS=all.
"""

import contextlib
import errno
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.engine.io.file import calls_made, fail_call
from kstore.log.files.lock import PartitionLock, is_locked
from kstore.store.topic_catalog import TopicCatalog
from tests.helpers.calls import some_calls
from tests.interrupts.injector import InjectedInterrupt, Injector

CHANGES: dict[str, Callable[[LogStore], object]] = {
    "create": lambda store: store.create_topic("new", 3),
    "add": lambda store: store.add_partitions("old", 4),
    "alter": lambda store: store.alter_topic("old", segment_bytes=1 << 21),
    "delete": lambda store: store.delete_topic("old"),
}
Acknowledged = list[tuple[TopicPartition, int]]


def opened(directory: Path) -> LogStore:
    return LogStore(directory / "a", directory / "b", mode="a", retention_ms=-1, file_delete_delay_ms=0)


def filled(directory: Path) -> tuple[LogStore, list[kstore.LogWriter]]:
    """A store, and logs of it that somebody has open."""
    store = opened(directory)
    store.create_topic("old", 2)
    for number in range(2):
        store.log("old", number).append(b"old")  # type: ignore[attr-defined]
    return store, [store.log("old", number) for number in range(2)]  # type: ignore[misc]


def write(store: LogStore, logs: list[kstore.LogWriter]) -> Acknowledged:
    """Appends wherever it is let."""
    done: Acknowledged = []
    for topic in ("old", "new"):
        for key in (b"1", b"2", b"3", b"7", b"9"):
            with contextlib.suppress(OSError, kstore.KstoreError):
                partition, offset = store.append(topic, b"new", key)
                done.append((TopicPartition(topic, partition), offset))
    for number, log in enumerate(logs):
        with contextlib.suppress(OSError, kstore.KstoreError):
            done.append((TopicPartition("old", number), log.append(b"new")))
    return done


def check(directory: Path, store: LogStore, logs: list[kstore.LogWriter], name: str) -> None:
    """The store goes on after the change has failed, and the next one finds what this one has acknowledged."""
    done = write(store, logs)
    was_unfinished = store.health().unfinished
    with contextlib.suppress(OSError, kstore.KstoreError):
        store.close()
    store.abandon()
    with opened(directory) as again:
        assert again.health().ok
        topics = again.topics
        assert topics.get("old", [0, 1]) in ([0, 1], [0, 1, 2, 3])
        assert topics.get("new", [0, 1, 2]) == [0, 1, 2]
        assert "old" in topics or name == "delete"
        for tp, offset in done:
            assert again.log(*tp).get(offset).value == b"new", (tp, offset, was_unfinished)
        for number in range(2 if "old" in topics else 0):
            assert again.log("old", number).get(0).value == b"old"


@pytest.mark.parametrize("name", CHANGES)
def test_interrupted_at_a_line(ram: Path, name: str) -> None:
    change = CHANGES[name]
    store, logs = filled(ram / "whole")
    with Injector("line") as counter:
        change(store)
    store.close()
    assert counter.count > 50
    for nth in some_calls(counter.count, 8, name):
        directory = ram / str(nth)
        store, logs = filled(directory)

        def interrupt() -> None:
            raise InjectedInterrupt

        with contextlib.suppress(InjectedInterrupt), Injector("line", nth, interrupt):
            change(store)
        check(directory, store, logs, name)


@pytest.mark.parametrize("name", CHANGES)
def test_a_call_fails(ram: Path, name: str) -> None:
    change = CHANGES[name]
    store, logs = filled(ram / "whole")
    fail_call(0, own=True)
    change(store)
    calls = calls_made()
    store.close()
    for nth in some_calls(calls, 3, name):
        directory = ram / str(nth)
        store, logs = filled(directory)
        fail_call(nth, errno.EIO, own=True)
        try:
            with contextlib.suppress(OSError):
                change(store)
        finally:
            fail_call(0)
        check(directory, store, logs, name)


def table_with(directory: Path, change: dict[str, object] | None, **topics: int) -> None:
    """The table of a store's directory, as somebody has left it."""
    path = directory / "kstore-topics.json"
    table = json.loads(path.read_text())
    table.pop("crc32c", None)
    table["change"] = change
    table["number"] += 1
    if change and change["delete"]:
        del table["topics"][change["topic"]]
    for topic, partitions in topics.items():
        table["topics"][topic] = {"partitions": partitions, "config": {}}
    path.write_text(json.dumps(table, indent=1) + "\n")


def test_a_deletion_that_cannot_be_finished_yet(tmp_path: Path) -> None:
    """The process died, and a directory failed: nobody writes what the next opening deletes."""
    store, logs = filled(tmp_path)
    for log in logs:
        log.close()
    store.close()
    table_with(tmp_path / "a", {"topic": "old", "delete": True, "make": {}})
    place = next(path for name in "ab" for path in [tmp_path / name / "old-0"] if path.exists())
    if place.parent.name == "a":  # the other one knows nothing of the deletion
        with pytest.raises(kstore.LogNotFoundError, match="is being deleted"):
            kstore.open(place, "a")
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").touch()
    with opened(tmp_path) as store:
        assert "deletion" in store.health().unfinished
        assert store.topics == {}
        with pytest.raises(kstore.LogFailedError, match="out of use until"):
            store.append("old", b"v", b"k")
        with pytest.raises(kstore.LogFailedError, match="out of use until"):
            store.log("old")
        assert LogStore(tmp_path / "a").topics == {}
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    with opened(tmp_path) as store:
        assert store.health().ok
        assert store.topics == {}
        assert store.create_topic("old", 2).partitions.keys() == {0, 1}
        assert store.append("old", b"v", b"k")[1] == 0


def test_a_creation_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    store.close()
    (tmp_path / "a" / "new-0").mkdir()
    (tmp_path / "a" / "old-2").mkdir()
    for directory in (tmp_path / "a", tmp_path / "b"):
        make = {"0": str(tmp_path / "a"), "1": str(tmp_path / "b")}
        table_with(directory, {"topic": "new", "delete": False, "make": make}, new=2)
    found = LogStore(tmp_path / "a", tmp_path / "b")
    assert "new" not in found.topics
    assert found.health().unfinished == ""
    for directory in (tmp_path / "a", tmp_path / "b"):
        table_with(
            directory, {"topic": "old", "delete": False, "make": {"2": str(tmp_path / "a")}}, old=3, new=0
        )
    found = LogStore(tmp_path / "a", tmp_path / "b")
    assert found.topics["old"] == [0, 1]
    assert len(list(found.scan("old"))) == 2


def left_unfinished(directory: Path, topic: str, numbers: Iterable[int], total: int) -> None:
    """The process died when partitions were decided on, and none of them was made."""
    store, logs = filled(directory)
    for log in logs:
        log.close()
    store.close()
    make = {str(number): str(directory / "ab"[number % 2]) for number in numbers}
    table_with(directory / "a", {"topic": topic, "delete": False, "make": make}, **{topic: total})


@pytest.mark.parametrize(("topic", "numbers", "total"), [("new", (0, 1, 2), 3), ("old", (2, 3), 4)])
def test_moved_with_an_unfinished_change(
    tmp_path: Path, topic: str, numbers: tuple[int, ...], total: int
) -> None:
    """The directories lie elsewhere, under the same names: the change is finished there."""
    left_unfinished(tmp_path / "x", topic, numbers, total)
    (tmp_path / "x").rename(tmp_path / "y")
    with opened(tmp_path / "y") as store:
        assert store.health().ok
        assert store.topics[topic] == list(range(total))
        assert all((tmp_path / "y" / "ab"[number % 2] / f"{topic}-{number}").is_dir() for number in numbers)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("made", [(), (1,), (0, 1, 2)])
def test_exchanged_with_an_unfinished_change(tmp_path: Path, made: tuple[int, ...]) -> None:
    """What the process had made before it died stays where it lies: it is not made a second time."""
    left_unfinished(tmp_path, "new", (0, 1, 2), 3)
    for number in made:
        (tmp_path / "ab"[number % 2] / f"new-{number}").mkdir()
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    (tmp_path / "c").rename(tmp_path / "b")
    for _ in range(2):
        with opened(tmp_path) as store:
            assert store.health().ok
            assert store.topics["new"] == [0, 1, 2]
            assert len(list(store.scan("old"))) == 2


def test_moved_under_other_names(tmp_path: Path) -> None:
    """Nobody knows which is which: it is said, and what to do."""
    left_unfinished(tmp_path / "x", "new", (0, 1), 2)
    (tmp_path / "x" / "a").rename(tmp_path / "c")
    (tmp_path / "x" / "b").rename(tmp_path / "d")
    with LogStore(tmp_path / "c", tmp_path / "d", mode="a") as store:
        assert "are not in use. Name all directories" in store.health().unfinished
        with pytest.raises(kstore.LogFailedError, match="by a link at its old path"):
            store.create_topic("another")
        assert not list(tmp_path.glob("*/new-*"))
    (tmp_path / "x" / "a").symlink_to(tmp_path / "c")
    (tmp_path / "x" / "b").symlink_to(tmp_path / "d")
    with opened(tmp_path / "x") as store:
        assert store.health().ok
        assert store.topics["new"] == [0, 1]


@pytest.mark.parametrize(
    "how", ["links", "a link to both", "new names beside links", "a copy beside the original"]
)
def test_other_paths_of_the_same_directories(tmp_path: Path, how: str) -> None:
    """The old paths are there, and lead to the directories in use, or to what these are a copy of."""
    left_unfinished(tmp_path / "x", "new", (0, 1), 2)
    paths = [tmp_path / "y" / "a", tmp_path / "y" / "b"]
    if how == "links":
        paths = [tmp_path / "first", tmp_path / "second"]
        for path, name in zip(paths, "ab", strict=True):
            path.symlink_to(tmp_path / "x" / name)
    elif how == "a link to both":
        (tmp_path / "y").symlink_to(tmp_path / "x")
    elif how == "new names beside links":
        paths = [tmp_path / "first", tmp_path / "second"]
        for path, name in zip(paths, "ab", strict=True):
            (tmp_path / "x" / name).rename(path)
            (tmp_path / "x" / name).symlink_to(path)
    else:
        shutil.copytree(tmp_path / "x", tmp_path / "y")
    with LogStore(*paths, mode="a") as store:
        assert store.health().unfinished == ""
        assert store.topics["new"] == [0, 1]
        assert all((path / f"new-{number}").is_dir() for number, path in enumerate(paths))
        store.create_topic("another")
    if how == "a copy beside the original":
        assert not list((tmp_path / "x").glob("*/new-*"))


def test_a_directory_is_not_named_after_a_crash(tmp_path: Path) -> None:
    """It may have the partition: none is made in another one."""
    left_unfinished(tmp_path / "x", "new", (0, 1), 2)
    (tmp_path / "x").rename(tmp_path / "y")
    with LogStore(tmp_path / "y" / "a", mode="a") as store:
        assert "x/b is not in use" in store.health().unfinished
    assert not list(tmp_path.glob("y/*/new-*"))
    with opened(tmp_path / "y") as store:
        assert store.topics["new"] == [0, 1]


def test_a_deletion_waits_for_all_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the topic would come back when the other directory is named again."""

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "the process dies, say")

    store, logs = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(TopicCatalog, "_carry_out", failing)
        with pytest.raises(OSError, match="dies, say"):
            store.delete_topic("old")
    for log in logs:
        log.close()
    store.close()
    with LogStore(tmp_path / "a", mode="a") as store:
        assert "b is not in use" in store.health().unfinished
    with opened(tmp_path) as store:
        assert store.health().ok
        assert "old" not in store.topics


class Interrupt(BaseException):
    pass


def interrupted(nth: int, work: Callable[[], object]) -> bool:
    """Whether the nth call of a function of kstore's was reached, and raised this, as a signal handler may."""
    left = nth

    def trace(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if "kstore" in frame.f_code.co_filename.split("tests")[0] and event == "call":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Interrupt

    sys.settrace(trace)
    try:
        with contextlib.suppress(Interrupt):
            work()
    finally:
        sys.settrace(None)
    return left <= 0


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a callback of a weak reference, interrupted
@pytest.mark.parametrize("name", ["close", "retain"])
def test_interrupted_and_called_again(tmp_path: Path, name: str) -> None:
    """With directories of a deleted topic that are due: a second close() closes, and the directory is free and clean."""
    for nth in itertools.count(1, 3):
        path = tmp_path / str(nth)
        store = LogStore(path, mode="a", file_delete_delay_ms=0, background=False)
        store.create_topic("gone", 2)
        store.create_topic("t", 2)
        store.extend("t", [b"v"] * 20, [b"%d" % i for i in range(20)])
        store.delete_topic("gone")
        if not interrupted(nth, getattr(store, name)):
            break
        assert not (store.is_closed and is_locked(path))
        if not store.is_closed and name == "retain":
            store.retain()
        store.close()
        assert store.closed_cleanly
        with LogStore(path, mode="a", background=False) as again:
            assert again.topics == {"t": [0, 1]}
            assert sum(again.log("t", n).log_end_offset for n in range(2)) == 20
        assert not list(path.glob("*-delete"))
    assert nth > 20


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a callback of a weak reference, interrupted
@pytest.mark.parametrize("name", ["create", "delete"])
def test_an_interrupted_change_leaves_nothing_locked(ram: Path, name: str) -> None:
    """The topic is there and in use, or it is not, or `health` says that a change is not finished: also as long as somebody
    keeps the exception."""
    change = CHANGES[name]
    store, _ = filled(ram / "whole")
    with Injector("check") as counter:
        change(store)
    store.close()
    ends = set()
    for nth in sorted({*some_calls(counter.count, 200, name), *range(counter.count - 20, counter.count + 1)}):
        store, _ = filled(ram / str(nth))
        kept = []

        def interrupt() -> None:
            raise InjectedInterrupt

        try:
            with Injector("check", nth, interrupt):
                change(store)
        except InjectedInterrupt as e:
            kept.append(e)
        if store.health().unfinished:
            ends.add("unfinished")
        else:
            assert store.health().ok
            ends.update(store.topics or ["none"])
            for topic in store.topics:
                for key in (b"1", b"2", b"3"):
                    store.append(topic, b"v", key)
            store.create_topic("another")
        store.close()
        assert store.closed_cleanly
    assert "old" in ends or name == "create"
    assert len(ends) > 1


def test_an_interrupted_opening_leaves_nothing_locked(ram: Path) -> None:
    """Also as long as somebody keeps the exception: a partition is opened, at the places where locks and logs are handed on."""

    def closed(name: str) -> LogStore:
        with LogStore(ram / name, mode="a", background=False) as store:
            store.create_topic("t")
            store.append("t", b"v")
        return LogStore(ram / name, mode="a", background=False)

    def interrupt() -> None:
        raise InjectedInterrupt

    with closed("warm") as store:
        store.append("t", b"v")  # what only a first run does is done
    with closed("whole") as store, Injector("check") as counter:
        store.append("t", b"v")
    places = {place: nth for nth, place in enumerate(counter.where, 1) if not place.startswith("python")}
    handed_on = [
        nth
        for place, nth in places.items()
        if place.split(" <")[0].endswith((" __exit__", " acquire", " __init__", " get", " _open_writer"))
    ]
    for nth in handed_on:
        with closed(str(nth)) as store:
            with pytest.raises(InjectedInterrupt) as kept, Injector("check", nth, interrupt):
                store.append("t", b"v")
            store.append("t", b"v")
            del kept
    assert len(handed_on) > 50


def test_an_interrupt_while_a_deletion_looks_for_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the exception keeps no partition locked."""

    def interrupt(_: PartitionLock) -> None:
        monkeypatch.undo()
        raise Interrupt

    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("old")
        monkeypatch.setattr(PartitionLock, "release", interrupt)
        with pytest.raises(Interrupt) as kept:
            store.delete_topic("old")
        assert store.append("old", b"v") == (0, 0)
        del kept


def test_an_interrupt_while_another_log_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps the exception keeps no partition locked."""

    def interrupt(_: kstore.LogWriter) -> None:
        monkeypatch.undo()
        raise Interrupt

    with LogStore(tmp_path, mode="a", background=False, max_open_partitions=1) as store:
        for name in ("one", "another"):
            store.create_topic(name)
        store.append("one", b"v")
        monkeypatch.setattr(kstore.LogWriter, "_leave_clean", interrupt)
        with pytest.raises(Interrupt) as kept:
            store.append("another", b"v")
        assert store.append("one", b"v") == (0, 1)
        assert store.append("another", b"v") == (0, 0)
        assert store.health().ok
        del kept
    assert LogStore(tmp_path).closed_cleanly


@pytest.mark.parametrize("name", CHANGES)
def test_changed_by_a_handler(ram: Path, name: str) -> None:
    """A signal comes while a log is written: its handler changes the topic, or is refused, and then nothing has changed."""

    def inside(log: kstore.LogWriter) -> None:
        log.append(b"more")
        log.flush()
        log.roll()

    _, logs = filled(ram / "whole")
    with Injector("check") as counter:
        inside(logs[0])
    ends = set()
    for nth in some_calls(counter.count, 20, name):
        directory = ram / str(nth)
        store, logs = filled(directory)

        def change(store: LogStore = store) -> None:
            try:
                CHANGES[name](store)
                ends.add("done")
            except kstore.ReentrantCallError:
                ends.add("refused")

        with (
            contextlib.suppress(kstore.LogNotFoundError, kstore.LogClosedError),
            Injector("check", nth, change),
        ):
            inside(logs[0])
        assert store.health().ok
        if "old" in store.topics:
            size = store.describe("old").options.get("segment_bytes", 1 << 30)
            assert {log.config.segment_bytes for log in logs} == {size}
            for log in logs:
                log.append(b"more")
        check(directory, store, logs, name)
    assert ends == {"done", "refused"} or name in ("create", "add")


@pytest.mark.parametrize("name", ["alter", "delete"])
def test_a_log_of_the_topic_has_failed(tmp_path: Path, name: str) -> None:
    """It refuses to write until it is opened again, which finds the topic as it is then."""
    with LogStore(tmp_path, mode="a", durability="each", background=False) as store:
        store.create_topic("old", 2)
        log = store.log("old", 0)
        log.append(b"v")  # type: ignore[attr-defined]
        fail_call(2, errno.EIO, own=True)
        try:
            with pytest.raises(OSError, match="Input/output"):
                log.append(b"v")  # type: ignore[attr-defined]
        finally:
            fail_call(0)
        CHANGES[name](store)
        assert store.health().unfinished == ""
        if name == "alter":
            log.close()
            assert store.log("old", 0).config.segment_bytes == 1 << 21  # type: ignore[attr-defined]
            assert store.log("old", 1).config.segment_bytes == 1 << 21  # type: ignore[attr-defined]
