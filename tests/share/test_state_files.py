"""The file with the state of a share group: what a failing call, a kill, a power cut or another program
leaves of it."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import AcknowledgeType
from kstore.engine.io.faults import calls_made, fail_call
from kstore.testing import Recorder, crash_states
from tests.helpers.calls import some_calls
from tests.helpers.effort import some

FILE = "kstore-shares/g.state"
pytestmark = pytest.mark.usefixtures("sound_calls")


def filled(directory: Path, records: int = 50) -> Path:
    path = directory / "jobs-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * records)
    return path


def group_of(path: Path, **options: Any) -> kstore.ShareGroup:
    return kstore.open(path).share_group("g", **options)


def work(path: Path, done: set[int], released: set[int], **options: Any) -> None:
    """Takes eight records and acknowledges them in several ways, and notes what has come back."""
    with group_of(path, **options) as group:
        for at, job in enumerate(group):
            if at == 8:
                break
            if at % 4 == 1 and job.delivery_count == 1:
                group.release(job)
                released.add(job.offset)
            else:
                group.acknowledge(job, AcknowledgeType.REJECT if at % 4 == 2 else AcknowledgeType.ACCEPT)
                done.add(job.offset)
            released.discard(job.offset) if job.offset in done else None


def rest(path: Path) -> list[tuple[int, int]]:
    """All that is left, accepted."""
    found = []
    with group_of(path) as group:
        for job in group:
            found.append((job.offset, job.delivery_count))
            group.acknowledge(job)
    return found


def check(path: Path, done: set[int], unsure: int = 1) -> None:
    """Each record is there but for those that were acknowledged, and perhaps one that was about to be."""
    left = rest(path)
    offsets = [offset for offset, _ in left]
    assert len(set(offsets)) == len(offsets)
    assert not done & set(offsets)
    assert 50 - len(done) - unsure <= len(offsets) <= 50 - len(done)
    assert all(count <= 3 for _, count in left)
    assert kstore.open(path).share_groups()["g"] == (50, 50, 0, 0, 0)


@pytest.mark.parametrize("durable", [False, True])
def test_any_call_fails(ram: Path, durable: bool) -> None:
    """The call raises, and has changed nothing or everything; the group goes on."""
    path = filled(ram / "whole")
    fail_call(0, own=True)
    work(path, set(), set(), durable=durable)
    calls = calls_made()
    for error, how in ((errno.EIO, "error"), (errno.ENOSPC, "half")):
        for nth in some_calls(calls, 6, (how, durable)):
            path = filled(ram / f"{how}{nth}")
            done: set[int] = set()
            fail_call(nth, error, how, own=True)
            try:
                work(path, done, set(), durable=durable)
            except OSError as e:
                assert e.errno == error  # noqa: PT017
            fail_call(0)
            check(path, done)


@pytest.mark.parametrize("durable", [False, True])
def test_killed_at_every_call(ram: Path, durable: bool) -> None:
    path = filled(ram / "whole")
    fail_call(0, own=True)
    work(path, set(), set(), durable=durable)
    calls = calls_made()
    for how in ("kill", "kill_half"):
        for nth in some_calls(calls, 6, (how, durable)):
            path = filled(ram / f"{how}{nth}")
            journal = path.parent / "journal"
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    fail_call(nth, how=how, own=True)
                    work(path, _Journal(journal), set(), durable=durable)
                os._exit(0)
            is_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
            assert is_killed or nth > calls - 20  # how often it looks for changes depends on the time
            done = set(map(int, journal.read_text().split())) if journal.exists() else set()
            check(path, done)


class _Journal(set[int]):
    """A set that is written down."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, offset: int) -> None:
        with self._path.open("a") as file:
            file.write(f"{offset}\n")


def test_failed_sync(ram: Path) -> None:
    """The file is replaced before the next change: a second sync of it would succeed without what it has
    lost."""
    path = filled(ram)
    with group_of(path) as group:
        first, second = next(iter(group)), next(iter(group))
        group.acknowledge(first)
        inode = (path / FILE).stat().st_ino
        fail_call(0, own=True)
        group.acknowledge(second)
        calls = calls_made()
        third = next(iter(group))
        fail_call(calls, errno.EIO, own=True)  # the last one is the sync
        with pytest.raises(OSError, match="Input/output"):
            group.acknowledge(third)
        fail_call(0)
        group.acknowledge(next(iter(group)))
        assert (path / FILE).stat().st_ino != inode
    assert kstore.open(path).share_groups()["g"].start_offset == 4


# ---- power cuts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["strict", "ordered", "pages"])
def test_power_cut(ram: Path, model: str) -> None:
    """What was acknowledged durably is done, whatever of the rest was on the disk; the group goes on."""
    path = filled(ram / "data")
    with Recorder(path) as recorder, group_of(path) as slow, group_of(path) as group:
        held = next(iter(slow))
        for count, job in enumerate(group, 1):
            if count % 3 == 0:
                group.release(job, 60_000)
            else:
                group.acknowledge(job)
            recorder.mark(job.offset)
            if count == 30:
                break
        slow.acknowledge(held)
        recorder.mark(31)
    states = 0
    for state in some(list(crash_states(recorder.trace, models=[model], seed=1)), 120, model):
        if state.value is None:
            continue
        states += 1
        place = ram / f"{model}{states}" / "jobs-0"
        place.mkdir(parents=True)
        state.image.write_to(place)
        with group_of(place, start="latest") as group:
            known = kstore.open(place).share_groups()["g"]
            assert known.end_offset > min(state.value, 30), state.text
            offsets = [job.offset for job in group]
        done = {offset for offset in range(1, state.value + 1) if offset % 3}
        assert not done & set(offsets), state.text
    assert states > 20


# ---- damage ------------------------------------------------------------------------------------------------


@pytest.fixture
def written(ram: Path) -> tuple[Path, bytes]:
    """A log, and the state of a group with some updates, of which all but the last one are synced."""
    path = filled(ram)
    with group_of(path) as group:
        jobs = iter(group)
        for _ in range(4):
            job = next(jobs)
            group.acknowledge(job)
        next(jobs)
    return path, (path / FILE).read_bytes()


def _tried(path: Path, content: bytes) -> list[tuple[int, int]] | str:
    """What a group gets of a state, or the error."""
    (path / FILE).write_bytes(content)
    try:
        return rest(path)
    except kstore.CorruptRecordError as e:
        return f"corrupt: {e}"


def test_any_bit(written: tuple[Path, bytes]) -> None:
    """A flipped bit is found. In the batch that no sync has reached it may look like the end of the file."""
    path, whole = written
    sound = _tried(path, whole)
    end = len(whole.rstrip(b"\0")) + 8
    last = whole.rfind(b"\2", 0, end - 61) - 16  # not exact: the last batches
    for bit in some(range(8 * end), 400, "bits"):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        found = _tried(path, bytes(changed))
        byte = bit // 8
        is_epoch = found == sound  # Kafka's checksum does not cover the leader epoch and the base offset
        assert f"corrupt: {path / FILE}" in str(found) or is_epoch or byte >= last - 400, byte


def test_any_length(written: tuple[Path, bytes]) -> None:
    """A shorter file is one of an earlier moment, or damage; it is never an error that hangs or a record too
    few."""
    path, whole = written
    end = len(whole.rstrip(b"\0"))
    for size in some(range(1, end), 60, "sizes"):
        found = _tried(path, whole[:size])
        assert "corrupt" in str(found) or [offset for offset, _ in found][-1] == 49


@pytest.mark.parametrize(
    "content",
    [b"", bytes(100), bytes(300_000), b"\xff" * 5000, os.urandom(5000), b"\2" * 70_000],
    ids=["empty", "zeros", "many zeros", "ones", "chance", "magic"],
)
def test_other_content(ram: Path, content: bytes) -> None:
    """It is an error, and stays one until the file is removed."""
    path = filled(ram)
    (path / FILE).parent.mkdir()
    (path / FILE).write_bytes(content)
    for _ in range(2):
        with pytest.raises(kstore.CorruptRecordError, match="share group"):
            group_of(path)
    (path / FILE).unlink()
    with group_of(path) as group:
        assert next(iter(group)).offset == 0


def test_state_of_another_group(written: tuple[Path, bytes]) -> None:
    path, whole = written
    (path / "kstore-shares/h.state").write_bytes(whole)
    with pytest.raises(kstore.CorruptRecordError, match="found a record of something else"):
        kstore.open(path).share_group("h")


def _cut(path: Path) -> None:
    os.truncate(path / FILE, 100)


def _empty(path: Path) -> None:
    (path / FILE).write_bytes(b"")


def _fill(path: Path) -> None:
    content = (path / FILE).read_bytes()
    (path / FILE).write_bytes(content.rstrip(b"\0") + b"\xaa" * 1000)


def _remove(path: Path) -> None:
    (path / FILE).unlink()


def _remove_both(path: Path) -> None:
    for file in (path / FILE).parent.iterdir():
        file.unlink()


@pytest.mark.parametrize("damage", [_cut, _empty, _fill, _remove, _remove_both])
def test_another_program_changes_the_file(ram: Path, damage: Callable[[Path], None]) -> None:
    """A worker that has it open gets an error, or goes on with what it knows; it does not deliver what is
    done."""
    path = filled(ram)
    with group_of(path) as group:
        jobs = iter(group)
        for _ in range(3):
            group.acknowledge(next(jobs))
        damage(path)
        try:
            job = next(jobs)
        except kstore.KstoreError:
            return
        assert job.offset == 3
        group.acknowledge(job)


def test_gap(ram: Path) -> None:
    """After a power cut a later update may be there without an earlier one: the group goes on before the gap,
    and what is behind it never comes back."""
    path = filled(ram, 400)
    with group_of(path, durable=False) as group:
        for job in group:
            group.acknowledge(job)
            if job.offset == 20:
                break
    whole = (path / FILE).read_bytes()
    holed = whole[:2048] + bytes(1024) + whole[3072:]
    (path / FILE).write_bytes(holed)
    with group_of(path, durable=False) as group:
        first = next(iter(group)).offset
        assert 0 < first < 20
    assert [offset for offset, _ in rest(path)] == list(range(first, 400))


def _gone(path: Path) -> Iterator[str]:
    yield from (file.name for file in path.iterdir() if file.suffix == ".tmp")


def test_nothing_is_left_behind(written: tuple[Path, bytes]) -> None:
    path, _ = written
    assert sorted(file.name for file in (path / FILE).parent.iterdir()) == ["g.lock", "g.state"]
    with kstore.open(path, "a") as log:
        assert log.recovery.findings == []
    assert list(_gone(path)) == []
