"""A log that is opened beside its writer: indexes are used as far as the writer has checked them."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.testing.faults import count_calls
from tests.helpers.effort import SEED, times
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import Program

SIZE = 1000
BROKER = """
import fcntl, sys
file = open(sys.argv[1] + "/.lock", "a")
fcntl.lockf(file, fcntl.LOCK_EX)  # all of it, as FileChannel.tryLock does
print("ready", flush=True)
sys.stdin.readline()
"""
WRITER = """
import sys, kstore
log = kstore.open(sys.argv[1], "a")
print("ready", flush=True)
for line in sys.stdin:
    log.extend([b"%07d" % i + b"x" * 993 for i in range(log.log_end_offset, log.log_end_offset + int(line))])
    print("done", flush=True)
log.abandon()
"""


def value(offset: int) -> bytes:
    return b"%07d" % offset + b"x" * (SIZE - 7)


def fill(log: kstore.LogWriter, count: int) -> None:
    first = log.log_end_offset
    log.extend([value(i) for i in range(first, first + count)])


def values(log: kstore.PartitionLog) -> list[bytes]:
    return [record.value or b"" for record in log]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a partition whose writer died: its indexes have room behind their entries."""
    data = tmp_path_factory.mktemp("crashed") / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\n")
    log = kstore.open(data / "t-0", "a")
    fill(log, 2000)
    log.abandon()
    return data


@pytest.fixture
def crashed(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


def test_opening_beside_a_writer_costs_what_the_tail_costs(tmp_path: Path) -> None:
    calls = []
    for count in (1000, 8000):
        path = tmp_path / f"t-{count}"
        with Program(WRITER, path) as writer:
            writer.tell(str(count))
            calls.append(count_calls(lambda path=path: kstore.open(path)))  # type: ignore[misc]
            log = kstore.open(path)
            assert log.log_end_offset == count
            assert not log.recovery.recovered_segments
            assert not log.recovery.findings
            assert log.get(count - 1).value == value(count - 1)
        assert kstore.open(path).recovery.recovered_segments == [0]  # it was not closed
    assert calls[1] <= calls[0] + 16  # the search for the last entry takes a few more


def test_in_the_writers_process(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        fill(log, 3000)
        reader = kstore.open(tmp_path / "t-0")
        assert not reader.recovery.recovered_segments
        assert values(reader) == [value(i) for i in range(3000)]
        assert reader.find(timestamp="max") == log.find(timestamp="max")
        log.roll()
        fill(log, 10)
        again = kstore.open(tmp_path / "t-0")
        assert again.log_end_offset == 3010
        assert again.recovery.recovered_segments == [3000]  # too small to have entries
        assert reader.refresh()
        assert values(reader) == values(log)
        log.truncate_to(2500)
        found = kstore.open(tmp_path / "t-0", clean=False, recovery_point=0)
        assert kstore.open(tmp_path / "t-0").log_end_offset == found.log_end_offset
        assert values(kstore.open(tmp_path / "t-0")) == values(log)
        assert not kstore.open(tmp_path / "t-0").recovery.recovered_segments
    assert kstore.open(tmp_path / "t-0").recovery.clean


def test_a_broker_has_checked_all(crashed: Path) -> None:
    with Program(BROKER, crashed):
        log = kstore.open(crashed / "t-0")
        assert not log.recovery.recovered_segments
        assert values(log) == [value(i) for i in range(2000)]
        stored = kstore.LogStore(crashed).log("t", 0)
        assert not stored.recovery.recovered_segments
        assert stored.log_end_offset == 2000
    assert kstore.open(crashed / "t-0").recovery.recovered_segments == [0]


def test_a_program_that_writes_another_partition_has_checked_only_its_own(crashed: Path) -> None:
    with Program(WRITER, crashed / "other-0"):
        assert kstore.open(crashed / "t-0").recovery.recovered_segments == [0]


def ends(path: Path) -> Iterator[tuple[Path, int]]:
    """The index files of the last segment, and how many bytes of them hold entries."""
    log = kstore.open(path, clean=False, recovery_point=0)
    last = log.segments[-1]
    yield Path(last.path_of(".index")), 8 * len(last.offset_index)
    yield Path(last.path_of(".timeindex")), 12 * len(last.time_index)


@pytest.mark.parametrize("seed", range(SEED, SEED + times(4)))
def test_whatever_lies_behind_the_entries_of_an_index(crashed: Path, seed: int) -> None:
    """What a truncation has left there, or is being written, never makes a record wrong or lost."""
    rng = random.Random(seed)
    log_file = next((crashed / "t-0").glob("*.log"))
    size = log_file.stat().st_size
    for path, end in list(ends(crashed / "t-0")):
        data = bytearray(path.read_bytes())
        used = max(0, end - rng.randrange(3) * (8 if path.suffix == ".index" else 12))
        data[used:end] = bytes(end - used)  # an entry is not there yet
        stale = b""
        if path.suffix == ".index":
            offset, position = 1990, size - 5000
            for _ in range(rng.randrange(12)):
                offset += rng.randrange(-2, 8)
                position += rng.randrange(1, 900)
                stale += offset.to_bytes(4, "big") + position.to_bytes(4, "big")
        else:
            stale = rng.randbytes(rng.randrange(60))
        data[used : used + len(stale)] = stale
        path.write_bytes(data)
    if rng.random() < 0.5:
        with log_file.open("ab") as file:  # a batch is being written
            file.write(rng.choice((bytes(3000), log_file.read_bytes()[: rng.randrange(1, 300)])))
    with Program(BROKER, crashed):
        log = kstore.open(crashed / "t-0")
        assert values(log) == [value(i) for i in range(2000)]
        for offset in rng.sample(range(2000), 20):
            assert log.get(offset).value == value(offset)
        newest = log.find(timestamp="max")
        assert log.find(timestamp=newest.timestamp) is not None


def test_a_marker_whose_entry_is_not_written_yet(tmp_path: Path) -> None:
    """Between the two a writer may be stopped: what was aborted must not pass for committed."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\n")
    log = kstore.open(data / "t-0", "a")
    fill(log, 100)
    for sequence in range(2):
        log.append_batches(transactional((1, None, b"aborted", None), sequence=sequence))
        fill(log, 50)
        end_transaction(log, "ABORT", 1)
    log.abandon()
    index = next((data / "t-0").glob("*.txnindex"))
    index.write_bytes(index.read_bytes()[:34])
    with Program(BROKER, data):
        reader = kstore.open(data / "t-0")
        assert not reader.recovery.recovered_segments
        assert reader.last_stable_offset() == reader.log_end_offset
        seen = [record.value for record in reader.records(isolation="read_committed")]
        assert b"aborted" not in seen
        assert len(seen) == 200


def test_a_copy_has_no_writer(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        fill(log, 1000)
        shutil.copytree(tmp_path / "t-0", tmp_path / "copy-0")
        assert kstore.open(tmp_path / "copy-0").recovery.recovered_segments == [0]
