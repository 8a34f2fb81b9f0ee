"""Four threads write, six processes read for two groups, members are killed, old segments go: nobody misses a
record.

EFFORT=75 make nightly ARGS=tests/cursors/test_soak.py   for ten minutes.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import times
from tests.helpers.processes import environment

SECONDS = times(8)
GROUPS = ("billing", "mailer")
MEMBERS = 3  # of each
PARTITIONS = 6
ROOM = 40  # descriptors, and maps, that a process may have more than it had after its beginning

# It notes which offsets it was given before it commits them; how many descriptors and maps it has, and how
# many segments there are; and that it has left.
MEMBER = r"""
import glob, os, random, sys, threading, zlib
import kstore
import numpy  # as columns do when they are first used: it has many maps

path, group, out = sys.argv[1:]
notes = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
cursor = kstore.LogStore(path).cursor(group, ["t"], follow=True, timeout=0.2)
threading.Thread(target=lambda: (sys.stdin.read(), cursor.close()), daemon=True).start()
given, chance, commits = {}, random.Random(out), 0

def count_maps():
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)

def note(*words):
    os.write(notes, (" ".join(map(str, words)) + "\n").encode())

def commit():
    global commits
    for partition, (first, end) in given.items():
        note("given", partition, first, end)
    given.clear()
    try:
        cursor.commit(durable=chance.random() < 0.02)
    except kstore.CursorLockedError as e:
        note("lost", e)
    commits += 1
    if commits % 50 == 1:
        segments = len(glob.glob("t-*/*.log", root_dir=path))
        note("open", len(os.listdir("/proc/self/fd")), count_maps(), segments)

def take(partition, offset, value):
    text, _, check = value.rpartition(b" ")
    if zlib.crc32(text) != int(check):
        note("wrong", partition, offset)
    first, end = given.get(partition, (offset, offset))
    if end != offset:  # as after a rebalance
        note("given", partition, first, end)
        first = offset
    given[partition] = first, offset + 1

def read():
    if chance.random() < 0.3:
        for topic, partition, batch in cursor.scan(["offset", "value"], batch_rows=500):
            for offset, value in batch.rows():
                take(partition, offset, value)
            commit()
        return
    for count, (topic, partition, record) in enumerate(cursor, 1):
        take(partition, record.offset, record.value)
        if count % 300 == 0 or chance.random() < 0.01:
            commit()

try:
    while not cursor.is_closed:
        read()
        commit()
except kstore.LogClosedError:
    pass
note("left")
"""


class Members:
    """The processes that read, and what they note."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.alive: list[tuple[str, subprocess.Popen[str]]] = []

    def start(self, group: str) -> None:
        self.count += 1
        out = self.path.parent / f"{group}.{self.count}.notes"
        child = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", MEMBER, self.path, group, out],
            stdin=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        self.alive.append((group, child))

    def end(self, at: int, *, kill: bool) -> str:
        group, child = self.alive.pop(at)
        if kill:
            child.kill()
        assert child.stdin is not None
        child.stdin.close()
        status = child.wait(60)
        assert status == (-signal.SIGKILL if kill else 0)
        return group

    def notes(self, group: str) -> Iterator[tuple[str, list[list[str]]]]:
        for file in self.path.parent.glob(f"{group}.*.notes"):
            lines = file.read_text().split("\n")
            yield file.name, [line.split() for line in lines[:-1]]


def open_now() -> tuple[int, int]:
    """How many descriptors and maps this process has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("\n")  # noqa: PTH208


def positions(path: Path) -> dict[tuple[str, Any], int]:
    found = kstore.LogStore(path).cursors()
    return {
        (group, tp): position.offset for group, theirs in found.items() for tp, position in theirs.items()
    }


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 240)
def test_soak(tmp_path: Path) -> None:
    path = tmp_path / "data"
    chance = random.Random(7)
    store = kstore.LogStore(
        path,
        mode="a",
        keep_for=GROUPS,
        retention_ms=-1,
        retention_bytes=200_000,
        internal_segment_bytes=100_000,
        file_delete_delay_ms=100,
        log_retention_check_interval_ms=300,
    )
    store.create_topic("t", PARTITIONS)
    members = Members(path)
    for _ in range(MEMBERS):  # before there is a record, so that retention knows the groups
        for group in GROUPS:
            members.start(group)
    over = threading.Event()
    errors: list[BaseException] = []
    written = [0] * 4

    def write(number: int) -> None:
        own = random.Random(number)
        try:
            while not over.is_set():
                count = own.randrange(1, 200)
                texts = [
                    b"%d %d " % (number, written[number] + i) + b"." * own.randrange(100)
                    for i in range(count)
                ]
                values = [text + b" %d" % zlib.crc32(text) for text in texts]
                if own.random() < 0.3:
                    store.extend("t", values, [b"%d" % own.randrange(1000) for _ in values])
                else:
                    store.extend("t", values)
                written[number] += count
                time.sleep(0.02)
        except BaseException as e:  # noqa: BLE001 - the test tells of it
            errors.append(e)

    def watch() -> None:
        last: dict[tuple[str, Any], int] = {}
        try:
            while not done.is_set():
                now = positions(path)
                back = {key: (last[key], at) for key, at in now.items() if at < last.get(key, 0)}
                assert back == {}
                assert last.keys() <= now.keys()
                last = now
                time.sleep(0.02)
        except BaseException as e:  # noqa: BLE001
            errors.append(e)

    done = threading.Event()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    watcher = threading.Thread(target=watch)
    for thread in (*writers, watcher):
        thread.start()
    end = time.monotonic() + SECONDS
    early: tuple[int, int] | None = None
    killed = 0
    try:
        while (time.monotonic() < end or killed <= SECONDS / 4) and not errors:
            time.sleep(chance.uniform(0.2, 1.0))
            if early is None and time.monotonic() > end - 0.75 * SECONDS:
                early = open_now()
            kill = chance.random() < 0.7
            killed += kill
            members.start(members.end(chance.randrange(len(members.alive)), kill=kill))
        over.set()
        for thread in writers:
            thread.join()
        late, segments = open_now(), len(list(path.glob("t-*/*.log")))
        wanted = {(g, tp): store.log(*tp).log_end_offset for g in GROUPS for tp in store}
        until = time.monotonic() + 120
        while positions(path) != wanted and time.monotonic() < until and not errors:
            time.sleep(0.1)
        assert positions(path) == wanted
    finally:
        over.set()
        done.set()
        watcher.join()
        while members.alive:
            members.end(0, kill=False)
    assert errors == []
    assert killed > SECONDS / 4
    assert sum(end for (group, _), end in wanted.items() if group == "mailer") == sum(written)
    for group in GROUPS:
        given: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
        left = 0
        for name, notes in members.notes(group):
            assert not [note for note in notes if note[0] == "wrong"], name
            for kind, *words in notes:
                if kind == "given":
                    partition, first, behind = map(int, words)
                    given[partition].append((first, behind))
                left += kind == "left"
            opened = [tuple(map(int, words)) for kind, *words in notes if kind == "open"]
            most = max((segments for *_, segments in opened), default=0)
            for later in opened[2:]:
                assert later[0] <= opened[1][0] + ROOM + most, (name, opened)
                assert later[1] <= opened[1][1] + ROOM, (name, opened)
        assert left >= MEMBERS
        for number, ranges in given.items():
            reached = 0
            for first, behind in sorted(ranges):
                assert first <= reached, f"{group} was not given offset {reached} of partition {number}"
                reached = max(reached, behind)
            assert reached == wanted[group, kstore.TopicPartition("t", number)]
    deleted = sum(store.log(*tp).log_start_offset for tp in store)
    assert deleted > 0
    if early is not None:
        assert late[0] <= early[0] + ROOM + segments
        assert late[1] <= early[1] + 2 * ROOM  # stacks of threads, and memory for what is read
    assert store.health().ok
    store.close()
