"""kstore transactions: which are open, whose they are, and their end."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import COMMANDS
from tests.helpers.files import flip
from tests.helpers.markers import marker, transactional
from tests.helpers.processes import Program
from tests.tools.conftest import Run

GOLDEN = Path(__file__).parents[1] / "golden/data/broker/data"
assert "transactions" in COMMANDS


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Producer 7 has a transaction open in two partitions for an hour, producer 8 one in the first."""
    at = now_ms() - 3_600_000
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("t", 2)
        store.create_topic("u")
    for name, producers in (("t-0", (7, 8)), ("t-1", (7,)), ("u-0", ())):
        with kstore.open(tmp_path / "data" / name, "a") as log:
            log.append(b"plain", timestamp=at)
            for producer in producers:
                record = (at + producer, b"k", b"open", None)
                log.append_batches(transactional(record, producer=producer))
    return tmp_path / "data"


def listed(run: Run, *words: object) -> list[dict[str, object]]:
    code, out, _ = run("transactions", *words, "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def places(found: dict[str, object]) -> list[tuple[object, ...]]:
    partitions: Any = found["partitions"]
    return [(p["topic"], p["partition"], p["first_offset"]) for p in partitions]


def committed(path: Path) -> list[bytes | None]:
    return [record.value for record in kstore.open(path).records(isolation="read_committed")]


def test_open_transactions(data: Path, run: Run) -> None:
    seven, eight = listed(run, data)
    assert (seven["producer_id"], places(seven)) == (7, [("t", 0, 1), ("t", 1, 1)])
    assert (eight["producer_id"], places(eight)) == (8, [("t", 0, 2)])
    assert seven["transactional_id"] is seven["is_hanging"] is None
    assert [each["producer_id"] for each in listed(run, data, "--topic", "t", "--partition", "1")] == [7]
    assert [each["producer_id"] for each in listed(run, data / "t-0", "--producer-id", "8")] == [8]
    code, out, _ = run("transactions", data)
    assert (code, "open for 1.0 hours" in out, "t-1: from offset 1 on" in out) == (0, True, True)
    assert run("transactions", data / "u-0") == (0, "no transaction is open\n", "")
    with kstore.open(data / "u-0", "a") as log:  # by a clock that is ahead
        log.append_batches(transactional((now_ms() + 1_800_000, b"k", b"open", None), producer=7))
    assert re.search(
        r": open, since .*, (29.9|30.0) minutes from now$", run("transactions", data / "u-0")[1], re.MULTILINE
    )


def test_abort(data: Path, run: Run) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*.log")}
    code, out, _ = run("transactions", data, "--producer-id", "7", "--abort", "--dry-run")
    assert (code, out.count("would be aborted")) == (0, 2)
    assert {path: path.read_bytes() for path in data.rglob("*.log")} == before
    code, out, _ = run("transactions", data, "--producer-id", "7", "--abort")
    assert (code, out.count(" aborted\n")) == (0, 2)
    assert [each["producer_id"] for each in listed(run, data)] == [8]
    assert committed(data / "t-1") == [b"plain"]
    assert run("transactions", data / "t-0", "--producer-id", "8", "--abort", "--first-offset", "1")[0] == 1
    assert run("transactions", data / "t-0", "--producer-id", "8", "--abort", "--first-offset", "2")[0] == 0
    assert listed(run, data) == []
    for name, producers in (("t-0", {7, 8}), ("t-1", {7})):
        log = kstore.open(data / name)
        assert log.recovery.clean
        assert {txn.producer_id for txn in log.aborted_transactions(0, 100)} == producers
        assert {r.value for r in log} == {b"plain", b"open"}
        last = list(log.records(control=True))[-1]
        assert abs(last.timestamp - now_ms()) < 60_000
    assert run("transactions", data, "--producer-id", "7", "--abort")[0] == 1  # it has none any more


def test_nothing_is_changed_while_another_writes(data: Path, run: Run) -> None:
    before = (data / "t-0" / f"{0:020}.log").read_bytes()
    hold = (
        "import sys, kstore; store = kstore.LogStore(sys.argv[1], mode='a'); print('', flush=True); input()"
    )
    with Program(hold, data):
        code, _, err = run("transactions", data, "--producer-id", "7", "--abort")
        assert (code, "locked" in err or "open" in err) == (1, True)
        code, _, err = run("transactions", data, "--producer-id", "7", "--abort", "--dry-run")
        assert (code, "open for writing now" in err) == (0, True)
    assert (data / "t-0" / f"{0:020}.log").read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ["--abort"],
        ["--dry-run"],
        ["--first-offset", "1"],
        ["--producer-id", "7", "--abort", "--first-offset", "1"],
    ],
)
def test_wrong_words(data: Path, run: Run, words: list[str]) -> None:
    assert run("transactions", data, *words)[0] == 2


def state_record(status: int, partitions: list[int], producer: int = 7, epoch: int = 0) -> bytes:
    """A value of __transaction_state, version 0."""
    topic = b"\0\1t" + len(partitions).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in partitions)
    return (
        b"\0\0"
        + producer.to_bytes(8, "big")
        + epoch.to_bytes(2, "big")
        + (60_000).to_bytes(4, "big")
        + bytes([status])
        + (b"\0\0\0\1" + topic)
        + (now_ms() - 1000).to_bytes(8, "big")
        + (now_ms() - 7_200_000).to_bytes(8, "big")
    )


@pytest.mark.parametrize(
    ("state", "transactional_id", "hanging"),
    [
        ({"status": 1, "partitions": [0, 1]}, "pay", False),
        ({"status": 1, "partitions": [0]}, "pay", True),  # t-1 is not in it
        ({"status": 5, "partitions": [0, 1]}, "pay", True),  # it was ended
        ({"status": 3, "partitions": [0, 1], "epoch": 1}, "pay", False),  # its end bumps the epoch
        ({"status": 1, "partitions": [0, 1], "producer": 9}, None, True),
        (None, None, True),
    ],
    ids=str,
)
def test_the_coordinator(
    data: Path, run: Run, state: dict[str, Any] | None, transactional_id: str | None, hanging: bool | None
) -> None:
    with kstore.open(data / "__transaction_state-0", "a") as log:
        key = b"\0\0\0\3pay"
        log.append(state_record(1, [0, 1]), key)
        log.append(None if state is None else state_record(**state), key)
    found = listed(run, data, "--producer-id", "7")[0]
    assert (found["transactional_id"], found["is_hanging"]) == (transactional_id, hanging)
    text = run("transactions", data, "--producer-id", "7")[1]
    assert ("transactional id pay" in text) == (transactional_id is not None)
    assert ("hanging" in text) == (hanging is True)
    assert ("open for 2.0 hours" in text) == (hanging is False)


@pytest.mark.parametrize(("status", "partitions"), [(2, [0, 1]), (2, []), (4, [])])
def test_a_commit_that_was_decided_is_not_aborted(
    data: Path, run: Run, status: int, partitions: list[int]
) -> None:
    with kstore.open(data / "__transaction_state-0", "a") as log:
        log.append(state_record(status, partitions), b"\0\0\0\3pay")
    state = {2: "PrepareCommit", 4: "CompleteCommit"}[status]
    assert f"coordinator: {state}\n" in run("transactions", data)[1]
    advice = {f.remedy for f in kstore.check(data).findings if f.code == "hanging_transaction"}
    assert advice == {
        "kstore transactions --abort --producer-id 8 ends it",
        "its coordinator has committed it, so its marker may be lost: restore the partition from a copy",
    }  # of 8, and of 7
    for more in ([], ["--dry-run"]):
        code, _, err = run("transactions", data, "--producer-id", "7", "--abort", *more)
        assert (code, "decided to commit" in err) == (2, True)
    assert len(listed(run, data)) == 2


def test_a_damaged_partition_hides_no_other(data: Path, run: Run) -> None:
    (data / "t-0" / "kstore.json").write_text("x")
    (data / "t-0" / f"{0:020}.log").write_bytes(b"\xff" * 100)
    out = run("transactions", data)[1]
    assert "t-1: from offset 1 on" in out


def test_a_real_broker(tmp_path: Path, run: Run) -> None:
    """Its transactions all ended. Without its last marker one is open, and its coordinator does not end
    it."""
    data = Path(shutil.copytree(GOLDEN, tmp_path / "data"))
    assert listed(run, data) == []
    with kstore.open(data / "payments-0", "r+") as log:
        last = [b for b in log.batches() if b.is_control][-1]
        log.truncate_to(last.base_offset)
    [found] = listed(run, data)
    assert found["producer_id"] == last.producer_id
    assert found["transactional_id"] == "pay-1"
    assert (found["is_hanging"], found["coordinator_state"]) == (True, "CompleteCommit")
    assert run("transactions", data, "--producer-id", last.producer_id, "--abort")[0] == 2
    for path in data.glob("__transaction_state-*"):  # of a cluster whose coordinator is elsewhere
        shutil.rmtree(path)
    anyway = "--abort", "--without-coordinator"
    assert run("transactions", data, "--producer-id", last.producer_id, *anyway)[0] == 0
    assert listed(run, data) == []
    ours = [b for b in kstore.open(data / "payments-0").batches() if b.is_control][-1]
    theirs = marker("ABORT", last.producer_id, 0, producer_epoch=ours.producer_epoch)
    assert (ours.size, ours.attributes) == (len(theirs), last.attributes)


def _unlink_and_mkdir(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _append_what_does_not_parse(path: Path) -> None:
    with kstore.open(path, "r+") as log:
        log.append(b"\0\0", b"\0\0\0\5pay-1")


@pytest.mark.parametrize(
    "damage",
    [
        _append_what_does_not_parse,
        lambda path: flip(next(path.glob("*.log")), 100),
        lambda path: next(path.glob("*.log")).unlink(),
        lambda path: _unlink_and_mkdir(next(path.glob("*.log"))),
        lambda path: shutil.rmtree(path),
    ],
    ids=["record", "flip", "lost file", "unreadable", "lost partition"],
)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_the_state_of_the_coordinator_is_not_known(
    tmp_path: Path, run: Run, damage: Callable[[Path], None], number: int
) -> None:
    """The coordinator has committed the transaction whose marker is lost."""
    data = Path(shutil.copytree(GOLDEN, tmp_path / "data"))
    with kstore.open(data / "payments-0", "r+") as log:
        last = [b for b in log.batches() if b.is_control][-1]
        log.truncate_to(last.base_offset)
    damage(data / f"__transaction_state-{number}")
    before = {path: path.read_bytes() for path in data.rglob("*.log") if path.is_file()}
    code, out, err = run("transactions", data)
    assert (code, "not known as a whole" in err) == (1, True)
    assert "transactional id pay-1" in out or "hanging" not in out
    for more in ([], ["--dry-run"]):
        code, _, err = run("transactions", data, "--producer-id", last.producer_id, "--abort", *more)
        assert (code, "--without-coordinator" in err or "decided to commit" in err) == (2, True)
    assert {path: path.read_bytes() for path in data.rglob("*.log") if path.is_file()} == before
    for path in (data, data / "payments-0"):
        (advice,) = [f.remedy for f in kstore.check(path).findings if f.code == "hanging_transaction"]
        assert "committed it" in advice


def test_a_transaction_behind_the_last_one_of_the_coordinator(tmp_path: Path, run: Run) -> None:
    data = Path(shutil.copytree(GOLDEN, tmp_path / "data"))
    with kstore.open(data / "payments-0", "r+") as log:
        last = [b for b in log.batches() if b.is_control][-1]
        later = (now_ms() - 3_600_000, None, b"later", None)
        log.append_batches(transactional(later, producer=last.producer_id, epoch=last.producer_epoch))
    (advice,) = [f.remedy for f in kstore.check(data).findings if f.code == "hanging_transaction"]
    assert "--without-coordinator ends it" in advice
    code, _, err = run("transactions", data, "--producer-id", last.producer_id, "--abort")
    assert (code, "so it is a new one" in err) == (2, True)
    anyway = "--abort", "--without-coordinator"
    assert run("transactions", data, "--producer-id", last.producer_id, *anyway)[0] == 0
    assert listed(run, data) == []
