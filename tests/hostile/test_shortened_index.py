"""Another program shortens an index file that a writer has mapped. The system answers a touch of what is gone with SIGBUS."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.engine.segment.index import OffsetIndex
from tests.helpers import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no handler")

# What every child begins with. Each record is a batch of its own and has entries in both indexes.
PREFACE = """
import contextlib, faulthandler, mmap, os, signal, sys
import kstore

COUNT = 1500
INDEX, TIME_INDEX = ("00000000000000000000" + kind for kind in (".index", ".timeindex"))

def value(offset):
    return b"value %d" % offset

def opened(path):
    log = kstore.open(path, "a", index_interval_bytes=0)
    for offset in range(log.log_end_offset, COUNT):
        log.append(value(offset), timestamp=1000 + offset)
    return log

def check(records, first, last=COUNT):
    assert [(r.offset, r.value) for r in records] == [(n, value(n)) for n in range(first, last)]

def touch_what_is_gone(path):
    with open(path, "w+b") as file:
        file.truncate(8192)
        mapped = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        print("touching", flush=True)
        mapped[5000]
        print("still here", flush=True)
"""

# Each is tried on a log of its own, for each index file and each way to shorten it.
ACTIONS = {
    "append": "for n in range(COUNT, 2 * COUNT): acknowledged = log.append(value(n), timestamp=1000 + n) + 1",
    "extend": """
try:
    log.extend([value(n) for n in range(COUNT, 2 * COUNT)], batch_bytes=64)
finally:
    acknowledged = log.log_end_offset
""",
    "roll": "log.roll()",
    "flush": "log.append(value(COUNT)); acknowledged = COUNT + 1; log.flush()",
    "close": "log.close()",
    "truncate": "acknowledged = 700; log.truncate_to(700); check(log.records(0), 0, 700)",
    "truncate behind a roll": "log.roll(); acknowledged = 700; log.truncate_to(700); check(log.records(0), 0, 700)",
    "get": "for n in range(0, COUNT, 7): check([log.get(n)], n, n + 1)",
    "get downwards": "for n in range(COUNT - 1, 0, -7): check([log.get(n)], n, n + 1)",
    "find": "for n in range(0, COUNT, 7): assert log.find(timestamp=1000 + n)[:2] == (n, 1000 + n)",
    "records": "check(log.records(700), 700)",
    "read": "check(log.read(700, max_bytes=1 << 20), 700)",
    "batches": "assert [b.base_offset for b in log.batches(700)] == list(range(700, COUNT))",
    "committed": "check(log.records(700, isolation='read_committed'), 700)",
    "scan": "assert [o for b in log.scan(['offset'], start=700) for o, in b.rows()] == list(range(700, COUNT))",
    "scan by time": "assert [o for b in log.scan(['offset'], since=1700) for o, in b.rows()] == list(range(700, COUNT))",
    "scan in threads": "assert sum(len(b) for b in log.scan(['offset'], start=700, threads=2)) == COUNT - 700",
    "translate": "assert [log.segments[0].translate(n).base_offset for n in range(0, COUNT, 7)] == list(range(0, COUNT, 7))",
    "offset index": "assert again or [e.offset for e in log.segments[0].offset_index] == list(range(1, COUNT))",
    "time index": "assert again or [e.offset for e in log.segments[0].time_index] == list(range(1, COUNT))",
    "index at hand": "list(index), list(times), index.lookup(700), times.lookup(1700), index.to_bytes(), times.copy()",
    "view at hand": "assert segment.translate(700).base_offset == 700; assert segment.find_timestamp(1700)[0] == 700",
    "in a child of fork": """
pid = os.fork()
if pid == 0:
    status = 1
    try:
        index.lookup(700)
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
""",
}

TRIAL = """
# How much of the file is left. If it is made long again, what is gone reads as zeros, and there is no signal.
for name in (INDEX, TIME_INDEX):
    for keep, again in ((0, False), (4096, False), (4100, True)):
        print(name, keep, again, flush=True)
        path = f"{name}-{keep}-{again}/t-0"
        os.makedirs(path)
        opened(path).close()
        log = opened(path)
        segment = log.segments[0]
        index, times = segment.offset_index, segment.time_index
        acknowledged = COUNT
        size = os.path.getsize(f"{path}/{name}")
        os.truncate(f"{path}/{name}", keep)
        if again:
            os.truncate(f"{path}/{name}", size)
        refusal = None
        try:
            exec(sys.argv[1])
        except kstore.KstoreError as e:
            refusal = e
        if refusal is not None:
            assert isinstance(refusal, kstore.LogFailedError), refusal
            assert f"{name} was shortened by another program" in str(refusal), refusal
        with contextlib.suppress(kstore.LogFailedError):
            log.close()
        with kstore.open(path) as log:
            check(list(log.records(0))[:acknowledged], 0, acknowledged)
            for n in range(0, acknowledged, 50):
                check([log.get(n)], n, n + 1)
        with kstore.open(path, "a", index_interval_bytes=0) as log:
            check(list(log.records(0))[:acknowledged], 0, acknowledged)
            offset = log.append(b"goes on", timestamp=9000)
            assert log.get(offset).value == b"goes on"
            for segment in log.segments:
                segment.offset_index.check()
                segment.time_index.check()
"""


def child(tmp_path: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PREFACE + code, *arguments],
        cwd=tmp_path,
        env=processes.environment(
            PYTHONFAULTHANDLER="",
            # AddressSanitizer would take the signal that the process dies of, and end it in its own way.
            ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0",
        ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_a_writer_survives_it(tmp_path: Path, action: str) -> None:
    done = child(tmp_path, TRIAL, ACTIONS[action])
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


# A fault of a reader, before the writer comes by itself to what is gone.
REFUSALS = """
log = opened("t-0")
os.truncate("t-0/" + sys.argv[1], 0)
segment = log.segments[0]
assert segment.translate(700).base_offset == 700
assert segment.find_timestamp(1700)[0] == 700
for change in (
    lambda: log.append(b"x"), lambda: log.extend([b"x"]), log.roll, lambda: log.truncate_to(3), lambda: log.flush(),
    lambda: log.delete_records(3),
):
    try:
        change()
    except kstore.LogFailedError as e:
        assert f"{sys.argv[1]} was shortened by another program" in str(e), e
    else:
        raise AssertionError(change)
check(log.records(0), 0)
check([log.get(n) for n in range(COUNT)], 0)
log.close()
with kstore.open("t-0") as log:
    assert not log.recovery.clean
    check(log.records(0), 0)
with kstore.open("t-0", "a", index_interval_bytes=0) as log:
    assert log.append(b"goes on") == COUNT
"""


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
def test_what_a_reader_found_makes_every_change_refuse(tmp_path: Path, name: str) -> None:
    done = child(tmp_path, REFUSALS, name)
    assert done.returncode == 0, done.stderr


def test_the_index_of_a_segment_that_was_sealed_is_no_reason_to_refuse(tmp_path: Path) -> None:
    code = """
log = opened("t-0")
segment = log.segments[0]
log.roll()
for name in (INDEX, TIME_INDEX):
    os.truncate("t-0/" + name, 4096)
assert segment.translate(1200).base_offset == 1200
assert segment.find_timestamp(2200)[0] == 1200
check([log.get(1200)], 1200, 1201)
assert log.append(value(COUNT)) == COUNT
log.close()
with kstore.open("t-0") as log:
    assert log.recovery.clean
    check(log.records(0), 0, COUNT + 1)
"""
    done = child(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_threads_that_read_meanwhile_find_right_records(tmp_path: Path) -> None:
    code = """
import threading

def read(log, failures, step):
    try:
        for n in range(0, COUNT, step):
            check([log.get(n)], n, n + 1)
            assert log.find(timestamp=1000 + n).offset == n
            records = list(log.read(n, max_bytes=500, whole_batches=True))
            check(records, n, n + len(records))
            assert records
    except Exception as e:
        failures.append(e)

for attempt in range(6):
    log = opened(f"t-{attempt}")
    failures = []
    threads = [threading.Thread(target=read, args=(log, failures, step)) for step in (7, 11, 13)]
    for thread in threads:
        thread.start()
    for name in (INDEX, TIME_INDEX):
        os.truncate(f"{log.path}/{name}", 4096 * (attempt % 3))
    with contextlib.suppress(kstore.LogFailedError):
        for n in range(COUNT, 2 * COUNT):
            log.append(value(n), timestamp=1000 + n)
    for thread in threads:
        thread.join()
    assert not failures, failures
    check(log.records(0), 0, log.log_end_offset)
    with contextlib.suppress(kstore.LogFailedError):
        log.close()
"""
    done = child(tmp_path, code)
    assert done.returncode == 0, done.stderr


# Who else wants to know of SIGBUS, and when: before the first writer, between it and the next, behind both.
@pytest.mark.parametrize("at", [0, 1, 2])
def test_faulthandler_does_not_end_a_writer_and_still_tells_of_others(tmp_path: Path, at: int) -> None:
    steps = ["log = opened('t-0')", "other = opened('t-1')"]
    steps.insert(at, "faulthandler.enable()")
    code = "\n".join(
        [
            *steps,
            "for each in (log, other):",
            "    index = each.segments[0].offset_index",
            "    for name in (INDEX, TIME_INDEX):",
            "        os.truncate(f'{each.path}/{name}', 0)",
            "    each.segments[0].offset_index  # the length of the file tells, so nothing is touched",
            "    index.lookup(700)",
            "    check([each.get(700)], 700, 701)",
            "    assert each.find(timestamp=1800).offset == 800",
            "    each.close()",
            "if len(sys.argv) > 1:",
            "    faulthandler.enable()",
            "    touch_what_is_gone('another')",
        ]
    )
    done = child(tmp_path, code)
    assert done.returncode == 0, done.stderr
    for path in ("t-0", "t-1"):
        for file in (tmp_path / path).iterdir():
            file.unlink()
        (tmp_path / path).rmdir()
    done = child(tmp_path, code, "and others")
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert "Fatal Python error: Bus error" in done.stderr
    assert done.stdout == "touching\n"


@pytest.mark.parametrize("ready", ["pass", "faulthandler.enable()"])
@pytest.mark.parametrize(
    "fault",
    [
        "touch_what_is_gone('another')",
        "os.kill(os.getpid(), signal.SIGBUS)",
        "signal.raise_signal(signal.SIGBUS)",
    ],
)
def test_a_signal_for_anything_else_ends_the_process_as_before(
    tmp_path: Path, ready: str, fault: str
) -> None:
    for code in (
        f"{ready}; log = opened('t-0')",
        f"log = opened('t-1'); {ready}; log.roll(); other = opened('t-2')",
    ):
        done = child(tmp_path, f"{code}\n{fault}\nprint('still here')")
        # faulthandler itself may fall when it looks at the frames of other threads, which run on.
        ends = {-signal.SIGBUS} if ready == "pass" else {-signal.SIGBUS, -signal.SIGSEGV}
        assert done.returncode in ends, done.stderr
        assert "still here" not in done.stdout
        assert ("Bus error" in done.stderr) == (ready != "pass")


def test_a_handler_of_the_program_gets_what_is_not_ours(tmp_path: Path) -> None:
    code = """
seen = []
signal.signal(signal.SIGBUS, lambda *_: seen.append(1))
log = opened("t-0")
os.kill(os.getpid(), signal.SIGBUS)
assert seen == [1]
signal.signal(signal.SIGBUS, lambda *_: seen.append(2))
log.roll()
for n in range(COUNT, COUNT + 3):
    log.append(value(n))
os.kill(os.getpid(), signal.SIGBUS)
assert seen == [1, 2]
os.truncate(f"t-0/{COUNT:020}.index", 0)
assert log.get(COUNT + 2).value == value(COUNT + 2)
log.close()
signal.signal(signal.SIGBUS, signal.SIG_IGN)
with opened("t-1"):
    os.kill(os.getpid(), signal.SIGBUS)
assert seen == [1, 2]
"""
    done = child(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_an_entry_of_zeros_is_no_upper_bound() -> None:
    index = OffsetIndex(0, struct.pack(">iiii", 10, 100, 0, 0))
    assert index.fetch_upper_bound(0, 100) is None  # of (10, 100), exactly there, Kafka takes the next
