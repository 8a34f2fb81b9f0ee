"""Small files that were being written when the process died: the next opening for writing removes what is kstore's."""

from pathlib import Path

import pytest

import kstore

OF_A_DIRECTORY = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
OF_A_PARTITION = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "kstore-truncations.json",
    "kstore-config.json",
    f"{7:020d}.snapshot",
    f"{0:020d}.timeindex",
)
OTHERS = ("notes.tmp", "7.snapshot.tmp", "kstore-cursors-g.positions.tmp", f"{0:020d}.log.tmp")


def leave(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (directory / (name + ".tmp")).write_bytes(b"half")
    for name in OTHERS:
        (directory / name).write_bytes(b"somebody's")


def drafts(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.tmp"))


@pytest.mark.parametrize("alone", [True, False])
def test_of_a_log(tmp_path: Path, alone: bool) -> None:
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
        assert {finding.kind for finding in log.recovery.findings} == {"leftover"}
    assert drafts(path) == sorted((*OTHERS, "partition.metadata.tmp"))
    with kstore.open(path, "a") as log:
        assert not log.recovery.findings


def test_of_a_directory(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
    names = (*OF_A_DIRECTORY, "kstore-topics.json")
    for write in (
        lambda: kstore.LogStore(tmp_path, mode="a").close(),
        lambda: kstore.open(tmp_path / "t-0", "a").close(),
    ):
        leave(tmp_path, names)
        kstore.LogStore(tmp_path)
        assert len(drafts(tmp_path)) == len(names) + len(OTHERS)
        write()
        assert drafts(tmp_path) == sorted(OTHERS)
    with kstore.open(tmp_path / "t-0", "a"):
        leave(tmp_path, names)  # of this process, it may be
        kstore.open(tmp_path / "u-0", "a").close()
        assert set(drafts(tmp_path)) >= {"cleaner-offset-checkpoint.tmp", "kstore-topics.json.tmp"}
