"""Readers at every moment of a compaction read on, or raise LogChangedError and can be refreshed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.effort import SEED, times
from tests.helpers.processes import environment


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("calls") / "calls.so"
    source = Path(__file__).with_name("calls.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("name", [*["readers"] * times(2), "own_readers", "followers"])
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
