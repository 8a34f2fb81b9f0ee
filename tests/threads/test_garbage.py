"""The garbage collector runs in any thread at any moment, and empties objects in any order."""

from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python

BEGIN = """
import gc, os, sys, threading, time, weakref
import kstore

OPTIONS = {"index_interval_bytes": 1}
root = sys.argv[1]


def fill(log):
    for n in range(100):
        log.append(b"%d" % n, headers={"name": b"value"})
    return log


def use_memory():
    assert [bytes(size) for size in range(1, 3000, 7)]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
"""
VIEWS_OUTLIVE_THE_WRITER = """
log = fill(kstore.open(f"{root}/t-0", "a", **OPTIONS))
segment = log.segments[-1]
offsets, times, records, batches = segment.offset_index, segment.time_index, iter(log.records()), iter(log.batches())
columns = iter(log.scan(columns=("offset", "value")))
entries = iter(offsets)
expected = offsets.to_bytes(), times.to_bytes(), len(list(offsets))
next(entries), next(records), next(batches)
log.itself = log
gc.collect()
del log, segment
gc.collect()
use_memory()
for name in os.listdir(f"{root}/t-0"):
    os.unlink(f"{root}/t-0/{name}")
assert (offsets.to_bytes(), times.to_bytes(), 1 + len(list(entries))) == expected
assert offsets.lookup(50)[0] <= 50
for made in (records, batches, columns):
    made = [made]
    made.append(made)
del made
print(sum(1 for _ in records) + 1, sum(1 for _ in batches) + 1, sum(len(each) for each in columns))
last = {"views": (offsets, times, entries)}
last["itself"] = last
del offsets, times, entries, last
gc.collect()
use_memory()
"""
ALWAYS = """
gc.freeze()
gc.set_threshold(1, 1, 1)
log = kstore.open(f"{root}/t-0", "a", **OPTIONS)
log.itself = log
log.extend([b"%d" % n for n in range(30)], headers=[{"name": b"%d" % n} for n in range(30)], batch_bytes=200)
views = []
for n in range(30, 40):
    log.append(b"%d" % n, headers={"name": b"%d" % n})
    views.append([log.segments[-1].offset_index])
    views[-1].append(views[-1])
    if n % 5 == 0:
        log.roll()
        views.clear()
records = list(log)
assert [(r.offset, r.value, r.headers) for r in records] == [(n, b"%d" % n, (("name", b"%d" % n),)) for n in range(40)]
for views_of in (False, True):
    rows = [row for batch in log.scan(columns=("offset", "value", "headers"), views=views_of) for row in batch.rows()]
    assert rows == [(r.offset, r.value, r.headers) for r in records], rows
assert [r for batch in log.batches() for r in batch] == records
log.close()
again = kstore.open(f"{root}/t-0", "a")
print(again.log_end_offset, log.itself is log)
again.close()
"""
COMES_BACK = """
back = []


class Writer(kstore.LogWriter):
    def __del__(self):
        back.append(self)


def drop(name):
    log = fill(Writer(f"{root}/{name}", kstore.LogConfig(**OPTIONS)))
    log.itself = log


drop("t-0")
gc.collect()
use_memory()
(log,) = back
back.clear()
assert log.append(b"alive") == 100
assert len(list(log)) == 101
segment = log.segments[-1]
last = {"log": log, "views": (segment.offset_index, segment.time_index)}
last["itself"] = last
log.close()
del log, last, segment
gc.collect()  # __del__ does not run again
use_memory()
with kstore.open(f"{root}/t-0", "a") as log:
    print(log.log_end_offset, back)
"""
# What is dropped is found by a collection in any thread, at any call, in the threads that go with it, too.
THREADS = """
gc.disable()
collecting, main = False, threading.get_ident()


def collect(frame, event, _):
    if collecting and threading.get_ident() != main:
        gc.collect(1)


threading.settrace(collect)
for turn in range(5):
    collecting = False
    log = kstore.open(f"{root}/t-{turn}", "a")
    appender = log.appender(linger_ms=200)
    log.extend([b"." * 1000] * 9_000)
    rows = iter(log.scan(threads=2, batch_rows=10))
    next(rows)
    dropped = weakref.ref(appender)
    box = [log, appender, rows]
    box.append(box)  # only the collector will find it
    appender.append(b"x")
    log.roll()
    del appender, log, rows, box
    collecting = True
    until(lambda: threading.active_count() == 1 or dropped() is None or gc.collect() < 0)
    gc.collect()
    until(lambda: threading.active_count() == 1)
print("ended")
"""
# A log that is garbage gives up its lock at any call within another's opening.
LOCKS = """
gc.freeze()
forgotten = []


def forget(name):
    log = kstore.open(f"{root}/{name}", "a", flush_ms=60_000)
    log.append(b"x")
    log.itself = log  # only the collector will find it
    forgotten.append(weakref.ref(log))


def open_and_collect(nth):
    calls = 0

    def seen(frame, event, _):
        nonlocal calls
        calls += event == "call"
        if event == "call" and calls == nth:
            until(lambda: gc.collect() >= 0 and not any(ref() for ref in forgotten))  # their threads hold them for an instant

    sys.setprofile(seen)
    with kstore.open(f"{root}/v-0", "a"):
        sys.setprofile(None)
        assert nth == 0 or calls < nth or not any(ref() for ref in forgotten)
        until(lambda: gc.collect() >= 0 and not any(ref() for ref in forgotten))
        for name in "t-0", "u-0":
            kstore.open(f"{root}/{name}", "a").close()
    return calls


gc.disable()
open_and_collect(0)
calls = open_and_collect(0)
assert calls > 50
for nth in range(1, calls, calls // 12):
    forget("t-0")
    forget("u-0")
    open_and_collect(nth)
print("opened")
"""
# A warning counts the lost records: those that could not be appended within the linger.
COUNTS = """
import warnings

told = []
warnings.showwarning = lambda message, category, *place: told.append(f"{category.__name__}: {message}")
warnings.simplefilter("always")


def told_of(name, gathered):
    failed = threading.Event()

    def clock():
        if threading.current_thread() is not threading.main_thread():
            failed.set()
            raise ZeroDivisionError
        return 1_700_000_000_000

    log = kstore.open(f"{root}/{name}", "a", clock=clock)
    log.append(b"kept")
    out = log.appender(linger_ms=1)
    if gathered:
        out.append(b"gathered")
        assert failed.wait(60)
    dropped = weakref.ref(log)
    del log, out
    until(lambda: gc.collect() >= 0 and dropped() is None)  # its thread holds it for an instant
    with kstore.open(f"{root}/{name}", "a") as again:  # it holds no lock any more
        assert [record.value for record in again] == [b"kept"]
    return told.pop().replace(root, "")


gc.disable()
print(told_of("t-0", 0), told_of("u-0", 1), told, sep="\\n")
"""
WARNED = "ResourceWarning: /{} was open for writing and never closed: the next opening must recover{}"
TOLD = (
    WARNED.format("t-0", ""),
    WARNED.format("u-0", ", and 1 records that its appenders had gathered are lost"),
    "[]",
)
PROGRAMS = {
    "views outlive the writer": (VIEWS_OUTLIVE_THE_WRITER, "100 100 100"),
    "always collecting": (ALWAYS, "40 True"),
    "a log comes back": (COMES_BACK, "101 []"),
    "lost records are counted": (COUNTS, "\n".join(TOLD)),
    "threads end": (THREADS, "ended"),
    "locks are given up": (LOCKS, "opened"),
    "a lock is given up": ('open(f"{root}/meta.properties", "w").close()' + LOCKS, "opened"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_collector_may_run_at_any_moment(tmp_path: Path, name: str) -> None:
    program, said = PROGRAMS[name]
    options = ["-W", "ignore", "-X", "faulthandler"]
    done = run_python(BEGIN + program, tmp_path, options=options)
    assert (done.stdout.strip(), done.stderr) == (said, "")


def test_a_log_beside_one_that_is_garbage(tmp_path: Path) -> None:
    """In one log directory: it is not closed cleanly, since one of them was never closed."""
    (tmp_path / "meta.properties").touch()
    kept = kstore.open(tmp_path / "t-1", "a")
    kstore.open(tmp_path / "t-0", "a").append(b"x")
    kept.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert not log.recovery.clean
        assert [record.value for record in log] == [b"x"]
