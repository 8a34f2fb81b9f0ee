"""A program may go to another directory while a log that it has opened by a relative path is open."""

from pathlib import Path

import pytest

import kstore


@pytest.mark.parametrize("mode", ["r", "a"])
def test_going_to_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.chdir(tmp_path)
    with kstore.open("t-0", "a", internal_segment_bytes=100) as log:
        for _ in range(5):
            log.append(b"v")
    with kstore.open("t-0", mode) as log:
        assert log.path == str(tmp_path / "t-0")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert len(list(log)) == 5
        assert sum(len(batch) for batch in log.scan()) == 5
        with log.cursor("group") as cursor:
            assert len(list(cursor)) == 5
            cursor.commit()
        assert next(log.follow(4, timeout=0)).offset == 4
        log.refresh()
        assert log.get(0).value == b"v"
