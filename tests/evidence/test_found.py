"""Every search finds what it is for: a defect that is put in by hand is met within few cases.

Those of crash states, power cuts and fuzzing are in their folders. docs/evidence.md has the table of all.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

import kstore
from kstore import LogWriter
from kstore.log.compact import compactor
from kstore.log.producers import states
from tests.compaction.test_model import test_rounds as compact_and_compare
from tests.crash.test_killed import test_killed_at_every_call as kill_at_every_call
from tests.faults.story import Story
from tests.helpers.processes import environment
from tests.hostile.test_every_bit import (
    answers,
    believed_by_the_page,
    home,  # noqa: F401 - a fixture
    outcome,
)
from tests.interrupts.actions import append as append_within
from tests.interrupts.operations import OPERATIONS
from tests.interrupts.points import called_at, count_points, failures, in_directories

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


def _nothing(*given: object, **options: object) -> None:
    pass


# ---- kill -9 --------------------------------------------------------------------------------------------------------


def test_kills_find_an_append_that_returns_too_early(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is written by the next call."""
    append = LogWriter.append
    held: list[tuple[Any, ...]] = []

    def write_held(log: LogWriter) -> None:
        while held:
            append(log, *held.pop())

    def append_late(self: LogWriter, *values: Any) -> int:
        write_held(self)
        held.append(values)
        return self.log_end_offset

    def after_held(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: LogWriter, *given: Any, **options: Any) -> Any:
            write_held(self)
            return call(self, *given, **options)

        return run

    for name in ("extend", "flush", "truncate_to", "close"):
        monkeypatch.setattr(LogWriter, name, after_held(getattr(LogWriter, name)), raising=False)
    monkeypatch.setattr(LogWriter, "append", append_late, raising=False)
    Story(ram / "whole-0").tell()  # nobody is killed, and nothing is wrong
    with pytest.raises((AssertionError, kstore.KstoreError)):
        kill_at_every_call(ram, "kill", _nothing)
    assert len(list(ram.glob("t*-0"))) <= 60  # the logs of writers that were killed until then


# ---- interrupts -----------------------------------------------------------------------------------------------------


class _Careless:
    """In place of what lets a log refuse to write after half a change."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    undone = _nothing


def test_interrupts_find_a_half_change_that_nobody_notes(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogWriter, "_unfinished", lambda self, what: _Careless())
    _, tried, found = failures(OPERATIONS["truncate_to a batch"], "KeyboardInterrupt", "line", ram, 40)
    assert found
    assert tried <= 40


def test_interrupts_find_a_lock_that_is_not_taken(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler appends in the middle of a roll."""
    monkeypatch.setattr(LogWriter, "_held", lambda self: _Careless())
    operation = OPERATIONS["roll, unsynced"]
    total = count_points(operation, "check", ram)
    assert total <= 300
    tasks: list[tuple[int, Callable[[Path], None]]] = [
        (nth, partial(called_at, operation, append_within, "check", nth)) for nth in range(1, total + 1)
    ]
    assert any(ended.wrong for _, ended in in_directories(ram, tasks))


# ---- allocations ----------------------------------------------------------------------------------------------------


def test_allocations_find_a_retry_that_doubles(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocations = pytest.importorskip("tests.interrupts.test_allocations")
    extend = LogWriter.extend

    def again(self: LogWriter, *values: Any, **options: Any) -> Any:
        try:
            return extend(self, *values, **options)
        except MemoryError:
            return extend(self, *values, **options)

    monkeypatch.setattr(LogWriter, "extend", again, raising=False)
    operation = OPERATIONS["extend"]
    tasks: list[tuple[int, Callable[[Path], None]]] = [
        (nth, partial(allocations.fail, operation, nth, 1)) for nth in range(1, 200, 3)
    ]
    assert any(ended.wrong for _, ended in in_directories(ram, tasks))


# ---- compaction -----------------------------------------------------------------------------------------------------


def test_the_model_finds_a_bound_of_compaction_that_is_off_by_one(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = compactor.between
    monkeypatch.setattr(
        compactor, "between", lambda segments, start, stop: between(segments, start, stop)[:-1]
    )
    compare: Any = compact_and_compare.hypothesis.inner_test  # type: ignore[attr-defined]

    def is_found(seed: int) -> bool:
        try:
            compare(seed, tmp_path_factory, _nothing)
        except (AssertionError, kstore.KstoreError):
            return True
        return False

    assert any(is_found(seed) for seed in range(10))


# ---- bits -----------------------------------------------------------------------------------------------------------


class _Fits(int):
    """A checksum that is like any other."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def test_bits_find_a_checksum_that_is_not_looked_at(
    home: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = answers(home / "t-0")
    checksum = states.crc32c
    monkeypatch.setattr(states, "crc32c", lambda data: _Fits(checksum(data)))
    assert answers(home / "t-0") == right
    tried, believed = 0, []
    for path in sorted((home / "t-0").glob("*.snapshot")):
        data = path.read_bytes()
        for bit in range(0, 8 * len(data), 61):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            tried += 1
            if outcome(home / "t-0", right, path).startswith("believed"):
                believed.append(bit)
        path.write_bytes(data)
    assert believed
    assert tried <= 500
    assert believed_by_the_page()[".snapshot"][1] == 0


# ---- descriptors ----------------------------------------------------------------------------------------------------

KEEPS_FILES = """
import sys
from kstore.log.writer import LogWriter
from tests.descriptors.many_segments import main
kept, roll = [], LogWriter._roll
def roll_and_keep(self, *given):
    kept.extend(self.active.files())
    return roll(self, *given)
LogWriter._roll = roll_and_keep
main(sys.argv[1], 400, 64)
"""


def test_descriptors_find_files_that_are_not_let_go(ram: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", KEEPS_FILES, str(ram / "many")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "Too many open files" in done.stderr


# ---- the page -------------------------------------------------------------------------------------------------------


def test_the_page_names_a_test_for_every_search() -> None:
    """And the tests are there."""
    page = PAGE.read_text("utf-8")
    part = page[page.index("## What finds nothing proves nothing") :]
    named = re.findall(r"`(tests/[a-z_]+/[a-z_]+\.py)`", part)
    assert len(named) >= 10
    assert all((PAGE.parents[1] / path).is_file() for path in named)
    searches = re.findall(r"^\| ([a-z0-9 -]+?) \| [^|]+ \| [0-9,]+", page, re.MULTILINE)
    assert len(searches) >= 9
    assert [name for name in searches if f"| {name} |" not in part] == []
