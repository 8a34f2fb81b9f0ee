"""A source that has lost records: both modes tell, and an earlier copy keeps what it has."""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

import kstore
from kstore.engine.io.faults import fail_call
from tests.copying.test_copies import rows
from tests.helpers.processes import run_command

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")

MODES: tuple[Literal["raise", "skip"], ...] = ("skip", "raise")
MIDDLE, LAST = 16, 48  # base offsets of segments of eight records


def make(path: Path, count: int = 51) -> Path:
    with kstore.LogStore(path, mode="a") as store:
        store.create_topic("orders", 1, internal_segment_bytes=600)
        store.create_topic("users", 1)
        for number in range(count):
            store.append("orders", b"o%d" % number, key=b"%d" % number)
        store.append("users", b"u")
    return path


def log(data: Path, base: int) -> Path:
    return data / "orders-0" / f"{base:020}.log"


def set_line(data: Path, name: str, offset: int) -> None:
    file = data / f"{name}-offset-checkpoint"
    file.write_text(re.sub(r"(?m)^orders 0 \d+$", f"orders 0 {offset}", file.read_text()))


def unclean(data: Path, recovery_point: int) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    set_line(data, "recovery-point", recovery_point)


def emptied(data: Path) -> None:
    for file in (data / "orders-0").iterdir():
        file.unlink()


def flip(data: Path) -> None:
    content = bytearray(log(data, MIDDLE).read_bytes())
    content[200] ^= 1
    log(data, MIDDLE).write_bytes(content)


def flip_unclean(data: Path) -> None:
    unclean(data, 0)
    flip(data)


def without(data: Path, *bases: int) -> None:
    for base in bases:
        for file in (data / "orders-0").glob(f"{base:020}.*"):
            file.unlink()


def end_unclean(data: Path) -> None:
    """Only the high watermark tells."""
    unclean(data, 40)
    without(data, LAST)


DAMAGES: dict[str, tuple[Callable[[Path], object], set[int]]] = {
    "last": (lambda data: log(data, LAST).unlink(), set(range(48, 51))),
    "middle": (lambda data: log(data, MIDDLE).unlink(), set(range(16, 24))),
    "shortened": (lambda data: os.truncate(log(data, MIDDLE), 0), set(range(16, 24))),
    "packed": (lambda data: log(data, MIDDLE).rename(f"{log(data, MIDDLE)}.gz"), set(range(16, 24))),
    "named": (lambda data: log(data, LAST).rename(data / "orders-0/48.log"), set(range(48, 51))),
    "foreign": (lambda data: shutil.copy(log(data, 24), log(data, MIDDLE)), set(range(16, 24))),
    "emptied": (emptied, set(range(51))),
    "flip": (flip, {18}),
    "flip_unclean": (flip_unclean, {18}),
    "end_unclean": (end_unclean, set(range(48, 51))),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_losses(name: str, tmp_path: Path) -> None:
    data, backup = make(tmp_path / "data"), tmp_path / "backup"
    damage, lost = DAMAGES[name]
    kstore.copy(data, backup)
    kstore.copy(data / "orders-0", tmp_path / "alone-0")
    with kstore.LogStore(data, mode="a") as store:
        store.append("users", b"later")
    before = rows(data / "orders-0")
    damage(data)
    for bounds in ({"start": 0}, {"since": 1}):
        with pytest.raises((FileExistsError, kstore.CorruptFileError)):
            kstore.copy(data / "orders-0", tmp_path / "alone-0", **bounds)
    modes: list[Literal["raise", "skip"]] = ["skip"] if name in ("flip", "foreign") else ["raise", "skip"]
    for mode in modes:
        report = kstore.copy(data, backup, on_error=mode)
        assert "which the source has lost" in report.left_out["orders-0"]
        assert (list(report.partitions), report.is_complete) == (["users-0"], False)
        assert rows(backup / "orders-0") == before
        assert len(rows(backup / "users-0")) == 2
        assert kstore.check(backup, manifest=report.manifest).is_whole
        with pytest.raises(FileExistsError, match="which the source has lost"):
            kstore.copy(data / "orders-0", tmp_path / "alone-0", on_error=mode)
    assert rows(tmp_path / "alone-0") == before
    with pytest.raises(kstore.CorruptFileError, match="orders-0"):
        kstore.copy(data, tmp_path / "new")
    done = run_command("copy", data, tmp_path / "new", "--on-error", "skip")
    assert (done.returncode, "orders-0" in done.stderr) == (1, True)
    assert rows(tmp_path / "new" / "orders-0") == [row for row in before if row[0] not in lost]


def appended(data: Path) -> None:
    """Others get the offsets of lost records."""
    with kstore.LogStore(data, mode="a") as store:
        for number in range(10):
            store.append("orders", b"n%d" % number)


def foreign_end(data: Path) -> None:
    shutil.copy(log(make(data.parent / "other", 100), 80), log(data, LAST))


def power_cut(data: Path) -> None:
    unclean(data, 0)
    os.truncate(log(data, LAST), 100)
    appended(data)


def recovered(data: Path) -> None:
    flip(data)
    run_command("recover", data / "orders-0", "--all")
    appended(data)


def end_appended(data: Path) -> None:
    without(data, LAST)
    appended(data)


def small_middle(data: Path) -> None:
    with kstore.LogStore(data, mode="a") as store:
        for count in (20, 3, 20):
            store.extend("orders", [b"v"] * count)
            store.log("orders", 0).roll()
    kstore.copy(data, data.parent / "backup")
    without(data, 71)


def compact_middle(data: Path) -> None:
    """None of it was compacted yet."""
    with kstore.LogStore(data, mode="a") as store:
        store.alter_topic("orders", cleanup_policy="compact")
    without(data, MIDDLE)


SILENT: dict[str, tuple[Callable[[Path], object], str]] = {
    "first": (lambda data: without(data, 0, 8), "0 to 15"),
    "foreign_end": (foreign_end, "48 to 50"),
    "power_cut": (power_cut, "49 to 50"),
    "recovered": (recovered, "18 to 50"),
    "end_appended": (end_appended, "48 to 50"),
    "small_middle": (small_middle, "71 to 73"),
    "compact_middle": (compact_middle, "16 to 23"),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_only_an_earlier_copy_tells(name: str, tmp_path: Path) -> None:
    data, backup = make(tmp_path / "data"), tmp_path / "backup"
    damage, lost = SILENT[name]
    kstore.copy(data, backup)
    damage(data)
    before = rows(backup / "orders-0")
    for mode in MODES:
        report = kstore.copy(data, backup, on_error=mode)
        assert f"offsets {lost} of orders-0" in report.left_out["orders-0"]
        assert rows(backup / "orders-0") == before


def test_what_may_go(tmp_path: Path) -> None:
    """A truncation, a deletion, a compaction and a new topic explain that the source has fewer records."""
    data, backup = make(tmp_path / "data"), tmp_path / "backup"

    def copied() -> list[int]:
        assert kstore.copy(data, backup).is_complete
        return [row[0] for row in rows(backup / "orders-0")]

    copied()
    with kstore.LogStore(data, mode="a") as store:
        store.log("orders", 0).truncate_to(45)
    assert copied() == [*range(45)]
    with kstore.LogStore(data, mode="a") as store:
        store.log("orders", 0).delete_records(20)
        store.log("orders", 0).retain()
    assert copied() == [*range(20, 45)]
    with kstore.LogStore(data, mode="a") as store:
        store.log("orders", 0).erase(keys=[b"30"], reason="test")
    assert copied() == sorted({*range(20, 45)} - {30})
    with kstore.LogStore(data, mode="a") as store:
        store.log("orders", 0).erase(keys=[b"44"], reason="test")
        store.append("orders", b"new")
        store.log("orders", 0).truncate_to(45)  # the erased segment is the active one again
    assert copied() == sorted({*range(20, 44)} - {30})


@pytest.mark.parametrize("name", ["topic", "store"])
def test_another_topic_of_the_name(name: str, tmp_path: Path) -> None:
    """An application may have begun again after its disk was lost. A deletion leaves the copy as it is, too."""
    data, backup = make(tmp_path / "data"), tmp_path / "backup"
    kstore.copy(data, backup)
    before = rows(backup / "orders-0")
    if name == "store":
        shutil.rmtree(data)
    with kstore.LogStore(data, mode="a") as store:
        if name == "topic":
            store.delete_topic("orders")
        store.create_topic("orders", 1)
        store.create_topic("users", 1, exist_ok=True)
        store.append("orders", b"new")
    report = kstore.copy(data, backup)
    assert "of another topic" in report.left_out["orders-0"]
    assert rows(backup / "orders-0") == before
    shutil.rmtree(backup / "orders-0")
    assert "orders-0" in kstore.copy(data, backup).partitions
    assert [row[0] for row in rows(backup / "orders-0")] == [0]


def test_a_copy_of_the_middle_of_a_truncation(tmp_path: Path) -> None:
    """A batch that is to be encoded again is whole in it; what follows is the truncation, and no loss."""
    data, backup = tmp_path / "orders-0", tmp_path / "backup-0"
    with kstore.open(data, "a") as writer:
        writer.extend([b"v"] * 10)
    for nth in range(1, 40, 2):
        with kstore.open(data, "a") as writer:
            writer.extend([b"v"] * 10)
        with suppress(OSError, kstore.KstoreError), kstore.open(data, "r+") as writer:
            fail_call(nth)
            try:
                writer.truncate_to(writer.log_end_offset - 3)
            finally:
                fail_call(0)
        kstore.copy(data, backup)
        kstore.open(data, "a").close()
        kstore.copy(data, backup)
        assert rows(backup) == rows(data)


def test_a_repaired_source(tmp_path: Path) -> None:
    """A noted loss is no news, and an earlier copy keeps its records nevertheless."""
    data = make(tmp_path / "data")
    kstore.copy(data, tmp_path / "backup")
    for base in (MIDDLE, LAST):
        log(data, base).unlink()
    kstore.repair(data, run=True)
    assert kstore.copy(data, tmp_path / "new").is_complete
    report = kstore.copy(data, tmp_path / "backup")
    assert "offsets 16 to 23; 48 to 50 of orders-0" in report.left_out["orders-0"]
    assert len(rows(tmp_path / "backup" / "orders-0")) == 51


def test_a_recovered_source(tmp_path: Path) -> None:
    """A recovery that has cut sound batches off is no truncation."""
    data, backup = make(tmp_path / "data"), tmp_path / "backup"
    kstore.copy(data, backup)
    flip_unclean(data)
    with kstore.LogStore(data, mode="a") as store:
        store.append("orders", b"new")
    for _ in range(2):
        report = kstore.copy(data, backup)
        assert "offsets 18 to 50 of orders-0" in report.left_out["orders-0"]
    assert len(rows(backup / "orders-0")) == 51


@pytest.mark.parametrize("is_link", [True, False])
def test_a_partition_that_is_gone(is_link: bool, tmp_path: Path) -> None:
    data, backup = make(tmp_path / "data"), tmp_path / "backup"
    kstore.copy(data, backup)
    before = rows(data / "orders-0")
    shutil.rmtree(data / "orders-0")
    if is_link:
        (data / "orders-0").symlink_to(tmp_path / "nowhere")
    for destination in (tmp_path / "new", backup):
        report = kstore.copy(data, destination)
        assert (list(report.left_out), report.is_complete) == (["orders-0"], False)
        assert list(report.partitions) == ["users-0"]
    assert rows(backup / "orders-0") == before
    assert kstore.check(backup, manifest=report.manifest).is_whole


@pytest.mark.parametrize("name", ["kstore.json", "orders-0/kstore.json"])
def test_a_damaged_manifest(name: str, tmp_path: Path) -> None:
    """It costs a copy only what this file says, and an earlier copy nothing."""
    data, backup = make(tmp_path / "data"), tmp_path / "backup"
    with kstore.LogStore(data, mode="a") as store, store.cursor("group", ["orders"]) as cursor:
        cursor.commit(next(iter(cursor)))
    kstore.copy(data, backup)
    table = (backup / "kstore.json").read_bytes()
    (data / name).write_bytes(b"xxxx")
    with pytest.raises(kstore.CorruptCheckpointError, match=name):
        kstore.copy(data, backup)
    for destination in (tmp_path / "new", backup):
        report = kstore.copy(data, destination, on_error="skip")
        assert (list(report.partitions), report.is_complete) == (["orders-0", "users-0"], False)
        assert name in "".join([*report.left_out.values(), *report.gaps])
        assert rows(destination / "orders-0") == rows(data / "orders-0")
    assert (backup / "kstore.json").read_bytes() == table


def test_a_truncation_that_failed(tmp_path: Path) -> None:
    """Whatever it has removed, it explains."""
    make(tmp_path / "data")
    kstore.copy(tmp_path / "data", tmp_path / "backup")
    ends = set()
    for nth in range(5, 40, 3):
        data, backup = tmp_path / f"data{nth}", tmp_path / f"backup{nth}"
        shutil.copytree(tmp_path / "data", data)
        shutil.copytree(tmp_path / "backup", backup)
        with suppress(OSError, kstore.KstoreError), kstore.open(data / "orders-0", "r+") as writer:
            fail_call(nth)
            try:
                writer.truncate_to(20)
            finally:
                fail_call(0)
        for mode in MODES:
            assert "orders-0" not in kstore.copy(data, backup, on_error=mode).left_out
            ends.add((mode, kstore.open(backup / "orders-0").log_end_offset))
    assert len(ends) > 2


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_truncation_by_a_broker(epoch: int, tmp_path: Path) -> None:
    """It begins a leader epoch; without one, the end is lost."""
    whole, cut, backup = (tmp_path / name for name in ("t-0", "cut-0", "backup-0"))
    with kstore.open(whole, "a") as writer:
        writer.extend([b"v"] * 10)

    (whole / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    kstore.copy(whole, backup)
    kstore.copy(whole, cut, stop=6)
    with kstore.open(cut, "a") as writer:
        batch = kstore.encode_batch([(0, None, b"new", None)], base_offset=6, leader_epoch=epoch)
        writer.append_batches(batch, keep_offsets=True)
    if epoch:
        kstore.copy(cut, backup)
    else:
        with pytest.raises(FileExistsError, match="offsets 6 to 9 of cut-0"):
            kstore.copy(cut, backup)
    assert kstore.open(backup).log_end_offset == (7 if epoch else 10)
