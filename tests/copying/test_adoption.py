"""Adoption by a broker's directory, which here is made as a broker leaves it: tests/broker has a real one."""

import errno
import shutil
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.testing
from kstore.store.consumer_offsets import committed_in
from tests.helpers.calls import FAILURES, ends
from tests.helpers.processes import Program, run_command

# of a partition whose checkpoints are there and whose records are not yet
pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")


def make_broker(path: Path, *partitions: str) -> Path:
    """The log directory of a broker that was stopped, with empty partitions."""
    path.mkdir()
    ids: dict[str, uuid.UUID] = {}
    for name in partitions:
        topic = name.rpartition("-")[0]
        topic_id = ids.setdefault(topic, uuid.uuid4())
        kstore.open(path / name, "a", topic_id=topic_id, config=kstore.LogConfig(), leader_epoch=0).close()
        for own in (".lock", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "kstore.json"):
            (path / name / own).unlink(missing_ok=True)
    (path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} 0\n" for name in partitions]
    (path / "recovery-point-offset-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')
    return path


KILLS = ((errno.EIO, "kill"), (errno.EIO, "kill_half"))
OFFSETS = [f"__consumer_offsets-{number}" for number in range(3)]


def make_store(path: Path) -> Path:
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("orders", 2, retention_ms=-1, internal_segment_bytes=3000)
        numbers = [b"%d" % number for number in range(500)]
        store.extend("orders", numbers, numbers)
        store.log("orders", 1).delete_records(50)  # type: ignore[attr-defined]
        for group in ("billing", "mailer"):
            with store.cursor(group, ["orders"]) as cursor:
                for record in cursor:
                    cursor.commit(record)
    return path


def rows(path: Path) -> list[Any]:
    with kstore.open(path) as log:
        return [log.log_start_offset, log.log_end_offset, *log.records()]


def check_adopted(store: Path, broker: Path) -> None:
    for number in range(2):
        path = broker / f"orders-{number}"
        assert rows(path) == rows(store / f"orders-{number}")
        with kstore.open(path) as log:
            assert log.recovery.clean
            assert log.recovery.findings == []
            assert log.leader_epochs == ((0, log.log_start_offset),)
            assert {batch.leader_epoch for batch in log.batches()} == {0}
            assert log.topic_id() == kstore.open(broker / "orders-0").topic_id()
        assert not (path / "kstore.json").exists()
        assert not (path / "kstore-copy.jsonl").exists()
    with kstore.LogStore(store) as opened:
        expected = opened.cursors()
    found = committed_in(broker)
    assert {group: {tp: at.offset for tp, at in each.items()} for group, each in found.items()} == {
        group: {tp: at.offset for tp, at in each.items()} for group, each in expected.items()
    }
    assert all(at.leader_epoch <= 0 for each in found.values() for at in each.values())
    names = {path.name for path in broker.iterdir() if path.is_dir()}
    assert names == {"orders-0", "orders-1", *OFFSETS}
    lines = (broker / "log-start-offset-checkpoint").read_text().splitlines()
    assert lines[2:] == ["orders 1 50"]


def test_adoption(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    broker = make_broker(tmp_path / "broker", "orders-0", "orders-1", *OFFSETS)
    before = {path: path.read_bytes() for path in broker.rglob("*") if path.is_file()}
    planned = kstore.adopt(store, broker, dry_run=True)
    assert {path: path.read_bytes() for path in broker.rglob("*") if path.is_file()} == before
    done = kstore.adopt(store, broker)
    assert done == planned
    assert set(done.positions) == {"billing", "mailer"}
    check_adopted(store, broker)
    again = kstore.adopt(store, broker)
    assert again.notes == ("orders-0 is adopted already", "orders-1 is adopted already")
    assert again.positions == {}
    check_adopted(store, broker)
    with kstore.open(broker / "orders-0", "a", config=kstore.LogConfig(), leader_epoch=0) as log:
        log.append(b"of the broker")
    with pytest.raises(ValueError, match="orders-0 has records, up to offset"):
        kstore.adopt(store, broker)


def test_commands(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    broker = make_broker(tmp_path / "broker", "orders-0")
    told = run_command("adopt", store, "--into", broker, "--bootstrap-server", "b:1")
    assert told.returncode == 1
    assert told.stderr.startswith("kstore: nothing was changed. Start the broker")
    assert told.stdout.splitlines() == [
        "kafka-topics.sh --bootstrap-server b:1 --alter --topic orders --partitions 2",
        "kafka-consumer-groups.sh --bootstrap-server b:1 --describe --group kstore-adopt",
    ]
    empty = make_broker(tmp_path / "empty")
    assert kstore.adopt(store, empty).commands[0] == (
        "kafka-topics.sh --bootstrap-server localhost:9092 --create --topic orders --partitions 2 "
        "--replication-factor 1 --config retention.ms=-1"
    )
    ready = make_broker(tmp_path / "ready", "orders-0", "orders-1", *OFFSETS)
    assert run_command("adopt", store, "--into", ready, "--dry-run").stdout.splitlines() == [
        f"orders-0 would be adopted: {ready}/orders-0",
        f"orders-1 would be adopted: {ready}/orders-1",
        "group billing: 2 positions would be written",
        "group mailer: 2 positions would be written",
    ]
    assert run_command("adopt", store, "--into", ready).returncode == 0
    check_adopted(store, ready)


def test_options_that_would_delete_records(tmp_path: Path) -> None:
    """A store without retention_ms deletes nothing by age, a broker does; so might its own options."""
    golden = Path(__file__).parents[1] / "golden/data/broker/data"
    broker = make_broker(tmp_path / "broker", "idle-0", "bounded-0")
    shutil.copytree(golden / "__cluster_metadata-0", broker / "__cluster_metadata-0")
    for name in ("idle-0", "bounded-0"):  # retention.ms=1234567; retention.bytes=6000 and sizes of the index
        shutil.copy(golden / name / "partition.metadata", broker / name / "partition.metadata")
    with kstore.LogStore(tmp_path / "store", mode="a", background=False) as store:
        store.create_topic("bounded", retention_ms=604_800_000)
        store.create_topic("idle")
        store.create_topic("fresh")
        store.create_topic("users", cleanup_policy="compact")
    create = "kafka-topics.sh --bootstrap-server localhost:9092 --create --topic {} --partitions 1"
    alter = "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name {}"
    assert kstore.adopt(tmp_path / "store", broker).commands == (
        f"{alter.format('bounded')} --add-config retention.bytes=-1,retention.ms=604800000",
        f"{create.format('fresh')} --replication-factor 1 --config retention.ms=-1",
        f"{alter.format('idle')} --add-config retention.ms=-1",
        f"{create.format('users')} --replication-factor 1 --config cleanup.policy=compact",
    )


def test_what_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    broker = make_broker(tmp_path / "broker", "orders-0", "orders-1", "orders-2", *OFFSETS)
    with pytest.raises(ValueError, match="has orders-2, and the store has 2 partitions"):
        kstore.adopt(store, broker)
    shutil.rmtree(broker / "orders-2")
    with (
        kstore.LogStore(store, mode="a", background=False),
        pytest.raises(kstore.LogLockedError, match="store"),
    ):
        kstore.adopt(store, broker)
    with pytest.raises(ValueError, match="not a log directory of a broker"):
        kstore.adopt(store, tmp_path)
    with pytest.raises(kstore.LogNotFoundError, match="no topic 'none'"):
        kstore.adopt(store, broker, topics=["none"])
    (tmp_path / "empty").mkdir()
    told = run_command("adopt", tmp_path / "empty", "--into", broker)
    assert (told.returncode, told.stdout) == (1, "")
    assert f"nothing to adopt: {tmp_path}/empty has no topic" in told.stderr
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, 2); print(flush=True); input()"
    with Program(program, broker / ".lock"), pytest.raises(kstore.LogLockedError, match="broker"):
        kstore.adopt(store, broker)
    kstore.adopt(store, broker)
    check_adopted(store, broker)


@pytest.mark.parametrize("ways", [FAILURES, KILLS], ids=["fails", "kills"])
def test_each_call_that_fails(tmp_path: Path, ways: Sequence[tuple[int, str]]) -> None:
    """Each partition is the broker's empty one or complete, and the next run completes the adoption."""
    store = make_store(tmp_path / "store")
    kept = make_broker(tmp_path / "kept", "orders-0", "orders-1", *OFFSETS)
    broker = tmp_path / "broker"
    shutil.copytree(kept, broker)
    count = kstore.testing.count_calls(lambda: kstore.adopt(store, broker))
    for end in ends(count, 25, "adopt", ways):
        shutil.rmtree(broker)
        shutil.copytree(kept, broker)
        end.of(lambda: kstore.adopt(store, broker))
        paths = [broker / f"orders-{number}" for number in range(2)]
        there = {path.name: rows(path) for path in paths if path.exists()}
        for name, found in there.items():
            assert found[0] == found[1] or found == rows(store / name), end
        with warnings.catch_warnings():
            warnings.simplefilter("error", kstore.DataLossWarning)  # nothing was lost
            kstore.adopt(store, broker)
        check_adopted(store, broker)
