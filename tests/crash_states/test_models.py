"""kstore.testing: a Recorder records what was done; crash_states makes what the models allow of it."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import Call, Image, Recorder, Trace, crash_states

Files = tuple[tuple[str, bytes], ...]


def trace(*calls: Call | list[Call], **files: bytes) -> Trace:
    """A record of these calls in a directory that holds files a, b …, which have the numbers 1, 2 …"""
    numbers = {name: number for number, name in enumerate(files, 1)}
    flat = [each for call in calls for each in ([call] if isinstance(call, Call) else call)]
    return Trace(Image(dict(files)), numbers, [*flat, Call("mark", value="the end")])


def created(path: str, file: int) -> Call:
    return Call("create", path, file)


def written(path: str, file: int, data: bytes, at: int = 0) -> Call:
    return Call("write", path, file, at, data)


def synced(path: str, file: int) -> list[Call]:
    return [Call("syncs", path, file), Call("sync", path, file)]


def directory_synced(path: str = "") -> list[Call]:
    return [Call("syncs_directory", path), Call("sync_directory", path)]


def left(record: Trace, model: str = "strict") -> set[Files]:
    """What may be there after the last call."""
    last = len(record.calls) - 1
    states = crash_states(record, models=[model])
    return {tuple(sorted(state.image.files.items())) for state in states if state.at == last}


def test_a_synced_file_has_its_content_and_perhaps_no_name() -> None:
    record = trace(created("a", 1), written("a", 1, b"one"), synced("a", 1))
    assert left(record) == {(), (("a", b"one"),)}
    assert left(record, "ordered") == {(("a", b"one"),)}


def test_a_synced_directory_has_names_and_perhaps_no_content() -> None:
    record = trace(created("a", 1), written("a", 1, b"one"), directory_synced())
    assert left(record) == {(("a", b""),), (("a", b"one"),), (("a", b"\0\0\0"),)}
    assert left(record, "ordered") == {(("a", b""),), (("a", b"one"),)}


def test_a_rename_is_there_or_not() -> None:
    record = trace(Call("rename", "b", 2, target="a"), a=b"old", b=b"new")
    assert left(record) == {(("a", b"old"), ("b", b"new")), (("a", b"new"),)}


def test_a_deleted_name_may_be_back_until_its_directory_is_synced() -> None:
    assert left(trace(Call("unlink", "a", 1), a=b"old")) == {(), (("a", b"old"),)}
    assert left(trace(Call("unlink", "a", 1), directory_synced(), a=b"old")) == {()}


def test_a_file_that_is_synced_and_renamed_is_the_old_or_the_new() -> None:
    write = [created("a.tmp", 2), written("a.tmp", 2, b"new"), *synced("a.tmp", 2)]
    record = trace(write, Call("rename", "a.tmp", 2, target="a"), directory_synced(), a=b"old")
    assert {state.image.files["a"] for state in crash_states(record)} == {b"old", b"new"}
    assert left(record) == {(("a", b"new"),)}


def test_a_write_is_torn_at_pages() -> None:
    record = trace(written("a", 1, b"x" * 1536), a=bytes(1536))
    assert (("a", b"x" * 512 + bytes(1024)),) in left(record)
    assert (("a", bytes(512) + b"x" * 512 + bytes(512)),) in {
        tuple(state.image.files.items())
        for seed in range(40)
        for state in crash_states(record, models=["pages"], seed=seed)
    }


def test_files_of_an_ordered_disk_grow_by_bytes_that_are_there() -> None:
    pieces = [bytes([number + 1]) * 512 for number in range(4)]
    writes = [written("a", 1, piece, 512 * number) for number, piece in enumerate(pieces)]
    record = trace(created("a", 1), writes)
    for seed in range(20):
        for state in crash_states(record, models=["ordered"], seed=seed):
            assert b"".join(pieces).startswith(state.image.files.get("a", b""))


def test_a_renamed_directory_takes_its_files_along() -> None:
    record = Trace(Image({"a/in": b"old"}, {"a"}), {"a/in": 1})
    record.calls += [
        *synced("a/in", 1),
        Call("rename", "a", target="b"),
        written("b/in", 1, b"new"),
        created("a", 2),
        written("a", 2, b"a file now"),
        Call("mark", value="the end"),
    ]
    seen = left(record, "ordered")
    assert (("a", b"a file now"), ("b/in", b"new")) in seen
    assert (("a/in", b"new"),) in seen
    assert (("b/in", b"old"),) in seen


def test_all_that_was_recorded_is_what_is_there(ram: Path) -> None:
    """Also what was stored in mapped files, without a call."""
    with (
        Recorder(ram) as recorder,
        kstore.open(
            ram / "log", "a", index_interval_bytes=50, internal_segment_bytes=1000, segment_index_bytes=256
        ) as log,
    ):
        log.extend([b"%03d" % i + b"." * 50 for i in range(30)], batch_bytes=100)
        log.truncate_to(20)
        log.close()
    states = crash_states(recorder.trace, models=["strict"], randoms=0)
    *_, last = [state for state in states if state.text == "everything"]
    now = Image.of(ram)
    assert any(name.endswith(".timeindex") and content for name, content in now.files.items())
    now.files.pop("log/.lock", None)
    last.image.files.pop("log/.lock", None)
    assert last.image.files == now.files


def test_the_recorded_directory_may_be_a_link(ram: Path) -> None:
    (ram / "real").mkdir()
    (ram / "link").symlink_to("real")
    with Recorder(ram / "link") as recorder:
        kstore.open(ram / "link" / "t-0", "a").close()
    calls = [str(call) for call in recorder.trace.calls[:3]]
    assert calls == ["make_directory t-0", "syncs_directory ", "sync_directory "]


def test_a_record_ends_within_a_call_of_another_thread(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(os, "pread", slow_pread)
        beside.start()
        assert compares.wait(60)
        ending.start()
        ending.join(0.2)  # it waits; a moment is enough for one that does not
        goes_on.set()
        beside.join()
        ending.join()
    assert not errors
    assert recorder.trace.calls[-1].value == "beside"  # and no later call
