"""The test kit for users: what its page does not show."""

import errno
import gc
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import Image, Recorder, count_calls, crash_states, failing
from kstore.testing.fixtures import kstore_log, kstore_log_directory
from tests.helpers.processes import run_python

__all__ = ["kstore_log", "kstore_log_directory"]  # pytest finds them here


def test_import_kstore_does_not_import_it() -> None:
    script = (
        "import sys, kstore; kstore.open; kstore.LogStore; assert 'kstore.testing' not in sys.modules; "
        "import kstore.testing; assert 'pytest' not in sys.modules"
    )
    assert run_python(script).returncode == 0


def test_nothing_fails_behind_the_block(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
        with failing(1, errno.ENOSPC, this_thread=True), pytest.raises(OSError, match="space"):
            log.append(b"x" * 100)
        with failing(1000):
            log.append(b"y")
        assert count_calls(lambda: [log.append(b"z") for _ in range(3)]) >= 3
        assert [record.value for record in log] == [b"x", b"y", b"z", b"z", b"z"]


def test_a_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, kstore, kstore.testing\nlog = kstore.open(sys.argv[1], 'a')\nlog.append(b'one')\n"
        "with kstore.testing.failing(1, how='kill', this_thread=True): log.append(b'two')"
    )
    assert run_python(script, tmp_path / "t-0").returncode == -9
    assert [record.value for record in kstore.open(tmp_path / "t-0")] == [b"one"]


def test_an_image_is_written_as_it_was(tmp_path: Path, kstore_log_directory: Path) -> None:
    image = Image.of(kstore_log_directory)
    (tmp_path / "copy").mkdir()
    image.write_to(tmp_path / "copy")
    again = Image.of(tmp_path / "copy")
    assert again == image
    assert again.digest() == image.digest()
    again.files["orders-0/leader-epoch-checkpoint"] += b" "
    assert again.digest() != image.digest()


def test_fixtures(kstore_log: kstore.LogWriter, kstore_log_directory: Path) -> None:
    assert kstore_log.append(b"value") == 0
    store = kstore.LogStore(kstore_log_directory)
    assert list(map(str, store)) == ["orders-0", "orders-1"]
    assert store.closed_cleanly
    for topic, partition in store:
        with store.open(topic, partition) as log:
            found = [(r.offset, r.key, r.value, r.timestamp) for r in log]
            assert found == [
                (n, b"k%d" % (n % 10), f"orders-{partition} {n}".encode(), 1_700_000_000_000 + n)
                for n in range(100)
            ]
            assert len(log.segments) > 2


def test_a_path_is_recorded_a_second_time(tmp_path: Path) -> None:
    """A log of before is still open: its files are gone, so they are not in this record, and no error."""
    root = tmp_path / "root"
    with Recorder(tmp_path):
        before = kstore.open(root / "t-0", "a", segment_index_bytes=256)
        before.append(b"v")
    shutil.rmtree(root)
    root.mkdir()
    with Recorder(root) as recorder:
        before.abandon()
        del before
        gc.collect()
        with kstore.open(root / "t-0", "a", segment_index_bytes=256) as log:
            log.append(b"v")
    assert {call.path for call in recorder.trace.calls if call.name == "write"} >= {
        "t-0/00000000000000000000.log"
    }


@pytest.mark.parametrize(
    "wrong", [{"nth": 0}, {"nth": 1.5}, {"nth": 1, "error": 0}, {"nth": 1, "how": "softly"}], ids=str
)
def test_arguments_of_failing(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)), failing(**wrong):
        pass


def test_a_search_without_states_is_refused(tmp_path: Path) -> None:
    """Else a test that checks each state would pass without one."""
    with Recorder(tmp_path) as recorder:
        kstore.open(tmp_path / "t-0", "a", segment_index_bytes=256).close()
    several: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"moments": 0}, ValueError, "moments"),
        ({"moments": "x"}, TypeError, "moments"),
        ({"most": 0}, ValueError, "most"),
        ({"most": 1.5}, TypeError, "most"),
        ({"randoms": -1}, ValueError, "randoms"),
        ({"models": []}, ValueError, "models"),
        ({"models": "ordered"}, TypeError, "models"),
        ({"models": ["btrfs"]}, ValueError, "model"),
    ]
    for wrong, error, words in several:
        with pytest.raises(error, match=words):
            list(crash_states(recorder.trace, **wrong))
    with pytest.raises(TypeError, match="trace"):
        list(crash_states("x"))  # type: ignore[arg-type]
