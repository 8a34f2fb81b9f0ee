"""Readers in the midst of a compaction: whatever moment they meet, they read on, or raise LogChangedError and
can be refreshed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED, times
from tests.helpers.processes import environment

OPTIONS = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0,
    "internal_segment_bytes": 400,
    "segment_index_bytes": 800,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("calls") / "calls.so"
    source = Path(__file__).with_name("calls.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize(
    "name",
    [
        *["readers"] * times(2),
        "own_readers",
        pytest.param(
            "followers",
            marks=pytest.mark.xfail(
                strict=False,
                reason="issue 41: a follower learns of new files too late; a race, so it may pass",
            ),
        ),
    ],
)
def test_readers(library: Path, ram: Path, name: str, request: pytest.FixtureRequest) -> None:
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("moments.py"),
            library,
            name,
            f"{SEED} {request.node.name}",
        ],
        cwd=ram,
        env=environment(LD_PRELOAD=str(library)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout + done.stderr == "done\n"


def fill(log: kstore.LogWriter, *keys: bytes) -> None:
    for key in keys:
        log.append(b"." * 50, key=key)
    log.roll()


def test_indexes_that_are_gone_while_the_log_is_open(ram: Path) -> None:
    with kstore.open(ram / "t-0", "a", **OPTIONS, file_delete_delay_ms=0) as log:
        fill(log, b"1")
        fill(log, b"1", b"2")
    with kstore.open(ram / "t-0", "a") as log:
        reader = kstore.open(ram / "t-0")
        held = reader.segments[1].file()
        assert log.compact().records_removed
        assert [s.base_offset for s in log.segments] == [0, 3]
        assert held.size()
        assert reader.get(2).key == b"2"
        assert [r.offset for r in reader.records(2)] == [2]
