"""The recorder tells of what was done, and the player makes of it what the models allow, and nothing else."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.file import File, make_directory, rename, sync_directory, unlink, write_whole
from kstore.testing.image import Image
from kstore.testing.power_cuts import Disk, crash_states
from kstore.testing.recorder import Recorder, Trace


def recorded(root: Path, *calls: object) -> Trace:
    with Recorder(root) as recorder:
        for call in calls:
            call()  # type: ignore[operator]
        recorder.mark("the end")
    return recorder.trace


def left(trace: Trace, model: str = "strict") -> set[tuple[tuple[str, bytes], ...]]:
    """What may be there after the last call."""
    last = len(trace.calls) - 1
    return {tuple(sorted(s.image.files.items())) for s in crash_states(trace, models=[model]) if s.at == last}


def test_a_synced_file_has_its_content_but_no_name(ram: Path) -> None:
    def write() -> None:
        file = File(str(ram / "a"), "x")
        file.write(0, b"one")
        file.sync()

    trace = recorded(ram, write)
    assert left(trace) == {(), (("a", b"one"),)}
    assert left(trace, "ordered") == {(("a", b"one"),)}


def test_a_synced_directory_has_names_but_no_content(ram: Path) -> None:
    def write() -> None:
        File(str(ram / "a"), "x").write(0, b"one")

    trace = recorded(ram, write, lambda: sync_directory(str(ram)))
    assert left(trace) == {(("a", b""),), (("a", b"one"),), (("a", b"\0\0\0"),)}
    assert left(trace, "ordered") == {(("a", b""),), (("a", b"one"),)}


def test_a_rename_is_there_or_not(ram: Path) -> None:
    (ram / "a").write_bytes(b"old")
    (ram / "b").write_bytes(b"new")
    trace = recorded(ram, lambda: rename(str(ram / "b"), str(ram / "a")))
    assert left(trace) == {(("a", b"old"), ("b", b"new")), (("a", b"new"),)}


def test_a_removed_name_may_come_back_until_its_directory_is_synced(ram: Path) -> None:
    (ram / "a").write_bytes(b"old")
    assert left(recorded(ram, lambda: unlink(str(ram / "a")))) == {(), (("a", b"old"),)}
    (ram / "b").write_bytes(b"old")
    assert left(recorded(ram, lambda: unlink(str(ram / "b")), lambda: sync_directory(str(ram)))) == {()}


def test_write_whole_leaves_the_old_or_the_new(ram: Path) -> None:
    (ram / "a").write_bytes(b"old")
    trace = recorded(ram, lambda: write_whole(str(ram / "a"), b"new"))
    seen = {state.image.files["a"] for state in crash_states(trace)}
    assert seen == {b"old", b"new"}
    assert left(trace) == {(("a", b"new"),)}


def test_a_write_is_torn_at_pages(ram: Path) -> None:
    (ram / "a").write_bytes(bytes(1536))
    trace = recorded(ram, lambda: File(str(ram / "a"), "r+").write(0, b"x" * 1536))
    assert (("a", b"x" * 512 + bytes(1024)),) in left(trace)
    assert (("a", bytes(512) + b"x" * 512 + bytes(512)),) in {
        tuple(s.image.files.items())
        for seed in range(40)
        for s in crash_states(trace, models=["pages"], seed=seed)
    }


def test_files_of_an_ordered_disk_grow_by_what_is_there(ram: Path) -> None:
    def write() -> None:
        file = File(str(ram / "a"), "x")
        for at in range(0, 2048, 512):
            file.write(at, bytes([at // 512 + 1]) * 512)

    trace = recorded(ram, write)
    whole = b"".join(bytes([i + 1]) * 512 for i in range(4))
    for seed in range(20):
        for state in crash_states(trace, models=["ordered"], seed=seed):
            assert whole.startswith(state.image.files.get("a", b""))


def test_what_is_stored_in_mapped_files_is_recorded(ram: Path) -> None:
    """The whole record, replayed, is what is there."""
    with Recorder(ram) as recorder:
        make_directory(str(ram / "log"))
        with kstore.open(
            ram / "log", "a", index_interval_bytes=50, internal_segment_bytes=1000, segment_index_bytes=256
        ) as log:
            log.extend([b"%03d" % i + b"." * 50 for i in range(100)], batch_bytes=100)
            log.truncate_to(70)
    disk = Disk(recorder.trace)
    for at, call in enumerate(recorder.trace.calls):
        disk.take(at, call)
    last = disk.whole()
    now = Image.of(ram)
    assert any(name.endswith(".timeindex") and content for name, content in now.files.items())
    now.files.pop("log/.lock", None)
    last.files.pop("log/.lock", None)
    assert last.files == now.files


def test_a_directory_that_is_renamed_takes_along_what_is_in_it(ram: Path) -> None:
    (ram / "a").mkdir()
    (ram / "a" / "in").write_bytes(b"old")

    def write_and_rename() -> None:
        file = File(str(ram / "a" / "in"), "r+")
        file.sync()
        rename(str(ram / "a"), str(ram / "b"))
        file.write(0, b"new")
        write_whole(str(ram / "a"), b"a file now", durable=False)

    trace = recorded(ram, write_and_rename)
    seen = left(trace, "ordered")
    assert (("a", b"a file now"), ("b/in", b"new")) in seen
    assert (("a/in", b"new"),) in seen
    assert (("b/in", b"old"),) in seen
    assert recorded(ram, lambda: unlink(str(ram / "b" / "in"))).calls[0].path == "b/in"


def test_the_directory_may_be_a_link(ram: Path) -> None:
    (ram / "real").mkdir()
    (ram / "link").symlink_to("real")
    trace = recorded(
        ram / "link",
        lambda: make_directory(str(ram / "link" / "a")),
        lambda: sync_directory(str(ram / "link")),
    )
    assert [str(call) for call in trace.calls[:3]] == [
        "make_directory a",
        "syncs_directory ",
        "sync_directory ",
    ]


def test_a_record_ends_amid_a_call_of_another_thread(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that was left open is synced in the background, and the recorder compares what is mapped."""
    compares, goes_on, pread = threading.Event(), threading.Event(), os.pread

    def slow_pread(*args: Any) -> bytes:
        if threading.current_thread() is beside:
            compares.set()
            goes_on.wait(60)
        return pread(*args)

    errors: list[BaseException] = []

    def mark() -> None:
        try:
            recorder.mark("beside")
        except BaseException as e:  # noqa: BLE001
            errors.append(e)

    recorder = Recorder(ram)
    beside = threading.Thread(target=mark)
    ending = threading.Thread(target=recorder.__exit__)
    with recorder, kstore.open(ram / "log", "a", segment_index_bytes=256) as log:
        log.append(b"one")
        monkeypatch.setattr("kstore.testing.recorder.os.pread", slow_pread)
        beside.start()
        assert compares.wait(60)
        ending.start()
        ending.join(0.2)  # it waits; a moment is enough for one that does not
        goes_on.set()
        beside.join()
        ending.join()
    assert not errors
    assert recorder.trace.calls[-1].value == "beside"  # and nothing of what came after
