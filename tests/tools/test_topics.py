"""The commands about topics of a log directory."""

import json
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    try:
        code = main([str(arg) for arg in args])
    except SystemExit as e:
        code = int(e.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_topic_from_its_making_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    config = ("--config", "retention.ms=5000", "--config", "cleanup.policy=compact,delete")
    assert run(capsys, "create", data, "orders", "--partitions", 3, *config) == (0, "", "")
    assert run(capsys, "create", data, "other")[0] == 0
    assert run(capsys, "topics", data) == (
        0,
        "orders  3 partitions  retention.ms=5000  cleanup.policy=compact,delete\nother  1 partition\n",
        "",
    )
    with kstore.LogStore(data, mode="a") as store:
        store.append("orders", b"v", b"k")
    changes = ("--partitions", 4, "--config", "segment.bytes=2097152", "--delete-config", "retention.ms")
    assert run(capsys, "alter", data, "orders", *changes) == (0, "", "")
    both = ("--config", "retention.ms=7", "--delete-config", "retention.ms")
    code, _, told = run(capsys, "alter", data, "orders", *both)
    assert (code, "retention.ms is given by --config and by --delete-config" in told) == (2, True)
    code, out, _ = run(capsys, "describe", data, "orders", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["config"] == {"cleanup.policy": "compact,delete", "segment.bytes": "2097152"}
    assert [each["log_end_offset"] for each in told["partitions"]].count(1) == 1
    assert [each["path"] for each in told["partitions"]] == [str(data / f"orders-{n}") for n in range(4)]
    code, out, _ = run(capsys, "describe", data, "orders")
    assert out.splitlines()[0] == "orders: cleanup.policy=compact,delete, segment.bytes=2097152"
    assert out.count("offsets 0 to 1 (exclusive), 1 segment, ") == 1
    assert run(capsys, "delete", data, "orders") == (0, "", "")
    assert json.loads(run(capsys, "topics", data, "--json")[1]) == {
        "topic": "other",
        "partitions": [0],
        "config": {},
    }
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["other-0"]


def test_several_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dirs = (tmp_path / "a", "--also", tmp_path / "b")
    assert run(capsys, "create", dirs[0], "t", *dirs[1:], "--partitions", 2)[0] == 0
    assert [len(list((tmp_path / name).glob("t-*"))) for name in "ab"] == [1, 1]
    assert "2 partitions" in run(capsys, "topics", *dirs)[1]
    assert run(capsys, "delete", dirs[0], "t", *dirs[1:])[0] == 0


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        found, out, err = run(capsys, *args)
        assert (found, out) == (code, ""), args
        assert err
    assert list(data.glob("t-*")) == []
    assert run(capsys, "create", data, "t")[0] == 0
    assert "there is a topic t" in run(capsys, "create", data, "t")[2]
    with kstore.LogStore(data, mode="a"):
        code, _, err = run(capsys, "delete", data, "t")
        assert code == 1
        assert "lock" in err
        assert run(capsys, "topics", data)[0] == 0
