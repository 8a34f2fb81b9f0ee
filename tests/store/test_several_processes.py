"""Several processes write one store (`shared=True`), and some of them are killed or stopped."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstore import LogLockedError, LogNotFoundError, LogStore
from kstore.testing import failing
from tests.helpers.effort import some, times
from tests.helpers.processes import Program, environment
from tests.helpers.store_clock import StoreClock

OPENED = """
import sys, kstore
store = kstore.LogStore(sys.argv[1], mode="a", shared=True)
print("open", flush=True)
for line in sys.stdin:
    try:
        found = eval(line)
    except kstore.KstoreError as e:
        found = type(e).__name__
    print(repr(found), flush=True)
store.close()
"""
# Appends, makes topics and partitions, commits and reads by chance; what was acknowledged is in a file.
LIFE = """
import json, random, sys, kstore
path, seed, me = sys.argv[1:]
chance = random.Random(int(seed))
acknowledged = open(f"{path}.{me}", "a", buffering=1)
for life in range(2):
    durability = chance.choice(["none", "group"])
    with kstore.LogStore(path, mode="a", shared=True, internal_segment_bytes=20_000, durability=durability) as store:
        for i in range(40):
            does = chance.choice(["append"] * 6 + ["extend", "create", "partition", "commit", "read", "flush"])
            topics = list(store.topics)
            topic = chance.choice(topics) if topics else ""
            value = f"{me}-{seed}-{life}-{i}"
            if does == "create" or not topics:
                try:
                    store.create_topic(f"t{chance.randrange(4)}", chance.randint(1, 3))
                except ValueError:  # another process was faster
                    pass
            elif does == "append":
                placed = store.append(topic, value.encode(), key=value.encode())
                acknowledged.write(json.dumps([topic, *placed, value]) + "\\n")
            elif does == "extend":
                values = [f"{value}-{n}" for n in range(chance.randint(1, 40))]
                store.extend(topic, [each.encode() for each in values])
                acknowledged.writelines(json.dumps([topic, None, None, each]) + "\\n" for each in values)
            elif does == "partition" and len(store.topics[topic]) < 5:
                try:
                    store.add_partitions(topic, len(store.topics[topic]) + 1)
                except ValueError:
                    pass
            elif does == "commit":
                with store.cursor(me, [topic]) as cursor:
                    for _ in zip(range(9), cursor):
                        pass
                    cursor.commit()
            elif does == "flush":
                store.log(topic, 0).flush()
            else:
                for tp in store:
                    log = store.log(*tp)
                    end = log.log_end_offset
                    assert not end or log.get(end - 1).offset == end - 1
"""


def members(path: Path, seed: int, count: int) -> Iterator["subprocess.Popen[str]"]:
    for me in range(count):
        command = [sys.executable, "-P", "-c", LIFE, str(path), str(100 * seed + me), str(me)]
        yield subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def live(path: Path, seed: int) -> list[tuple[str, int | None, int | None, str]]:
    """Lives of four processes, of which some are killed and others stopped; what they were told was appended."""
    chance, killed = random.Random(seed), set()
    started = list(members(path, seed, 4))
    while living := [each for each in started if each.poll() is None]:
        time.sleep(chance.random() * 0.1)
        victim, dice = chance.choice(living), chance.random()
        if dice < 0.03:
            victim.kill()
            killed.add(victim.pid)
        elif dice < 0.2:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(chance.random() * 0.02)
            victim.send_signal(signal.SIGCONT)
    for each in started:
        _, error = each.communicate()
        assert each.pid in killed or not error, error
    lines = [line for me in range(4) for line in _lines(Path(f"{path}.{me}"))]
    return [tuple(json.loads(line)) for line in lines]


def _lines(path: Path) -> list[str]:
    """The whole lines of a file: a process that is killed leaves a part of one."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


@pytest.mark.parametrize("seed", range(times(2)))
def test_each_acknowledged_record_is_there_once(ram: Path, seed: int) -> None:
    acknowledged = live(ram / "store", seed)
    with LogStore(ram / "store", mode="a") as store:
        assert store.health().ok
        found = {}
        for tp in store:
            log = store.log(*tp)
            records = [(record.offset, (record.value or b"").decode()) for record in log]
            assert [offset for offset, _ in records] == list(range(len(records)))
            assert not log.recovery.losses
            assert not found.keys() & {value for _, value in records}
            found |= {value: (tp.topic, tp.partition, offset) for offset, value in records}
        for topic, partition, offset, value in acknowledged:
            assert found[value][0] == topic
            assert partition is None or found[value] == (topic, partition, offset)
    assert not [*ram.glob("store/**/kstore-shared*")]


def test_topics_of_other_processes(ram: Path) -> None:
    with LogStore(ram, mode="a", shared=True) as store, Program(OPENED, ram) as other:
        assert other.first == "open"
        store.create_topic("orders", 2, retention_ms=1000)
        assert other.tell("store.topics") == "{'orders': [0, 1]}"
        assert other.tell("store.append('orders', b'there', key=b'k')[1]") == "0"
        assert store.append("orders", b"here", key=b"k")[1] == 1
        other.tell("store.alter_topic('orders', retention_ms=5000)")
        assert store.describe("orders").config.retention_ms == 5000
        assert store.log("orders").config.retention_ms == 5000
        other.tell("store.add_partitions('orders', 3)")
        assert len(store.topics["orders"]) == 3


def test_calls_of_a_moment_know_new_partitions(ram: Path) -> None:
    """Of a process that shares the store, and of one that reads it."""
    asked = {"store.lag('g')": 1, "store.metrics().partitions": 1, "store.cursors()['g']": 0, "store": 1}
    with LogStore(ram, mode="a", shared=True) as store, Program(OPENED, ram) as other:
        store.create_topic("t")
        store.append("t", b"v")
        with store.cursor("g", ["t"]) as cursor:
            next(iter(cursor))
            cursor.commit()
        reader = LogStore(ram)
        for n, (expression, grows) in enumerate(asked.items(), 1):
            other.tell("store.topics")
            reader.refresh()
            store.add_partitions("t", n + 1)
            expected = 1 + n * grows
            assert other.tell(f"len({expression})") == str(expected), expression
            if expression != "store":
                assert eval(f"len({expression})", {"store": reader}) == expected, expression
        for name, ask in {"scanned": reader.scan, "described": reader.describe}.items():
            store.create_topic(name)
            ask(name)


def test_the_background_knows_what_other_processes_have_changed(ram: Path) -> None:
    """Also if its own process does nothing else: a topic without an option is not one with its default."""
    clock = StoreClock()
    with LogStore(ram, mode="a", shared=True, clock=clock, background=False) as store:
        store.create_topic("t", retention_ms=7 * 86_400_000)
        log = store.log("t")
        log.append(b"old", timestamp=0)
        log.roll()
        with Program(OPENED, ram) as other:
            other.tell("store.alter_topic('t', retention_ms=None)")
        clock.pass_on(store, 60_000, runs=9)
        assert log.log_start_offset == 0
        assert "retention_ms is not set" in str(store.health())


def test_a_topic_that_another_process_deletes(ram: Path) -> None:
    """No record is acknowledged that goes into a deleted topic, also by a log that the program still has. Each
    call of the store goes on with what the topic is then."""
    calls: list[Callable[[LogStore], Any]] = [
        lambda store: store.append("t", b"v"),
        lambda store: store.extend("t", [b"v"]),
        lambda store: asyncio.run(store.append_async("t", b"v")),
        lambda store: asyncio.run(store.extend_async("t", [b"v"])),
        lambda store: store.log("t").append(b"v"),
        lambda store: store.flush(),
        lambda store: store.retain(),
        lambda store: list(store.scan("t")),
        lambda store: store.health(),
        lambda store: store.close(),
    ]
    for call in calls:
        with LogStore(ram, mode="a", shared=True) as store, Program(OPENED, ram) as other:
            store.create_topic("t", internal_segment_bytes=1000)
            other.tell("store.append('t', b'x')")
            log = store.log("t")
            for _ in range(40):
                store.append("t", b"old" * 50)
            store.flush()  # its recovery point is in the checkpoint now
            other.tell("store.delete_topic('t')")
            for change in (partial(log.append, b"lost"), log.flush, log.roll, log.retain):
                with pytest.raises(LogNotFoundError, match="another process has deleted the topic"):
                    change()
            with pytest.raises(LogNotFoundError, match="no topic t"):
                store.append("t", b"lost")
            other.tell("store.create_topic('t')")
            other.tell("store.append('t', b'new')")
            call(store)
            if not store.is_closed:
                assert store.health().ok
                store.append("t", b"last")
            values = other.tell("[r.value for r in store.log('t')]")
            assert values in ("[b'new']", "[b'new', b'last']", "[b'new', b'v', b'last']")
            other.tell("store.delete_topic('t')")


CHURN = """
import sys, time, kstore
with kstore.LogStore(sys.argv[1], mode="a", shared=True) as store:
    print("open", flush=True)
    for _ in range(int(sys.argv[2])):
        store.delete_topic("t")
        time.sleep(0.002)
        store.create_topic("t", 2)
        time.sleep(0.002)
    print("done", flush=True)
"""


def test_a_topic_that_another_process_deletes_and_makes_again(ram: Path) -> None:
    """At any moment of another process's call. All that a program meets is LogNotFoundError; and nothing of
    the old topic, such as its recovery point, counts for the new one: warnings are errors here."""
    LogStore(ram, mode="a").create_topic("t", 2)
    with Program(CHURN, ram, times(40)) as other:
        reader = threading.Thread(target=other.read)
        reader.start()
        n = 0
        while reader.is_alive():
            with LogStore(ram, mode="a", shared=True, max_open_partitions=2) as store:
                for _ in range(12):
                    n += 1
                    with contextlib.suppress(LogNotFoundError):
                        store.append("t", b"%d" % n, key=b"%d" % n)
                    with contextlib.suppress(LogNotFoundError):
                        store.extend("t", [b"%d" % i for i in range(9)], [b"%d" % i for i in range(9)])
                    if n % 3 == 0:
                        store.flush()
                    if n % 5 == 0:
                        store.retain()
        reader.join()
    assert n
    with LogStore(ram, mode="a") as store:
        assert store.health().ok


def test_who_does_not_share_is_kept_out(ram: Path) -> None:
    with LogStore(ram, mode="a", shared=True), pytest.raises(LogLockedError):
        LogStore(ram, mode="a")
    with LogStore(ram, mode="a"), pytest.raises(LogLockedError):
        LogStore(ram, mode="a", shared=True)
    with LogStore(ram, mode="a", shared=True), Program(OPENED, ram) as other:
        assert other.first == "open"
    with LogStore(ram) as reader:
        assert reader.closed_cleanly


def test_a_stopped_process_delays_nobody(ram: Path) -> None:
    with LogStore(ram, mode="a", shared=True) as store, Program(OPENED, ram) as other:
        store.create_topic("t", internal_segment_bytes=1000)
        other.tell("store.append('t', b'x')")
        os.kill(other.pid, signal.SIGSTOP)
        try:
            for i in range(100):  # also rolls
                store.append("t", b"%d" % i)
            store.create_topic("u")
        finally:
            os.kill(other.pid, signal.SIGCONT)
        assert other.tell("store.log('t').log_end_offset") == "101"
        assert other.tell("sorted(store.topics)") == "['t', 'u']"


def test_a_process_that_is_killed_leaves_the_store_to_the_others(ram: Path) -> None:
    with LogStore(ram, mode="a", shared=True) as store:
        store.create_topic("t")
        with Program(OPENED, ram) as other:
            other.tell("store.append('t', b'x')")
            other.kill()
        assert store.append("t", b"y") == (0, 1)
    with LogStore(ram) as reader:
        assert reader.closed_cleanly
        assert [record.value for record in reader.log("t")] == [b"x", b"y"]


def by_a_change(store: LogStore, path: Path) -> None:
    store.create_topic("other")


def by_an_opening(store: LogStore, path: Path) -> None:
    assert started_and_ended(lambda: LogStore(path, mode="a", shared=True).close()) == 0


@pytest.mark.parametrize("finish", [by_a_change, by_an_opening])
def test_a_process_that_dies_inside_a_change_of_topics(ram: Path, finish: Callable[..., None]) -> None:
    """The change is done or not done, for those that had the store open, too."""
    outcomes = set()
    for nth in some(range(1, 34), 12, finish.__name__):
        path = ram / str(nth)
        with LogStore(path, mode="a", shared=True) as store:
            store.create_topic("old", 2)
            code = started_and_ended(lambda path=path, nth=nth: die_inside_a_change(path, nth))
            assert code == -signal.SIGKILL
            finish(store, path)
            topics = store.topics
            for each in store, LogStore(path):
                outcomes.add("new" in topics)
                assert each.topics == topics
                assert topics["old"] == [0, 1]
                if "new" in topics:
                    assert topics["new"] == [0, 1, 2]
                    assert each.describe("new").options == {"retention_ms": 12345}
                    assert store.append("new", b"v", key=b"a")[0] in topics["new"]
    assert outcomes == {False, True}


def die_inside_a_change(path: Path, nth: int) -> None:
    store = LogStore(path, mode="a", shared=True)
    with failing(nth, how="kill"):
        store.create_topic("new", 3, retention_ms=12345)


def started_and_ended(work: Callable[[], object]) -> int:
    """The exit code of a child of fork that does it."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
