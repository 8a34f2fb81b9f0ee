"""kstore shares, and dumps of states."""

import json
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two groups."""
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("jobs", partitions=2)
        for partition in range(2):
            log = store.log("jobs", partition)
            assert isinstance(log, kstore.LogWriter)
            log.extend([b"v"] * 5)
        with store.share_group("g", ["jobs"]) as group:
            jobs = iter(group)
            for _ in range(3):
                group.acknowledge(next(jobs))
            group.release(next(jobs))
            next(jobs)
    return tmp_path / "data"


def test_list(data: Path) -> None:
    with kstore.open(data / "jobs-0").share_group("other", start=2):
        pass
    done = run_command("shares", data)
    assert done.returncode == 0
    heads, *rows = [line.split() for line in done.stdout.splitlines()]
    assert heads == ["GROUP", "TOPIC", "PARTITION", "START", "END", "ACQUIRED", "AVAILABLE", "LAG"]
    assert [row[:3] for row in rows] == [["g", "jobs", "0"], ["g", "jobs", "1"], ["other", "jobs", "0"]]
    assert sum(int(row[-1]) for row in rows) == 7 + 3
    one = json.loads(run_command("shares", data / "jobs-0", "--group", "other", "--json").stdout)
    assert one == {
        "group": "other", "topic": "jobs", "partition": 0, "start_offset": 2, "end_offset": 2, "acquired": 0,
        "available": 0, "lag": 3,
    }  # fmt: skip


def test_nothing(data: Path, tmp_path: Path) -> None:
    done = run_command("shares", data, "--group", "none")
    assert (done.returncode, done.stdout, "no share group 'none'" in done.stderr) == (1, "", True)
    assert run_command("shares", tmp_path / "none").returncode == 1
    assert run_command("shares", data, "--forget").returncode == 2


def test_forget(data: Path) -> None:
    """A group with a worker is not forgotten."""
    with kstore.open(data / "jobs-1").share_group("g"):
        done = run_command("shares", data, "--group", "g", "--forget")
        assert (done.returncode, "share group 'g'" in done.stderr) == (1, True)
    assert run_command("shares", data, "--group", "g", "--forget").returncode == 0
    assert run_command("shares", data).stdout == ""


def test_dump(data: Path) -> None:
    """The records are those of Kafka's share coordinator, and the room behind them is no damage."""
    path = data / "jobs-0/kstore-shares/g.state"
    done = run_command("dump", "--share-group-state-decoder", "--skip-record-metadata", path)
    assert (done.returncode, done.stderr) == (0, "")
    payloads = [line.split("payload: ")[1] for line in done.stdout.splitlines() if "payload" in line]
    states = [json.loads(payload)["data"]["stateBatches"] for payload in payloads]
    assert states[0] == []
    assert states[1] == [{"firstOffset": 0, "lastOffset": 0, "deliveryState": 1, "deliveryCount": 1}]
    assert states[2] == [{"firstOffset": 0, "lastOffset": 0, "deliveryState": 2, "deliveryCount": 1}]


def test_the_lag_counts_no_deleted_records(tmp_path: Path) -> None:
    """As store.lag and cursor.lag do."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 100)
        cursor = store.log("t").cursor("g")
        cursor.commit(next(iter(cursor)))
        with store.share_group("g", ["t"]) as group:
            group.acknowledge(next(iter(group)))
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        log.delete_records(50)
        assert (cursor.lag, store.lag("g")) == (50, {("t", 0): 50})
        cursor.close()
        with store.cursor("g", ["t"]) as members:
            assert members.lag() == {("t", 0): 50}
        for command in ["cursors", "--json"], ["shares", "--json"], ["top", "--json", "--count", "1"]:
            (line,) = run_command(command[0], tmp_path, *command[1:]).stdout.splitlines()
            assert json.loads(line)["lag"] == 50, command
