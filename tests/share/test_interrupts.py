"""Signals that raise at any moment of taking and acknowledging: no record is lost, no lock stays."""

import contextlib
from pathlib import Path

import pytest

import kstore
from kstore.log.follow import partition_watch
from tests.helpers.calls import some_points
from tests.helpers.injector import Injector


def filled(directory: Path, records: int) -> Path:
    path = directory / "jobs-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * records)
    return path


@pytest.mark.parametrize(("kind", "error"), [("line", MemoryError), ("check", KeyboardInterrupt)])
def test_a_signal_that_raises(ram: Path, kind: str, error: type[BaseException]) -> None:
    """A record whose delivery or acknowledgement was interrupted is delivered again, or is done. Others go on."""
    path = filled(ram, 4000)
    with kstore.open(path).share_group("g", record_lock_ms=1) as group:
        _work(group)  # what is imported later is not interrupted

        def stop() -> None:
            raise error

        done: set[int] = set()
        for nth in some_points(3, kind):
            with contextlib.suppress(error), Injector(kind, nth, stop) as injector:
                _work(group, done)
            if not injector.done:
                break
        assert nth > 200
        with kstore.open(path).share_group("g", record_lock_ms=1, follow=True, timeout=0.2) as other:
            first = min(_work(other))
            for job in other:
                other.acknowledge(job)
                assert job.offset not in done
    assert first not in done
    assert kstore.open(path).share_groups()["g"] == (4000, 4000, 0, 0, 0)


def _work(group: kstore.ShareGroup, done: set[int] | None = None) -> set[int]:
    """Takes three records and accepts one, releases one, and renews one and accepts it."""
    done = set() if done is None else done
    jobs = iter(group)
    for at in range(3):
        job = next(jobs)
        if at == 1:
            group.release(job)
            continue
        if at == 2:
            group.renew(job)
        group.acknowledge(job)
        done.add(job.offset)
    return done


def test_without_inotify(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has none left, a group looks again and again."""

    def none() -> None:
        raise OSError

    monkeypatch.setattr(partition_watch, "Inotify", none)
    path = filled(ram, 2)
    with kstore.open(path, "a") as log, log.share_group("g") as group:
        assert [job.offset for job in group] == [0, 1]
        log.append(b"v")
        assert [job.offset for job in group] == [2]
    with kstore.open(path, "a") as log, log.share_group("h", "latest", follow=True, timeout=20) as group:
        log.append(b"v")
        assert next(iter(group)).offset == 3
