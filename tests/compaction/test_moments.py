"""Readers in the midst of a compaction: whatever moment they meet, they read on, or are told the truth."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.segment.segment import Segment
from kstore.log import writer
from kstore.log.recovery import refresh
from kstore.log.write import deleted_segments
from tests.helpers.processes import environment

OPTIONS = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0,
    "internal_segment_bytes": 400,
    "segment_index_bytes": 800,
}


def fill(log: kstore.LogWriter, *keys: bytes) -> None:
    for key in keys:
        log.append(b"." * 50, key=key)
    log.roll()


TELLS_OF_OPENS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
typedef int opener(const char *, int, ...);
static void (*told)(const char *);
void tell_of_opens(void (*whom)(const char *)) { told = whom; }
static int tells(const char *name, const char *path, int flags, int mode)
{
    if (told && !(flags & (O_RDWR | O_CREAT | O_DIRECTORY)))
        told(path);
    return ((opener *)dlsym(RTLD_NEXT, name))(path, flags, mode);
}
#define OPENER(name) \\
    int name(const char *path, int flags, ...) \\
    { \\
        va_list rest; \\
        va_start(rest, flags); \\
        int mode = va_arg(rest, int); \\
        va_end(rest); \\
        return tells(#name, path, flags, mode); \\
    }
OPENER(open)
OPENER(open64)
"""
BETWEEN_TWO_LOOKS = """
import ctypes, sys
import kstore

KEYS = [b"%d" % i for i in range(5)]
log = kstore.open(sys.argv[2], "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0)
with log:
    def fill():
        for key in KEYS:
            log.append(b"of offset %d" % log.log_end_offset, key=key)
        log.roll()

    def compact(path):
        global armed
        if armed and path.endswith(b"/%020d.log" % 0):  # it is about to be opened by this name
            armed = False
            for _ in range(2):
                fill()
                assert log.compact().records_removed

    armed = False
    callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(compact)
    ctypes.CDLL(sys.argv[1]).tell_of_opens(callback)
    calls = {
        "get": lambda: [log.get(0).key, *KEYS[1:]],
        "records": lambda: [r.key for r in log.records()],
        "committed": lambda: [r.key for r in log.records(isolation="read_committed")],
        "batches": lambda: [r.key for b in log.batches() for r in b],
        "scan": lambda: [key for b in log.scan(["key"]) for (key,) in b.rows()],
        "threads": lambda: [key for b in log.scan(["key"], threads=2) for (key,) in b.rows()],
        "read": lambda: [r.key for r in log.read(log.segments[0].base_offset)],
        "find": lambda: [log.get(log.find(timestamp=0).offset).key, *KEYS[1:]],
        "last": lambda: [log.last(key).key for key in KEYS],
        "history": lambda: [r.key for key in KEYS for r in log.history(key)],
        "follow": lambda: [r.key for r in log.follow(0, timeout=0)],
        "cursor": lambda: [r.key for r in log.cursor("g")],
    }
    for name, call in calls.items():
        fill()
        log.compact()
        kstore.limit_open_files(0)  # whoever reads has to open the file
        kstore.limit_open_files(None)
        armed = True
        try:
            found = call()
        except kstore.LogChangedError as e:
            found = e
        armed = False
        if not isinstance(found, list) or {*found} != {*KEYS}:
            print(name, found)
print("done")
"""


def test_two_compactions_between_two_looks_of_a_reader(tmp_path: Path) -> None:
    """A reader of the writer opens a file by its name, and then by the name that it has once it was replaced. If it is
    replaced by one compaction before the first look, and by another before the second, the reader has it all the same."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "opens.c", tmp_path / "opens.so"
    source.write_text(TELLS_OF_OPENS)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", BETWEEN_TWO_LOOKS, library, tmp_path / "t-0"],
        env=environment(LD_PRELOAD=str(library)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout + done.stderr == "done\n"


# ---- another reader -------------------------------------------------------------------------------------------------


class Before:
    """Does something once, before the first rename of a module of which the old name has this end."""

    def __init__(self, patch: pytest.MonkeyPatch, module: Any, end: str, deed: Callable[[], object]) -> None:
        self.end, self.deed, self.done = end, deed, False
        self.rename = module.rename
        patch.setattr(module, "rename", self)

    def __call__(self, path: str, new: str) -> None:
        if path.endswith(self.end) and not self.done:
            self.done = True
            self.deed()
        self.rename(path, new)


def test_a_reader_waits_for_names_that_are_about_to_come(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(30)

    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        for _ in range(2):
            fill(log, b"1", b"2", b"3")
        Before(monkeypatch, writer, ".log.swap", hold)
        compacting = threading.Thread(target=log.compact)

        def wait(_: float) -> None:
            go_on.set()
            compacting.join()

        monkeypatch.setattr(refresh, "sleep", wait)
        compacting.start()
        assert reached.wait(30)
        reader = kstore.open(ram / "t-0")
        go_on.set()
        compacting.join()
        assert not [s.path for s in reader.segments if not s.path.endswith(".log")]
        assert list(reader) == list(log)


def test_a_name_that_stays_is_taken(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who is not at it for long is not waited for at all: a compaction that was broken off has left it."""
    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        fill(log, b"1", b"2")
        expected = list(log)
    for path in (ram / "t-0").glob(f"{0:020}.*"):
        path.rename(f"{path}.swap")
    assert list(kstore.open(ram / "t-0")) == expected
    os.utime(ram / "t-0", (0, 0))
    monkeypatch.setattr(refresh, "sleep", None)
    reader = kstore.open(ram / "t-0")
    assert list(reader) == expected
    assert not reader.refresh() or list(reader) == expected


@pytest.mark.parametrize("when", ["before the names are final", "after the compaction"])
def test_an_old_segment_behind_the_new_one_is_set_aside(
    ram: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The new one ends before it, so it is no sign of a truncation that it goes while the new one stays."""
    seen: list[list[bytes | None]] = []
    readers: list[kstore.PartitionLog] = []

    def read() -> None:
        seen.append([r.key for r in readers[0]])

    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        fill(log, b"1", b"5")
        fill(log, b"5")
        fill(log, b"5", b"4", b"6")
        assert len(log.segments) == 4
        Before(monkeypatch, deleted_segments, ".log", lambda: readers.append(kstore.open(ram / "t-0")))
        if when.startswith("before"):
            Before(monkeypatch, writer, ".log.swap", read)
        log.compact()
        assert len(log.segments) == 3
        read()
        assert [r.key for r in readers[0].records()] == seen[-1]
    for keys in seen:
        assert keys == [b"1", b"5", b"5", b"4", b"6"]  # the old one's, too, as an opening found it


def test_what_is_gone_is_called_by_its_final_name(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[kstore.PartitionLog] = []
    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        for _ in range(2):
            fill(log, b"1", b"2", b"3")
        Before(monkeypatch, writer, ".log.swap", lambda: readers.append(kstore.open(ram / "t-0")))
        log.compact()
        path = f"{ram}/t-0/{0:020}.log"
        assert readers[0].segments[0].path == path + ".swap"
        kstore.limit_open_files(0)
        kstore.limit_open_files(None)
        for _ in range(2):
            fill(log, b"1", b"2", b"3")
            log.compact()
        with pytest.raises(kstore.LogChangedError, match=f"^{path}: another file has its name now"):
            list(readers[0])
        assert readers[0].refresh()
        assert list(readers[0]) == list(log)


def test_indexes_that_are_gone_while_the_log_is_open(ram: Path) -> None:
    """They are made anew."""
    with kstore.open(ram / "t-0", "a", **OPTIONS, file_delete_delay_ms=0) as log:
        fill(log, b"1")
        fill(log, b"1", b"2")
    with kstore.open(ram / "t-0", "a") as log:
        reader = kstore.open(ram / "t-0")
        held = reader.segments[1].file()
        assert log.compact().records_removed
        assert [s.base_offset for s in log.segments] == [0, 3]
        assert held.size()
        assert reader.get(2).key == b"2"
        assert [r.offset for r in reader.records(2)] == [2]


# ---- aborted transactions -------------------------------------------------------------------------------------------


def abort(log: kstore.LogWriter, key: bytes, sequence: int) -> None:
    of_producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log.append_batches(
        kstore.encode_batch([(log.clock_ms(), key, b"aborted", ())], base_sequence=sequence, **of_producer)
    )
    marker = (log.clock_ms(), bytes(4), bytes(6), ())
    log.append_batches(
        kstore.encode_batch([marker], control=True, **of_producer),
        origin="coordinator",
        transaction_version=0,
    )


def test_an_index_of_transactions_that_the_next_compaction_removes(
    ram: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes before the .log that was replaced: who finds that one does not take it for free of aborted ones."""
    with kstore.open(ram / "t-0", "a", **OPTIONS | {"internal_segment_bytes": 1000}) as log:
        for key in (b"1", b"2", b"1"):
            log.append(key, key=key)
        abort(log, b"3", 0)
        log.roll()

        def another() -> Segment:  # as a refresh makes it, which has not looked at its indexes
            segment = Segment(log.path, f"{0:020}", 0, log.segments[0].end_offset)
            segment.remember_file()
            return segment

        early, late = another(), another()
        log.compact()
        assert len(early.transaction_index) == 1
        fill(log, b"1", b"2")

        def look() -> None:
            with pytest.raises(kstore.LogChangedError):
                _ = late.transaction_index

        once = Before(monkeypatch, deleted_segments, f"{0:020}.log", look)
        log.compact()
        assert once.done
        assert len(early.transaction_index) == 1
