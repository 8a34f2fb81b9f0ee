"""A partition on another disk, with a link in its place; and a link to a partition, somewhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore import LogStore


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t", cleanup_policy="compact", retention_ms=-1)
        for i in range(5):
            store.append("t", b"%d" % i, key=b"k%d" % i)
    return tmp_path / "data"


def test_on_another_disk(data: Path, tmp_path: Path) -> None:
    """It belongs to the log directory that the link is in, to a store and to kstore.open."""
    with LogStore(data).cursor("g", ["t"], start="earliest") as jobs:
        for record in jobs:
            jobs.commit(record)
    (tmp_path / "disk").mkdir()
    (data / "t-0").rename(tmp_path / "disk" / "t-0")
    (data / "t-0").symlink_to(tmp_path / "disk" / "t-0")
    with kstore.open(data / "t-0", "a") as log:
        assert log.recovery.clean
        assert log.config.cleanup_policy == ("compact",)
        log.append(b"5", b"k5")
    with kstore.open(data / "t-0").cursor("g") as cursor:
        assert [record.value for record in cursor] == [b"5"]
    with LogStore(data, mode="a") as store:
        assert [record.value for record in store.log("t", 0)] == [b"%d" % i for i in range(6)]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["t-0"]


@pytest.mark.parametrize("name", ["t-0", "u-7", "link"])
def test_from_elsewhere(data: Path, tmp_path: Path, name: str) -> None:
    """It stands for the partition: what is known of it is where that lies."""
    (tmp_path / "else").mkdir()
    link = tmp_path / "else" / name
    link.symlink_to(data / "t-0")
    dies = f"import kstore, os; kstore.open({str(link)!r}, 'a').append(b'5', b'k5'); os._exit(0)"
    for path in (link, data / "t-0"):
        with kstore.open(path).cursor("g", start=3) as cursor:
            assert cursor.position == 3
            cursor.commit()
    log = kstore.open(link, "a")
    assert log.config.cleanup_policy == ("compact",)
    log.append(b"5", b"k5")
    log.abandon()
    subprocess.run([sys.executable, "-c", dies], check=True, cwd=Path(kstore.__file__).parents[1])
    assert not kstore.open(data / "t-0").recovery.clean
    assert not kstore.open(link).recovery.clean
    with kstore.open(data / "t-0", "a") as log:
        assert log.log_end_offset == 7
    assert kstore.open(link).recovery.clean
    assert [path.name for path in (tmp_path / "else").iterdir()] == [name]
