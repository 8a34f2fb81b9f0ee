"""The types of arguments: mypy takes what kstore takes, and refuses what it refuses."""

import subprocess
import sys
import typing
from pathlib import Path

import pytest

import kstore
from kstore import typed
from kstore.engine.scan.column_builder import COLUMNS
from tests.helpers.processes import environment

REPOSITORY = Path(__file__).parents[2]


def test_what_mypy_takes_and_refuses(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("typed_calls.py"))],
        env=environment() | {"MYPYPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_names_of_columns(tmp_path: Path) -> None:
    assert set(typing.get_args(typed.Column)) == set(COLUMNS)
    assert len(typing.get_args(typed.Column)) == len(COLUMNS)
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        assert next(iter(log.scan(typing.get_args(typed.Column)))).column("value").to_list() == [b"v"]
