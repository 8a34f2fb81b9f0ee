"""Does a cursor say why it needs a directory that it may not write?"""

import errno
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.cursors import home, member_lock


@pytest.mark.parametrize(("module", "name"), [(member_lock, "File"), (home, "write_whole")])
@pytest.mark.parametrize(("code", "told"), [(errno.EACCES, True), (errno.EROFS, True), (errno.EIO, False)])
def test_the_error_says_what_needed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, code: int, told: bool
) -> None:
    """Whoever only reads the log does not expect that something is written."""

    def refuse(path: str, *args: object) -> None:
        raise OSError(code, "refused", path)

    kstore.open(tmp_path / "t-0", "a").close()
    log = kstore.open(tmp_path / "t-0")
    with monkeypatch.context() as patched:
        patched.setattr(module, name, refuse)
        with pytest.raises(OSError, match="refused") as caught:
            log.cursor("group")
    assert any("a cursor keeps" in note for note in getattr(caught.value, "__notes__", [])) == told
    log.cursor("group").close()
