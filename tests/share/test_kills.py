"""Workers of a share group that are killed at any moment: each job is accepted once, none is lost, and each
delivery is counted."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import kstore
from kstore import AcknowledgeType
from tests.helpers.effort import SEED, times
from tests.shared.processes import started

WORKERS = 8
POISON = 7  # the job that kills its worker


def _work(directory: Path, name: int, *, durable: bool) -> None:
    """Takes jobs until there are none. Each line of its journal is on the file when the call returns."""
    journal = os.open(directory / f"journal-{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    rng = random.Random(f"{SEED} {name}")
    with (
        kstore.LogStore(directory / "data", mode="a", shared=True, background=False) as store,
        store.share_group(
            "workers", ["jobs"], follow=True, timeout=1, durable=durable, dead_letter_topic="dead"
        ) as group,
    ):
        for job in group:
            os.write(journal, f"taken {job.partition} {job.offset} {job.delivery_count}\n".encode())
            if job.value == b"poison":
                os.kill(os.getpid(), signal.SIGKILL)
            if rng.random() < 0.01 and job.delivery_count < 3:
                group.acknowledge(job, AcknowledgeType.RELEASE)
                continue
            group.acknowledge(job)
            os.write(journal, f"done {job.partition} {job.offset} {job.delivery_count}\n".encode())


def run(directory: Path, jobs: int, kills: int, *, durable: bool) -> dict[str, int]:
    """Runs the workers, kills some of them at random, and judges what they have done."""
    rng = random.Random(SEED)
    with kstore.LogStore(directory / "data", mode="a", shared=True) as store:
        store.create_topic("jobs", partitions=2)
        store.create_topic("dead")
        store.extend("jobs", [b"%d" % i for i in range(jobs)], keys=[b"%d" % i for i in range(jobs)])
        store.append("jobs", b"poison", key=b"%d" % POISON)
    living: set[int] = set()
    killed = name = 0
    while True:
        while len(living) < WORKERS and (killed < kills or not name):
            name += 1
            living.add(started(lambda name=name: _work(directory, name, durable=durable)))
        time.sleep(rng.random() * 0.05)
        if killed < kills:
            victim = rng.choice(sorted(living))
            os.kill(victim, signal.SIGKILL)
            killed += 1
        for child in list(living):
            if os.waitpid(child, os.WNOHANG)[0]:
                living.discard(child)
        if not living and killed >= kills:
            break
    status = signal.SIGKILL.value
    while status == signal.SIGKILL:  # of what the last ones have left, also of deliveries of the poison
        name += 1
        status = os.waitpid(started(lambda name=name: _work(directory, name, durable=durable)), 0)[1]
    assert status == 0
    deaths = killed + 5  # and the poison
    return _judge(directory, jobs, deaths)


def _judge(directory: Path, jobs: int, deaths: int) -> dict[str, int]:
    taken: dict[tuple[str, str], list[int]] = {}
    done: Counter[tuple[str, str]] = Counter()
    for journal in directory.glob("journal-*"):
        for line in journal.read_text().splitlines():
            what, partition, offset, count = line.split()
            if what == "taken":
                taken.setdefault((partition, offset), []).append(int(count))
            else:
                done[partition, offset] += 1
    assert set(done.values()) == {1}
    with kstore.LogStore(directory / "data") as store:
        ends = {tp: store.log(*tp).log_end_offset for tp in store.partitions if tp.topic == "jobs"}
        for tp, state in store.share_groups()["workers"].items():
            assert (state.start_offset, state.in_flight) == (ends[tp], 0)
        letters = list(store.log("dead", 0).records())
    # A worker that is killed between the dead letter and the state has another one copy the record again.
    [letter] = {letter.headers: letter for letter in letters}.values()
    assert len(letters) <= 1 + deaths
    headers = dict(letter.headers)
    assert (letter.value, headers["__dlq.errors.delivery.count"]) == (b"poison", b"5")
    poisoned = headers["__dlq.errors.partition"].decode(), headers["__dlq.errors.offset"].decode()
    assert sorted(taken.pop(poisoned)) == [1, 2, 3, 4, 5]
    # A worker that is killed between its call and its line in the journal has taken or accepted a job for all
    # that.
    unlogged = 0
    for counts in taken.values():
        assert len(set(counts)) == len(counts)
        unlogged += max(counts) - len(counts)
    missing = jobs - len(done)
    assert jobs - len(taken) + unlogged <= deaths
    assert missing <= deaths
    return {"jobs": jobs, "kills": deaths, "done but not logged": missing, "taken but not logged": unlogged}


def test_killed_workers(tmp_path: Path) -> None:
    """Each job is accepted once; a job that kills its worker becomes a dead letter after 5 deliveries."""
    run(tmp_path, times(1_000), times(12), durable=False)


def test_killed_workers_durably(tmp_path: Path) -> None:
    """The same with syncs."""
    run(tmp_path, times(200), times(6), durable=True)
