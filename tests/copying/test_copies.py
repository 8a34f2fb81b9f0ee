"""A copy of a partition has what its source has, and needs no recovery."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.golden.scenarios import Scenario, scenarios
from tests.helpers.effort import SEED, some, times

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")

# Kafka serves some of them as they are, and cuts sound batches off others.
DAMAGED = ("clean_garbage_tail", "crash_below_recovery_point", "crash_bad_crc", "crash_middle_segment")


def content(path: Path) -> dict[str, Any]:
    """Everything that readers find in a partition."""
    with kstore.open(path) as log:
        return {
            "bounds": (log.log_start_offset, log.log_end_offset, log.last_stable_offset()),
            "epochs": log.leader_epochs,
            "topic_id": log.topic_id(),
            "batches": [batch.data for batch in log.batches()],
            "committed": [record.offset for record in log.records(isolation="read_committed")],
            "bases": [segment.base_offset for segment in log.segments],
            "times": [segment.max_timestamp_so_far for segment in log.segments],
            "producers": sorted(  # a snapshot has the last batch of each
                (state.producer_id, state.producer_epoch, state.last_timestamp, list(state.batches)[-1:])
                for state in log.producers().values()
            ),
        }


def check_clean(path: Path) -> None:
    with kstore.open(path) as log:
        assert log.recovery.clean or path.name.startswith("__cluster_metadata")
        assert log.recovery.findings == []


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
def test_golden_directories(scenario: Scenario, tmp_path: Path) -> None:
    source, copy = scenario.shared(), tmp_path / scenario.partition
    if scenario.name in DAMAGED:
        with pytest.raises(kstore.CorruptFileError, match=r"\.log(: at byte| are left out)"):
            kstore.copy(source, copy)
        assert not copy.exists()
        report = kstore.copy(source, copy, on_error="skip")
        assert len(report.gaps) == 1
        with kstore.open(source, recover=False) as log:
            sound = [record.offset for record in log.records(on_error="skip")]
        assert [record.offset for record in kstore.open(copy)] == sound
        return
    report = kstore.copy(source, copy)
    expected = content(source)
    if scenario.name == "clean_files_lost":  # of which the copy has new ones
        expected["times"] = content(copy)["times"]
    assert content(copy) == expected
    assert (report.partitions[scenario.partition].end) == kstore.open(source).log_end_offset
    check_clean(copy)
    with kstore.open(copy, "r+") as log:  # a writer finds nothing to repair
        assert log.recovery.findings == []
    assert content(copy) == expected


def rows(path: Path, *bounds: int, **options: Any) -> list[tuple[Any, ...]]:
    with kstore.open(path) as log:
        return [
            (record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in log.records(*bounds, **options)
        ]


@pytest.mark.parametrize(
    "scenario",
    # KRaft's log has no log start offset in a checkpoint
    [each for each in scenarios() if each.name not in DAMAGED and "__cluster_metadata" not in each.name],
    ids=str,
)
def test_ranges_and_rewritten_copies(scenario: Scenario, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} {scenario}")
    source = scenario.shared()
    with kstore.open(source) as log:
        lower, upper = log.log_start_offset, log.log_end_offset
    everything = rows(source)
    for number in range(times(3)):
        copy = tmp_path / f"{number}" / scenario.partition
        copy.parent.mkdir()
        start, stop = sorted((rng.randint(lower, upper), rng.randint(lower, upper)))
        codec: Any = rng.choice([None, None, "none", "gzip", "snappy", "lz4", "zstd"])
        kstore.copy(source, copy, start=start, stop=stop, compression=codec)
        assert rows(copy) == [row for row in everything if start <= row[0] < stop], (start, stop, codec)
        check_clean(copy)
        if codec is not None:
            assert {batch.codec for batch in kstore.open(copy).batches() if batch.records()} <= {
                codec,
                "none",
            }
    kstore.copy(source, tmp_path / "renumbered-0", renumber=True)
    committed = rows(source, isolation="read_committed")
    assert rows(tmp_path / "renumbered-0") == [(at, *row[1:]) for at, row in enumerate(committed)]
    check_clean(tmp_path / "renumbered-0")


def make_log(path: Path, count: int = 1000) -> None:
    with kstore.open(
        path, "a", config=kstore.LogConfig(internal_segment_bytes=10_000, retention_ms=10**15)
    ) as log:
        for at in range(count):
            log.append(b"%d" % at * 20, key=b"%d" % (at % 7), timestamp=1_700_000_000_000 + at)


def test_times(tmp_path: Path) -> None:
    make_log(tmp_path / "t-0")
    first = 1_700_000_000_000
    kstore.copy(tmp_path / "t-0", tmp_path / "part-0", since=first + 250, until=first + 700)
    assert [row[0] for row in rows(tmp_path / "part-0")] == list(range(250, 700))
    report = kstore.copy(tmp_path / "t-0", tmp_path / "none-0", since=first + 5000)
    assert report.partitions["t-0"][:2] == (1000, 1000)
    with kstore.open(tmp_path / "none-0", "a") as log:  # and goes on where the source would
        assert log.append(b"next") == 1000


def test_times_without_records(tmp_path: Path) -> None:
    """A transaction marker is no record of its time, nor is a segment that compaction has emptied."""
    first = 1_700_000_000_000

    def batch(at: int, count: int, **options: Any) -> bytes:
        return kstore.encode_batch(
            [(first + at + number, b"k%d" % number, b"v" * 200, None) for number in range(count)],
            producer_epoch=0,
            **options,
        )

    with kstore.open(
        tmp_path / "t-0",
        "a",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0,
        internal_segment_bytes=1000,
    ) as log:
        log.append_batches(batch(5000, 4, producer_id=8, base_sequence=0))  # is compacted away
        log.roll()
        log.append_batches(batch(3000, 4, producer_id=9, base_sequence=0, transactional=True))
        marker = [(first + 7000, b"\0\0\0\1", bytes(6), None)]
        log.append_batches(
            kstore.encode_batch(marker, producer_id=9, producer_epoch=0, transactional=True, control=True),
            origin="coordinator",
            transaction_version=1,
        )
        log.roll()
        log.extend(
            [b"new"] * 10,
            [b"n%d" % at for at in range(10)],
            timestamps=[first + 6000 + at for at in range(10)],
        )
        log.roll()
        log.compact()
        assert log.segments[0].size == 0  # a lookup takes the time of its file
    everything = rows(tmp_path / "t-0")
    for at in (4500, 5500, 6005, 6500):
        expected = next((row[0] for row in everything if row[1] >= first + at), 19)
        kstore.copy(tmp_path / "t-0", tmp_path / f"{at}-since", since=first + at)
        kstore.copy(tmp_path / "t-0", tmp_path / f"{at}-until", until=first + at)
        assert rows(tmp_path / f"{at}-since") == [row for row in everything if row[0] >= expected], at
        assert rows(tmp_path / f"{at}-until") == [row for row in everything if row[0] < expected], at


def test_a_sealed_segment_is_copied_once(tmp_path: Path) -> None:
    source, copy = tmp_path / "t-0", tmp_path / "copy-0"
    make_log(source)
    first = kstore.copy(source, copy)
    size = sum(segment.size for segment in kstore.open(source).segments)
    assert (first.copied_bytes, first.reused_bytes) == (size, 0)
    with kstore.open(source, "a") as log:
        log.extend([b"more"] * 100)
    second = kstore.copy(source, copy)
    sizes = [segment.size for segment in kstore.open(source).segments]
    assert second.copied_bytes == sum(sizes[-2:])  # the one that was active before is sealed now
    assert second.reused_bytes == sum(sizes[:-2])
    third = kstore.copy(source, copy)
    assert (third.copied_bytes, third.reused_bytes) == (sizes[-1], sum(sizes[:-1]))
    assert content(copy) == content(source)
    with kstore.open(source, "r+") as log:
        log.delete_records(500)
        log.retain()
        log.truncate_to(950)
    kstore.copy(source, copy)
    assert content(copy) == content(source)
    check_clean(copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy-0", "t-0"]


def test_zeros_for_a_size(tmp_path: Path) -> None:
    """A batch without a size costs the copy this batch only, whichever segment it is in."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=4000) as log:
        for number in range(100):
            log.append(b"%d" % number)
        segments = [log.segments[0], log.segments[-1]]
    for segment in segments:
        path = Path(segment.path)
        data = bytearray(path.read_bytes())
        at = segment.batch_at(0).size
        data[at : at + 16] = bytes(16)
        path.write_bytes(data)
    report = kstore.copy(tmp_path / "t-0", tmp_path / "copy-0", on_error="skip")
    lost = {segment.base_offset + 1 for segment in segments}
    assert [row[0] for row in rows(tmp_path / "copy-0")] == sorted({*range(100)} - lost)
    assert len(report.gaps) == 2
    again = kstore.copy(tmp_path / "t-0", tmp_path / "copy-0", on_error="skip")  # reuses no damaged segment
    assert again.gaps == report.gaps
    with pytest.raises(kstore.CorruptRecordError):
        kstore.copy(tmp_path / "t-0", tmp_path / "copy-0")


@pytest.mark.parametrize("is_directory", [True, False])
@pytest.mark.parametrize("name", ["recovery-point", "log-start", "cleaner", "replication"])
def test_a_checkpoint_that_cannot_be_read(tmp_path: Path, name: str, is_directory: bool) -> None:
    """It costs the copy only what is known from it, and the copy is not complete."""
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (data / "cleaner-offset-checkpoint").write_text("0\n0\n")
    with kstore.open(data / "t-0", "a") as log:
        log.extend([b"v"] * 100)
        log.delete_records(10)
    file = data / f"{name}-offset-checkpoint"
    file.unlink()
    if is_directory:
        file.mkdir()
    else:
        file.write_text("xyz")
    with pytest.raises((OSError, kstore.CorruptCheckpointError), match=file.name):
        kstore.copy(data, tmp_path / "copy")
    report = kstore.copy(data, tmp_path / "copy", on_error="skip")
    assert (list(report.left_out), report.is_complete) == ([file.name], False)
    first = 0 if name == "log-start" else 10
    assert [row[0] for row in rows(tmp_path / "copy" / "t-0")] == [*range(first, 100)]
    problems = {each.code for each in kstore.check(tmp_path / "copy").problems()}
    assert problems == ({"epochs_begin_later"} if first == 0 else set())


def test_a_destination_that_is_something_else(tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    make_log(source)
    other = tmp_path / "other-0"
    make_log(other, 10)
    with pytest.raises(FileExistsError, match="no copy"):
        kstore.copy(source, other)
    kstore.copy(source, tmp_path / "copy-0")
    with kstore.open(tmp_path / "copy-0", "a") as log:
        log.append(b"own")
    with pytest.raises(FileExistsError, match="changed since it was copied"):
        kstore.copy(source, tmp_path / "copy-0")
    assert kstore.open(tmp_path / "copy-0").log_end_offset == 1001
    with pytest.raises(ValueError, match="inside each other"):
        kstore.copy(source, source / "copy-0")
    with pytest.raises(ValueError, match="topic needs a log directory"):
        kstore.copy(source, tmp_path / "new-0", topic="t")
    with pytest.raises(kstore.LogNotFoundError):
        kstore.copy(tmp_path / "nothing-0", tmp_path / "new-0")
    assert len(rows(other)) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy-0", "other-0", "t-0"]


def test_a_link_as_destination(tmp_path: Path) -> None:
    """A copy takes the place of what a link leads to; a link to nowhere is refused before the copy."""
    make_log(tmp_path / "t-0", 10)
    link, place = tmp_path / "link", tmp_path / "place-0"
    link.symlink_to(place)
    with pytest.raises(FileExistsError, match="link to nowhere"):
        kstore.copy(tmp_path / "t-0", link)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "t-0"]
    place.mkdir()
    for _ in range(2):
        kstore.copy(tmp_path / "t-0", link)
        assert link.is_symlink()
        assert len(rows(place)) == 10


def make_store(path: Path) -> None:
    with kstore.LogStore(path, mode="a") as store:
        store.create_topic("orders", 3, internal_segment_bytes=5000, retention_ms=10**15)
        store.create_topic("users", 1, cleanup_policy="compact")
        keys = [b"%d" % at for at in range(500)]
        store.extend("orders", keys, keys)
        store.extend("users", keys, keys)
        with store.cursor("billing", ["orders"]) as cursor:
            for _ in range(200):
                cursor.commit(next(iter(cursor)))


@pytest.mark.parametrize("name", ["t-1", "t-7", "other"])
def test_share_groups_of_another_number(name: str, tmp_path: Path) -> None:
    """The number of its partition is part of a share group's state."""
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("t", 2)
        store.log("t", 1).extend([b"%d" % number for number in range(20)])
        with store.share_group("jobs", ["t"]) as group:
            for _, record in zip(range(5), group, strict=False):
                group.acknowledge(record)
        expected = store.log("t", 1).share_groups()["jobs"]
    kstore.copy(tmp_path / "data" / "t-1", tmp_path / name)
    assert kstore.open(tmp_path / name).share_groups() == {"jobs": expected}
    assert kstore.check(tmp_path / name).is_whole


def described(path: Path) -> dict[str, Any]:
    with kstore.LogStore(path) as store:
        return {
            "topics": store.topics,
            "options": {name: store.describe(name).options for name in store.topics},
            "cursors": store.cursors(),
            "health": store.health().ok,
            "content": {str(tp): content(Path(store.log(*tp).path)) for tp in store.partitions},
        }


@pytest.mark.parametrize("name", ["data", "data-0"])
def test_a_store_without_topics(name: str, tmp_path: Path) -> None:
    source, copy = tmp_path / "source" / name, tmp_path / "backup" / name
    copy.parent.mkdir()
    kstore.LogStore(source, mode="a").close()
    assert kstore.copy(source, copy).partitions == {}
    with kstore.LogStore(source, mode="a") as store:
        store.create_topic("t")
        store.append("t", b"v")
    assert kstore.copy(source, copy).partitions.keys() == {"t-0"}
    with kstore.LogStore(source, mode="a") as store:
        store.delete_topic("t")
    shutil.rmtree(copy)
    assert kstore.copy(source, copy).partitions == {}
    assert described(copy) == described(source)


def test_stores(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    report = kstore.copy(tmp_path / "data", tmp_path / "backup")
    assert described(tmp_path / "backup") == described(tmp_path / "data")
    assert sorted(report.partitions) == ["orders-0", "orders-1", "orders-2", "users-0"]
    with kstore.LogStore(tmp_path / "backup", mode="a") as store:
        assert store.closed_cleanly or store.append("users", b"v", key=b"k") is not None

    kstore.copy(tmp_path / "data", tmp_path / "one", topic="orders")
    one, all_ = described(tmp_path / "one"), described(tmp_path / "data")
    assert list(one["topics"]) == ["orders"]
    assert one["options"]["orders"] == all_["options"]["orders"]
    assert one["cursors"] == all_["cursors"]

    kstore.copy(tmp_path / "data" / "orders-1", tmp_path / "alone-0")
    with kstore.open(tmp_path / "alone-0", "a") as log:
        assert log.config.effective_segment_bytes == 5000  # the options of its topic go with it


def test_no_run_removes_a_partition(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    make_store(data)
    kstore.copy(data, backup)
    kstore.copy(data / "users-0", tmp_path / "alone-0")
    before = described(backup)
    shutil.rmtree(data / "orders-1")
    with kstore.LogStore(data, mode="a") as store:
        store.delete_topic("users")
    for source, topic, destination, lost in (
        (data, None, backup, r"\(users-0\)"),
        (data, "orders", backup, r"\(users-0\)"),
        (data / "orders-0", None, backup, r"\(orders-0, orders-1, orders-2, users-0\)"),
        (data, None, tmp_path / "alone-0", r"\(alone-0\)"),
    ):
        with pytest.raises(FileExistsError, match=lost):
            kstore.copy(source, destination, topic=topic)
    assert described(backup) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone-0", "backup", "data"]
    for name in ("orders-1", "users-0"):  # as the error says
        shutil.rmtree(backup / name)
    kstore.copy(data, backup)
    assert sorted(path.name for path in backup.glob("*-?")) == ["orders-0", "orders-2"]


@pytest.mark.parametrize("name", some(["broker", "broker_killed", "broker_running"], 3), ids=str)
def test_brokers(name: str, tmp_path: Path) -> None:
    [first, *_] = [each for each in scenarios() if each.name.startswith(f"{name}/")]
    source = first.unpack(tmp_path / "source").parent
    report = kstore.copy(source, tmp_path / "copy")
    assert all(name.endswith("-delete") for name in report.left_out)
    for path in source.glob("*-*"):
        if path.is_dir() and path.name not in report.left_out:
            assert content(tmp_path / "copy" / path.name) == content(path), path.name
            check_clean(tmp_path / "copy" / path.name)
    assert (tmp_path / "copy" / "meta.properties").read_text() == (source / "meta.properties").read_text()
