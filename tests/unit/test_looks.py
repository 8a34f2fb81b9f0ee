"""What cannot be looked at is not taken for missing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.listing import is_there


@pytest.mark.parametrize("name", ["data/.kafka_cleanshutdown", "t-0/log-start-offset-checkpoint"])
def test_a_look_that_fails_ends_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A clean marker that stayed would vouch for what a crash has left later."""
    path = tmp_path / "data" / "t-0"
    with kstore.LogStore(path.parent, mode="a") as store:
        store.create_topic("t")
    stat = os.stat

    def failing(asked: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(asked).endswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), asked)
        return stat(asked, *args, **options)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(OSError, match="Input/output error"):
        kstore.open(path, "a")
    monkeypatch.undo()
    with kstore.open(path, "a") as log:
        log.append(b"v")


def test_what_leads_nowhere_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "astray").symlink_to("nowhere")
    assert is_there(f"{tmp_path}/file")
    for name in ("none", "file/in", "round", "astray", "a\0b"):
        assert not is_there(f"{tmp_path}/{name}")
