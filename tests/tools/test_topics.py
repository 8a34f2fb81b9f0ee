"""The commands about topics of a log directory."""

import json
from pathlib import Path

import pytest

import kstore
from tests.tools.conftest import Run


def test_a_topic_from_its_making_to_its_end(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    config = ("--config", "retention.ms=5000", "--config", "cleanup.policy=compact,delete")
    assert run("create", data, "orders", "--partitions", 3, *config) == (0, "", "")
    assert run("create", data, "other")[0] == 0
    assert run("topics", data) == (
        0,
        "orders  3 partitions  retention.ms=5000  cleanup.policy=compact,delete\nother  1 partition\n",
        "",
    )
    with kstore.LogStore(data, mode="a") as store:
        store.append("orders", b"v", b"k")
    changes = ("--partitions", 4, "--config", "segment.bytes=2097152", "--delete-config", "retention.ms")
    assert run("alter", data, "orders", *changes) == (0, "", "")
    both = ("--config", "retention.ms=7", "--delete-config", "retention.ms")
    code, _, told = run("alter", data, "orders", *both)
    assert (code, "retention.ms is given by --config and by --delete-config" in told) == (2, True)
    code, out, _ = run("describe", data, "orders", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["config"] == {"cleanup.policy": "compact,delete", "segment.bytes": "2097152"}
    assert [each["log_end_offset"] for each in told["partitions"]].count(1) == 1
    assert [each["path"] for each in told["partitions"]] == [str(data / f"orders-{n}") for n in range(4)]
    code, out, _ = run("describe", data, "orders")
    assert out.splitlines()[0] == "orders: cleanup.policy=compact,delete, segment.bytes=2097152"
    assert out.count("offsets 0 to 1 (exclusive), 1 segment, ") == 1
    assert run("delete", data, "orders") == (0, "", "")
    assert json.loads(run("topics", data, "--json")[1]) == {"topic": "other", "partitions": [0], "config": {}}
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["other-0"]


def test_several_directories(tmp_path: Path, run: Run) -> None:
    dirs = (tmp_path / "a", "--also", tmp_path / "b")
    assert run("create", dirs[0], "t", *dirs[1:], "--partitions", 2)[0] == 0
    assert [len(list((tmp_path / name).glob("t-*"))) for name in "ab"] == [1, 1]
    assert "2 partitions" in run("topics", *dirs)[1]
    assert run("delete", dirs[0], "t", *dirs[1:])[0] == 0


def test_what_is_refused(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    for args, code in [
        (("topics", data), 1),
        (("describe", data, "t"), 1),
        (("delete", data, "t"), 1),
        (("alter", data, "t", "--partitions", 2), 1),
        (("alter", data, "t"), 2),
        (("create", data, "a b"), 2),
        (("create", data, "t", "--partitions", 0), 2),
        (("create", data, "t", "--config", "retention.ms"), 2),
        (("create", data, "t", "--config", "retention_ms=1"), 2),
    ]:
        found, out, err = run(*args)
        assert (found, out) == (code, ""), args
        assert err
    assert list(data.glob("t-*")) == []
    assert run("create", data, "t")[0] == 0
    assert "there is a topic t" in run("create", data, "t")[2]
    with kstore.LogStore(data, mode="a"):
        code, _, err = run("delete", data, "t")
        assert code == 1
        assert "lock" in err
        assert run("topics", data)[0] == 0


@pytest.mark.parametrize("target", ["nowhere", "new-0"])
def test_a_link_to_nothing_stops_no_other_change(tmp_path: Path, run: Run, target: str) -> None:
    run("create", tmp_path, "old")
    (tmp_path / "new-0").symlink_to(target)
    code, out, err = run("create", tmp_path, "new")
    assert (code, out) == (2, "")
    assert f"cannot be made: there is {tmp_path}/new-0" in err
    assert run("create", tmp_path, "other") == (0, "", "")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_in_the_way_of_a_change_is_named(tmp_path: Path, run: Run, kind: str) -> None:
    way = tmp_path / "new-0"
    table = {
        "version": 1,
        "number": 2,
        "topics": {"new": {"partitions": 1, "config": {}}},
        "change": {"topic": "new", "delete": False, "make": {"0": str(tmp_path)}},
    }
    (tmp_path / "kstore.json").write_text(json.dumps(table))
    way.symlink_to("nowhere") if kind == "link" else way.write_bytes(b"")
    code, _, err = run("create", tmp_path, "other")
    assert code == 1
    assert "is in the way of a new partition: move it away, then open the store for writing again" in err
    assert str(way) in err
    way.unlink()
    assert run("create", tmp_path, "other") == (0, "", "")
    assert way.is_dir()
