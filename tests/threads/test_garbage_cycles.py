"""Logs, views and readers that only the collector frees: it empties objects before it frees them, in any order."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import environment

BEGIN = """
import gc, os, sys
import kstore

CONFIG = kstore.LogConfig(index_interval_bytes=1)
root = sys.argv[1]


def fill(log):
    for n in range(100):
        log.append(b"%d" % n, headers={"name": b"value"})
    return log


def use_memory():
    assert [bytes(size) for size in range(1, 3000, 7)]

"""
FAILED_APPEND = """
def fail(i):
    log = fill(kstore.open(f"{root}/t-{i}", "a", config=CONFIG))
    segment = log.active.view()[0]
    offsets, times = segment.offset_index, segment.time_index
    del segment
    gc.collect()  # what C code refers to comes behind what this frame refers to
    try:
        log.append("not bytes")
    except TypeError as e:
        kept = e  # exception, traceback, frame, exception
    if i % 2:
        log.itself = kept


for i in range(10):
    fail(i)
gc.collect()
use_memory()
log = kstore.open(f"{root}/t-3", "a", config=CONFIG)
print(log.log_end_offset)
"""
VIEWS_IN_A_CYCLE = """
log = fill(kstore.open(f"{root}/t-0", "a", config=CONFIG))
for n in range(20):
    segment = log.active.view()[0]
    cycle = {"offsets": segment.offset_index, "times": segment.time_index, "entries": iter(segment.offset_index)}
    del segment
    next(cycle["entries"], None)
    cycle["itself"] = cycle
    log.append(b"another")  # or the log would keep this view
    del cycle
    if n == 10:
        before = log.active.view()[0].offset_index
        log.roll()
gc.collect()
use_memory()
print(log.log_end_offset, len(before), before.entry(len(before) - 1).offset)
"""
VIEWS_OUTLIVE_THE_WRITER = """
log = fill(kstore.open(f"{root}/t-0", "a", config=CONFIG))
segment = log.active.view()[0]
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
log = kstore.open(f"{root}/t-0", "a", config=CONFIG)
log.itself = log
log.extend([b"%d" % n for n in range(30)], headers=[{"name": b"%d" % n} for n in range(30)], batch_bytes=200)
views = []
for n in range(30, 40):
    log.append(b"%d" % n, headers={"name": b"%d" % n})
    views.append([log.active.view()[0].offset_index])
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
    log = fill(Writer(f"{root}/{name}", CONFIG))
    log.itself = log


drop("t-0")
gc.collect()
use_memory()
(log,) = back
back.clear()
assert log.append(b"alive") == 100
assert len(list(log)) == 101
last = {"log": log, "views": (log.active.view()[0].offset_index, log.active.view()[0].time_index)}
last["itself"] = last
log.close()
del log, last
gc.collect()  # __del__ does not run again
use_memory()
with kstore.open(f"{root}/t-0", "a") as log:
    print(log.log_end_offset, back)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (FAILED_APPEND, "100"),
        (VIEWS_IN_A_CYCLE, "120 110 110"),
        (VIEWS_OUTLIVE_THE_WRITER, "100 100 100"),
        (ALWAYS, "40 True"),
        (COMES_BACK, "101 []"),
    ],
    ids=["failed append", "views in a cycle", "views outlive the writer", "always collecting", "comes back"],
)
def test_collector_may_come_whenever_it_likes(tmp_path: Path, what: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", BEGIN + what, str(tmp_path)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (said, "")
