"""What a worker of a share group gets, and what becomes of the records that it acknowledges, or does not."""

import gc
import os
import pickle
import signal
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import AcknowledgeType
from tests.helpers.processes import Program
from tests.helpers.waiting import descriptors, threads_doing, until, until_closed, until_waiting

WORKER = """
import sys, kstore
with kstore.open(sys.argv[1]).share_group("g", follow=True, **eval(sys.argv[2])) as group:
    jobs = iter(group)
    print("open", flush=True)
    held = []
    for line in sys.stdin:
        if line == "take\\n":
            held.append(next(jobs))
            print(held[-1].offset, held[-1].delivery_count, flush=True)
        elif line == "accept\\n":
            group.acknowledge(held.pop())
            print("accepted", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with ten records."""
    made = tmp_path / "data/jobs-0"
    with kstore.open(made, "a") as log:
        log.extend([b"%d" % i for i in range(10)])
    return made


def group_of(path: Path, **options: Any) -> kstore.ShareGroup:
    return kstore.open(path).share_group("g", **options)


def worker(path: Path, **options: Any) -> Program:
    return Program(WORKER, path, options)


def taken(group: kstore.ShareGroup, count: int = 1000) -> list[kstore.AcquiredRecord]:
    """Up to so many records, which stay acquired."""
    return list(islice(group, count))


def offsets(group: kstore.ShareGroup) -> list[int]:
    """What there is, accepted."""
    found = []
    for job in group:
        found.append(job.offset)
        group.acknowledge(job)
    return found


def state_of(path: Path) -> kstore.ShareGroupState:
    return kstore.open(path).share_groups()["g"]


def test_each_record_once(path: Path) -> None:
    with group_of(path) as group:
        job = next(iter(group))
        assert (job.topic, job.partition, job.record.offset) == ("jobs", 0, 0)
        assert (job.value, job.key, job.headers, job.delivery_count) == (b"0", None, (), 1)
        assert job.timestamp == job.record.timestamp
        group.acknowledge(job)
        assert offsets(group) == list(range(1, 10))
    with group_of(path) as group:
        assert offsets(group) == []
    with kstore.open(path, "a") as log:
        log.append(b"more")
        with log.share_group("g") as group:
            assert offsets(group) == [10]
        with log.share_group("other") as group:
            assert offsets(group) == list(range(11))
        assert log.share_groups() == {
            "g": kstore.ShareGroupState(11, 11, 0, 0, 0),
            "other": kstore.ShareGroupState(11, 11, 0, 0, 0),
        }


def test_two_workers_share(path: Path) -> None:
    """Each record goes to one of them, and a slow one delays no other."""
    with group_of(path) as one, group_of(path) as two:
        slow = next(iter(one))
        assert offsets(two) == list(range(1, 10))
        assert state_of(path) == (0, 10, 1, 0, 1)
        one.acknowledge(slow)
    assert state_of(path) == (10, 10, 0, 0, 0)


def test_release_and_reject(path: Path) -> None:
    with group_of(path) as group:
        first, second, third = taken(group, 3)
        group.release(second)
        group.acknowledge(first, AcknowledgeType.RELEASE)
        assert [(job.offset, job.delivery_count) for job in taken(group, 3)] == [(0, 2), (1, 2), (3, 1)]
        group.acknowledge(third, AcknowledgeType.REJECT)
        assert not group.holds(third)
    with group_of(path) as group:
        assert [(job.offset, job.delivery_count) for job in taken(group, 3)] == [(0, 3), (1, 3), (3, 2)]


def test_delay(path: Path) -> None:
    """A record that is released with a delay waits for that, and others do not."""
    with group_of(path, follow=True) as group:
        first = next(iter(group))
        began = time.monotonic()
        group.release(first, delay_ms=200)
        found = taken(group, 10)
        assert [job.offset for job in found] == [*range(1, 10), 0]
        assert time.monotonic() - began >= 0.19
        assert found[-1].delivery_count == 2


def test_lock_expires(path: Path) -> None:
    """The record goes to another worker then, and the first one is told."""
    with group_of(path, record_lock_ms=50) as one, group_of(path, follow=True) as two:
        first, second = taken(one, 2)
        until(lambda: next(iter(two)).offset == 0)
        with pytest.raises(kstore.InvalidRecordStateError, match="another worker"):
            one.acknowledge(first)
        with pytest.raises(kstore.InvalidRecordStateError):
            one.renew(first)
        assert not one.holds(first) or not one.holds(second)


def test_late_acknowledgement(path: Path) -> None:
    """One that comes before any other worker has taken the record counts."""
    with group_of(path, record_lock_ms=1) as group:
        job = next(iter(group))
        time.sleep(0.01)
        group.acknowledge(job)
    assert state_of(path).start_offset == 1


def test_renew(path: Path) -> None:
    with group_of(path, record_lock_ms=300) as one, group_of(path) as two:
        job = next(iter(one))
        for _ in range(8):
            time.sleep(0.05)
            one.renew(job)
        assert next(iter(two)).offset == 1
        one.acknowledge(job)


def test_attempts_are_bounded(path: Path) -> None:
    """A record that is released again and again is given up."""
    with group_of(path, max_delivery_attempts=3) as group:
        found = []
        for job in group:
            found.append(job.offset)
            if job.offset == 4:
                group.release(job)
            else:
                group.acknowledge(job)
        assert found == [0, 1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 9]
    assert state_of(path).start_offset == 10


def test_dead_letters_of_a_log(path: Path) -> None:
    """They are copied with Kafka's headers, behind their own."""
    with kstore.open(path, "a") as log:
        log.append(b"bad", key=b"k", headers={"h": b"1"})
    with (
        kstore.open(path.parent / "dead-0", "a") as dead,
        group_of(path, start=9, dead_letter_log=dead, max_delivery_attempts=2) as group,
    ):
        for job in group:
            group.acknowledge(job, AcknowledgeType.REJECT if job.value == b"bad" else AcknowledgeType.RELEASE)
        exhausted, rejected = dead.records()
    assert (rejected.value, rejected.key) == (b"bad", b"k")
    assert rejected.headers == (
        ("h", b"1"),
        ("__dlq.errors.topic", b"jobs"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"10"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert (exhausted.value, dict(exhausted.headers)["__dlq.errors.delivery.count"]) == (b"9", b"2")
    assert dict(exhausted.headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


def test_next_accepts_and_releases(path: Path) -> None:
    with group_of(path) as group:
        with group.next() as job:
            assert job.offset == 0
        with pytest.raises(ZeroDivisionError), group.next() as job:
            _ = 1 // 0
        with group.next() as job:
            assert (job.offset, job.delivery_count) == (1, 2)
            group.acknowledge(job, AcknowledgeType.REJECT)
        with pytest.raises(KeyboardInterrupt), group.next() as job:
            _accept_and_raise(group, job)
        assert offsets(group) == list(range(3, 10))
        with group.next(timeout=0.01) as job:
            assert job is None


def _accept_and_raise(group: kstore.ShareGroup, job: kstore.AcquiredRecord) -> None:
    group.acknowledge(job)
    raise KeyboardInterrupt


def test_next_whose_lock_expired(path: Path) -> None:
    """The error of the block comes out, not that of the release."""
    with group_of(path, record_lock_ms=1) as one, group_of(path, follow=True) as two:
        with pytest.raises(ZeroDivisionError), one.next():
            _ = next(iter(two)).offset // 0
        with pytest.raises(kstore.InvalidRecordStateError), one.next() as job:
            until(lambda: next(iter(two)).offset == job.offset)


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), ("latest", 10), (4, 4)], ids=["earliest", "latest", "offset"]
)
def test_start(path: Path, start: Any, first: int) -> None:
    """It holds for a group without a state, from when its first worker is there."""
    with group_of(path, start=start):
        pass
    with kstore.open(path, "a") as log:
        log.append(b"more")
    with group_of(path, start="earliest") as group:
        assert offsets(group) == list(range(first, 11))


def test_most_record_locks(path: Path) -> None:
    """Records in flight are bounded: delayed ones count, done ones do not."""
    with group_of(path, max_record_locks=3) as group:
        first, *_, last = found = taken(group)
        assert [job.offset for job in found] == [0, 1, 2]
        group.acknowledge(last)
        assert [job.offset for job in taken(group)] == [3]
        group.release(first, delay_ms=60_000)
        assert taken(group) == []


def test_wrong_acknowledgements(path: Path) -> None:
    with group_of(path) as group, group_of(path) as other:
        job = next(iter(group))
        with pytest.raises(kstore.InvalidRecordStateError):
            other.acknowledge(job)
        group.acknowledge(job)
        for call in (group.acknowledge, group.release, group.renew):
            with pytest.raises(kstore.InvalidRecordStateError, match="it is done"):
                call(job)
        for wrong in (job.record, 0, None):
            with pytest.raises(TypeError, match="record"):
                group.acknowledge(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="type"):
            group.acknowledge(job, "ACCEPT")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="delay_ms"):
            group.release(job, -1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"record_lock_ms": 0}, ValueError),
        ({"max_delivery_attempts": 0}, ValueError),
        ({"max_record_locks": 10_001}, ValueError),
        ({"durable": 1}, TypeError),
        ({"timeout": 1}, ValueError),
        ({"isolation": "x"}, ValueError),
        ({"start": "never"}, ValueError),
        ({"start": 11}, kstore.OffsetOutOfRangeError),
    ],
)
def test_wrong_options(path: Path, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        group_of(path, **options)
    with pytest.raises(ValueError, match="group"):
        kstore.open(path).share_group("a/b")
    with group_of(path) as group:
        assert offsets(group) == list(range(10))


# ---- workers that end --------------------------------------------------------------------------------------


def test_closed_worker(path: Path) -> None:
    """What it has is for others at once, and counts as delivered."""
    with group_of(path) as group:
        jobs = taken(group, 2)
        assert state_of(path) == (0, 2, 2, 0, 10)
    assert state_of(path) == (0, 2, 0, 2, 10)
    with pytest.raises(kstore.LogClosedError):
        group.acknowledge(jobs[0])
    with pytest.raises(kstore.LogClosedError):
        next(iter(group))
    with group_of(path) as group:
        assert [(job.offset, job.delivery_count) for job in taken(group, 3)] == [(0, 2), (1, 2), (2, 1)]
    assert pickle.loads(pickle.dumps(jobs[0])) == jobs[0]
    with pytest.raises(TypeError, match="process"):
        pickle.dumps(group)


def test_forgotten_worker(path: Path) -> None:
    """One that is garbage has left, and has no descriptor any more."""
    gc.collect()
    before = descriptors()
    group = group_of(path)
    job = next(iter(group))
    assert job.offset == 0
    del group
    gc.collect()
    until_closed(before)
    with group_of(path) as other:
        assert next(iter(other)).delivery_count == 2


def test_killed_worker(path: Path) -> None:
    """Another one that waits gets its record long before the lock expires."""
    with group_of(path, start=9, follow=True, timeout=20) as group:
        with worker(path) as other:
            assert other.tell("take") == "9 1"
            main = threading.get_ident()
            with threads_doing(lambda: (until_waiting(main), other.kill())):
                job = next(iter(group))
        assert (job.offset, job.delivery_count) == (9, 2)


def test_stopped_worker(path: Path) -> None:
    """One that is stopped keeps its record until the lock expires."""
    with worker(path, record_lock_ms=400) as other:
        assert other.tell("take") == "0 1"
        os.kill(other.pid, signal.SIGSTOP)
        assert state_of(path) == (0, 1, 1, 0, 10)
        with group_of(path, follow=True) as group:
            assert next(iter(group)).offset == 1
            assert [job.offset for job in taken(group, 9)] == [*range(2, 10), 0]
        os.kill(other.pid, signal.SIGCONT)


def test_fork(path: Path) -> None:
    """A child has no part in its parent's group, and does not keep the parent's records."""
    with group_of(path, follow=True, timeout=0.5) as group:
        job = next(iter(group))
        child = os.fork()
        if child == 0:
            status = 0
            for call in (lambda: group.acknowledge(job), lambda: next(iter(group)), lambda: group.renew(job)):
                try:
                    call()
                except kstore.LogClosedError:
                    status += 1
            group.close()
            with group_of(path) as own:
                status += next(iter(own)).offset == 1
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        group.acknowledge(job)
        assert sorted(offsets(group)) == list(range(1, 10))


# ---- waiting -----------------------------------------------------------------------------------------------


def test_wait_for_an_append(path: Path) -> None:
    with group_of(path, start="latest", follow=True, timeout=20) as group, kstore.open(path, "a") as log:
        main = threading.get_ident()
        with threads_doing(lambda: (until_waiting(main), log.append(b"new"))):
            assert next(iter(group)).value == b"new"


def test_timeout(path: Path) -> None:
    with group_of(path, start="latest", follow=True, timeout=0.05) as group:
        assert offsets(group) == []
        assert offsets(group) == []


def test_close_ends_an_iteration(path: Path) -> None:
    group = group_of(path, start="latest", follow=True)
    main = threading.get_ident()
    with threads_doing(lambda: (until_waiting(main), group.close())):
        assert list(group) == []


def test_threads_share_a_group(path: Path) -> None:
    """Each record goes to one thread. None waits for ever for what another one has heard of."""
    with kstore.open(path, "a") as log, group_of(path, follow=True, timeout=30, durable=False) as group:
        found: list[int] = []
        work = threading.Event()

        def take() -> None:
            for job in group:
                if job.value == b"slow":
                    work.wait(20)
                elif job.value == b"last":
                    work.set()
                group.acknowledge(job)
                found.append(job.offset)
                if len(found) == 113:
                    group.close()

        with threads_doing(*[take] * 4):
            log.extend([b"v"] * 100)
            log.append(b"slow")
            time.sleep(0.05)
            log.extend([b"v", b"last"])
        assert sorted(found) == list(range(113))


def test_wait_of_several(path: Path, tmp_path: Path) -> None:
    """kstore.wait takes a group, and acquires nothing."""
    with kstore.open(tmp_path / "other-0", "a") as log, group_of(path) as one, log.share_group("g") as two:
        assert kstore.wait([one, two], timeout=0) == [one]
        assert [job.delivery_count for job in taken(one)] == [1] * 10
        assert kstore.wait([one, two], timeout=0.05) == []
        log.append(b"v")
        assert kstore.wait([one, two]) == [two]
        one.close()
        assert kstore.wait([one, two], timeout=0) == [one, two]


# ---- the log changes ---------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"internal_segment_bytes": 200, "segment_index_bytes": 200, "file_delete_delay_ms": 0}


def test_deleted_records(tmp_path: Path) -> None:
    """Records that retention has deleted are done, also those in flight; acknowledging them does no harm."""
    path = tmp_path / "jobs-0"
    with kstore.open(path, "a", **SMALL) as log:
        for _ in range(20):
            log.append(b"v" * 50)
        with group_of(path) as group:
            held = taken(group, 3)
            group.release(held[1])
            log.delete_records(15)
            assert next(iter(group)).offset == 15
            group.acknowledge(held[0])
            assert state_of(path) == (15, 16, 1, 0, 5)


def test_compacted_records(tmp_path: Path) -> None:
    """Records that compaction has removed are done."""
    path = tmp_path / "jobs-0"
    with kstore.open(path, "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **SMALL) as log:
        for i in range(10):
            log.append(b"%d" % i, key=b"%d" % (i // 2))
        with group_of(path) as group:
            for job in taken(group, 3):
                group.release(job)
            log.roll()
            log.compact()
            assert offsets(group) == [1, 3, 5, 7, 9]
        assert state_of(path).in_flight == 0


def test_truncated_records(tmp_path: Path) -> None:
    """Other records that have the offsets of truncated ones are delivered, once more from the first
    delivery."""
    path = tmp_path / "jobs-0"
    with kstore.open(path, "a") as log:
        log.extend([b"old"] * 10)
        with group_of(path) as group:
            jobs = taken(group, 8)
            for job in jobs[:7]:
                group.acknowledge(job)
            log.truncate_to(5)
            log.extend([b"new"] * 3)
            assert [(job.offset, job.value, job.delivery_count) for job in taken(group)] == [
                (5, b"new", 1),
                (6, b"new", 1),
                (7, b"new", 1),
            ]


def test_transactions(tmp_path: Path) -> None:
    """With isolation="read_committed" a group stops at an open transaction."""
    path = tmp_path / "jobs-0"
    with kstore.open(path, "a") as log:
        log.append(b"plain")
        batch = kstore.encode_batch(
            [(1, None, b"open", None)], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append_batches(batch)
        log.append(b"later")
        with group_of(path, isolation="read_committed") as group:
            assert offsets(group) == [0]
        with group_of(path) as group:
            assert offsets(group) == [1, 2]


def test_damaged_records(path: Path) -> None:
    with kstore.open(path, "a") as log:
        log.append(b"after")
    with (path / f"{0:020}.log").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    for _ in range(2):
        with group_of(path) as group, pytest.raises(kstore.CorruptRecordError) as error:
            next(iter(group))
        assert "share group 'g'" in "".join(error.value.__notes__)
    with group_of(path, on_error="skip") as group:
        assert offsets(group) == [10]
        assert len(group.skipped) == 1


def test_deleted_log(path: Path) -> None:
    with kstore.LogStore(path.parent, mode="a") as store, group_of(path) as group:
        job = next(iter(group))
        store.delete_topic("jobs")
        store.create_topic("jobs")
        with pytest.raises(kstore.LogNotFoundError):
            taken(group)
        with pytest.raises(kstore.LogNotFoundError):
            group.acknowledge(job)
    assert [file.name for file in path.parent.iterdir() if "-delete" in file.name] == []


# ---- the state ---------------------------------------------------------------------------------------------


def test_state_is_bounded(path: Path) -> None:
    """Old updates are dropped from the file."""
    state = path / "kstore-shares/g.state"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 3000)
    with group_of(path) as one, group_of(path) as two:
        slow = next(iter(one))
        sizes = set()
        for at, job in enumerate(two):
            two._partition_of(job)._file.append(two._partition_of(job)._file.state.finish(job.offset, 2))
            if at % 100 == 0:
                sizes.add(state.stat().st_size)
        assert max(sizes) <= 300_000
        one.acknowledge(slow)
    assert state_of(path) == (3010, 3010, 0, 0, 0)


def test_forget(path: Path) -> None:
    with group_of(path) as one, group_of(path) as two:
        assert len(taken(one, 3)) == 3
        with pytest.raises(kstore.CursorLockedError):
            two.forget()
        one.close()
        two.forget()
    assert kstore.open(path).share_groups() == {}
    assert list((path / "kstore-shares").iterdir()) == []
    with group_of(path) as group:
        assert next(iter(group)).delivery_count == 1
