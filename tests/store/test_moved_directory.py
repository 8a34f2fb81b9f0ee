"""A log directory that is renamed while a store has it open, with another one in its place: that one is another program's."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import environment


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def replace(path: Path, kind: str) -> None:
    path.rename(path.with_name("old"))
    if kind == "copy":
        shutil.copytree(path.with_name("old"), path)
    elif kind == "other":
        code = (
            "import kstore, sys\n"
            "with kstore.LogStore(sys.argv[1], mode='a', background=False) as store:\n"
            "    store.create_topic('other', 2, retention_ms=777000)\n"
            "    store.append('other', b'value')\n"
        )
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment())


CALLS: dict[str, Callable[[kstore.LogStore], object]] = {
    "create": lambda store: store.create_topic("new"),
    "alter": lambda store: store.alter_topic("t", retention_ms=5),
    "add": lambda store: store.add_partitions("t", 4),
    "delete": lambda store: store.delete_topic("t"),
    "flush": lambda store: store.flush(),
    "open": lambda store: store.append("t", b"value"),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["copy", "other", "nothing"])
def test_nothing_is_written_there(tmp_path: Path, kind: str, call: str) -> None:
    path = tmp_path / "data"
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        store.create_topic("gone", 1)
    store = kstore.LogStore(path, mode="a", background=False, file_delete_delay_ms=3_600_000)
    store.delete_topic("gone")
    replace(path, kind)
    before = everything(path)
    with pytest.raises(kstore.LogFailedError, match="was renamed or removed while it was open"):
        CALLS[call](store)
    if call != "close":
        store.retain()
        assert everything(path) == before
        with pytest.raises(kstore.LogFailedError):
            store.close()
    assert everything(path) == before
    assert store.is_closed
    with kstore.LogStore(path, mode="a", background=False) as again:  # the lock of the old one is given up
        again.create_topic("new")


def test_the_background_writes_nothing_there(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    path = tmp_path / "data"
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("t", 2)
    store = kstore.LogStore(path, mode="a", clock=lambda: now, background=False)
    store.append("t", b"value")
    replace(path, "copy")
    before = everything(path)
    for _ in range(3):
        now += 3_600_000
        store._work.run_due(now)
    assert everything(path) == before
    with pytest.raises(kstore.LogFailedError):
        store.close()
    assert everything(path) == before
