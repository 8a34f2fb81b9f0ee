"""System calls fail, a process is killed, descriptors are few: .keys files are made or not, never wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls
from tests.by_key.lookups import KEYS, check, fill, opened
from tests.helpers.calls import ends
from tests.helpers.effort import times


def made(path: Path) -> None:
    with opened(path, internal_segment_bytes=1000) as log:
        log.make_key_files()


def replaced(path: Path) -> None:
    with opened(path, internal_segment_bytes=1000) as log:
        log.make_key_files()
        log.erase(keys=KEYS[:3], reason="asked")
        log.truncate_to(log.log_end_offset - 20)
        log.make_key_files()


@pytest.mark.timeout(times(300))
@pytest.mark.parametrize("work", [made, replaced])
def test_whatever_call_is_the_last(ram: Path, work: Callable[[Path], None]) -> None:
    source = ram / "source-0"
    with opened(source, internal_segment_bytes=1000) as log:
        fill(log, 1, 120)
    total = count_calls(lambda: work(Path(shutil.copytree(source, ram / "whole-0"))))
    ended = 0
    for end in ends(total, 25, work.__name__):
        path = Path(shutil.copytree(source, ram / "t-0"))
        ended += end.of(lambda path=path: work(path))
        check(kstore.open(path), KEYS[::5])
        with opened(path) as log:
            assert not list(path.glob("*.tmp")), end
            check(log, KEYS[::5])
            assert all(each.keys >= 0 for each in log.make_key_files()), end
            check(log, KEYS[::5])
        shutil.rmtree(path)
    assert ended
