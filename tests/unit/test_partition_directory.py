"""The directory of a partition: its name, what is kept elsewhere, and what happens if it moves."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

import kstore
from tests.helpers.files import contents
from tests.unit.logs import filled, findings, offsets

NAMES = [
    b"plain", b"a b", b"a\tb", b"a\nb", b"a\x0bb", "a\u3000b".encode(), "a\u2028b".encode(), b"a\xffb",
    b"\xff-3",
    b"-1", b"x--1", b"t-01", b"t-00000000000000000000001", b"t-99999999999999999999", b"a" * 249 + b"-0",
    "é-0".encode(), b"'q\"", b".hid", b"a.b-c_1", "t-\u0661".encode(), b"topic-0.0123abc-delete", b"log",
    b"log-0",
]  # fmt: skip


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* is not a name that Kafka gives:UserWarning")
@pytest.mark.parametrize("shared", [False, True])
def test_a_deletion_is_remembered_under_every_name(ram: Path, shared: bool) -> None:
    """No name leads to the checkpoints of another directory, or spoils them."""
    if shared:
        (ram / "meta.properties").touch()
        with filled(ram / "beside-0") as log:
            log.delete_records(7)
    for raw in NAMES:
        path = ram / os.fsdecode(raw)
        with filled(path) as log:
            log.delete_records(4)
        for mode in ("r", "a"):
            with kstore.open(path, mode) as log:
                assert (log.log_start_offset, log.recovery.clean, findings(log)) == (4, True, []), raw
    if shared:
        assert kstore.open(ram / "beside-0").log_start_offset == 7


# ---- another place -------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["meta.properties", ".lock"])
def test_a_deletion_goes_with_the_directory(tmp_path: Path, there: str) -> None:
    with filled(tmp_path / "t-0") as log:
        log.delete_records(6)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / there).touch()
    path = shutil.copytree(tmp_path / "t-0", tmp_path / "logs" / "t-0")
    assert kstore.open(path).log_start_offset == 6
    with kstore.open(path, "a") as log:
        assert log.log_start_offset == 6
        log.delete_records(8)
    assert not (path / "log-start-offset-checkpoint").exists()
    assert kstore.open(path).log_start_offset == 8


def test_a_directory_that_is_renamed_under_its_writer(tmp_path: Path) -> None:
    """Its path may lead to another log then, which is not touched."""
    log = filled(tmp_path / "t-0")
    log.flush()  # or a sync in the background meets that there is no directory for a moment
    (tmp_path / "t-0").rename(tmp_path / "t-9")
    shutil.copytree(tmp_path / "t-9", tmp_path / "t-0")
    before = contents(tmp_path / "t-0")
    for call in (
        log.roll,
        log.retain,
        lambda: log.truncate_to(3),
        lambda: log.delete_records(2),
        lambda: log.truncate_fully_and_start_at(0),
    ):
        with pytest.raises(kstore.LogFailedError, match="renamed or removed"):
            call()
    with contextlib.suppress(kstore.LogFailedError):  # if the background came upon it first
        log.close()
    assert contents(tmp_path / "t-0") == before
    assert offsets(kstore.open(tmp_path / "t-9")) == list(range(10))


def test_a_directory_that_is_removed_under_its_writer(tmp_path: Path) -> None:
    """Neither flush() nor close() reports records as kept that nobody can find."""
    log = kstore.open(tmp_path / "t-0", "a")
    log.extend([b"x"] * 10)
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(kstore.LogFailedError, match=r"t-0 was removed"):
        log.flush()
    words = r"t-0 was removed.*: offsets 0 to 10 \(exclusive\) are no longer"
    with pytest.raises(kstore.LogFailedError, match=words):
        log.close()
    assert log.is_closed
    log.close()
    assert not (tmp_path / "t-0").exists()
    log = kstore.open(tmp_path / "t-0", "a")
    log.extend([b"x"] * 10)
    log.truncate_to(9)  # so that close() has a checkpoint to write
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(kstore.LogFailedError, match="was removed"):
        log.close()
    kstore.open(tmp_path / "t-0", "a").close()


def test_files_that_are_removed_under_their_writer(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    first, last = log.segments[0], log.segments[-1]
    for segment in (first, last):
        Path(segment.path).unlink()
    end = log.segments[1].base_offset
    words = rf"{first.path}, with offsets 0 to {end} \(exclusive\), was removed.*the first of 2"
    with pytest.raises(kstore.LogFailedError, match=words):
        log.close()
    with pytest.warns(kstore.DataLossWarning):
        kstore.open(tmp_path / "t-0", "a").close()


# ---- files that were being written when the process died -----------------------------------------

OF_A_DIRECTORY = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
OF_A_PARTITION = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "kstore.json",
    f"{7:020d}.snapshot",
    f"{0:020d}.timeindex",
)
OF_OTHERS = ("notes.tmp", "7.snapshot.tmp", "kstore-cursors-g.positions.tmp", f"{0:020d}.log.tmp")


def leave(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (directory / (name + ".tmp")).write_bytes(b"half")
    for name in OF_OTHERS:
        (directory / name).write_bytes(b"somebody's")


def drafts(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.tmp"))


@pytest.mark.parametrize("alone", [True, False])
def test_half_files_of_a_log(tmp_path: Path, alone: bool) -> None:
    path = tmp_path / "t-0"
    if not alone:
        kstore.LogStore(tmp_path, mode="a").close()
    with kstore.open(path, "a") as log:
        log.append(b"v")
    leave(path, (*OF_A_PARTITION, *OF_A_DIRECTORY))
    (path / "partition.metadata.tmp").unlink()
    (path / "partition.metadata.tmp").mkdir()
    left = drafts(path)
    assert len(list(kstore.open(path))) == 1
    assert drafts(path) == left
    with kstore.open(path, "a") as log:
        assert set(findings(log)) == {"leftover"}
    assert drafts(path) == sorted((*OF_OTHERS, "partition.metadata.tmp"))
    with kstore.open(path, "a") as log:
        assert not log.recovery.findings
