"""The types of arguments: in `make check` mypy takes in typed_calls.py what kstore takes."""

import typing
from pathlib import Path

import kstore
from kstore import typed
from kstore.engine.scan.column_builder import COLUMNS


def test_the_names_of_columns(tmp_path: Path) -> None:
    assert set(typing.get_args(typed.Column)) == set(COLUMNS)
    assert len(typing.get_args(typed.Column)) == len(COLUMNS)
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        assert next(iter(log.scan(typing.get_args(typed.Column)))).column("value").to_list() == [b"v"]
