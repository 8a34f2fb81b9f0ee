"""Every search finds what it is for: a defect that is put in by hand is met within few cases.

No defect is put into kstore: it is an operation, a wrapped method or a changed file that behaves as a defect
would. Those of crash states, power cuts and fuzzing are in their folders. docs/evidence.md has the table of
all.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.compaction.test_model import test_rounds as compact_and_compare
from tests.crash.test_killed import test_killed_at_random_moments as kill_at_random_moments
from tests.crash_states.defects import DEFECTS, STORE_DEFECTS
from tests.crash_states.test_defects import QUICK, QUICK_STORE
from tests.evidence.searches import SEARCHES
from tests.helpers.effort import some
from tests.helpers.forge import crc32c
from tests.helpers.processes import run_python
from tests.hostile.test_every_bit import (
    answers,
    believed_by_the_page,
    home,  # noqa: F401 - a fixture
    outcome,
)
from tests.interrupts.attempts import TRIED, attempt, interrupt, undisturbed, within
from tests.interrupts.operations import eleven
from tests.interrupts.state import require
from tests.interrupts.subject import Operation, Subject
from tests.interrupts.test_reentry import handler

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


def _nothing(*given: object, **options: object) -> None:
    pass


# ---- kill -9 -----------------------------------------------------------------------------------------------


def test_kills_find_an_append_that_returns_too_early(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is written by the next call of another method."""
    append = kstore.LogWriter.append
    held: list[tuple[Any, ...]] = []
    lock = threading.RLock()

    def after_held(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: kstore.LogWriter, *given: Any, **options: Any) -> Any:
            with lock:
                while held:
                    append(self, *held.pop(0))
                return call(self, *given, **options)

        return run

    def hold(self: kstore.LogWriter, *given: Any) -> int:
        with lock:
            held.append(given)
            return self.log_end_offset + len(held) - 1

    for name in ("extend", "roll", "close"):
        call = after_held(getattr(kstore.LogWriter, name))
        monkeypatch.setattr(kstore.LogWriter, name, call, raising=False)
    monkeypatch.setattr(kstore.LogWriter, "append", hold, raising=False)
    with kstore.open(ram / "whole-0", "a") as log:  # no process is killed, and nothing is wrong
        assert [log.append(value) for value in (b"0", b"1")] == [0, 1]
    assert [record.value for record in kstore.open(ram / "whole-0")] == [b"0", b"1"]

    def kill() -> None:
        for number in range(10):
            kill_at_random_moments(ram, "none", number, _nothing)

    with pytest.raises(AssertionError):
        kill()


# ---- interrupts --------------------------------------------------------------------------------------------

KEPT: list[object] = []


def half_done(subject: Subject) -> None:
    """A change in two steps, with nothing in the log between them."""
    values = [record.value for record in subject.handle]
    subject.handle.truncate_fully_and_start_at(0)
    subject.handle.extend(values)


def swallows(subject: Subject) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        subject.handle.roll()


def hangs(subject: Subject) -> None:
    try:
        subject.handle.roll()
    except KeyboardInterrupt:
        time.sleep(1000)


def keeps_the_lock(subject: Subject) -> None:
    log, subject.handle = subject.handle, None
    try:
        log.roll()
    except KeyboardInterrupt:
        KEPT.append(log)
        raise
    subject.handle = log


def without_a_lock(subject: Subject) -> None:
    """What it has read may be stale when it appends."""
    end = subject.handle.log_end_offset
    subject.handle.roll()
    require(subject.handle.append(*subject.values(1)) == end, "another offset than was expected")


for name, prepare, act in [
    ("half done", eleven, half_done),
    ("swallows", eleven, swallows),
    ("hangs", eleven, hangs),
    ("keeps the lock", eleven, keeps_the_lock),
    ("without a lock", eleven, without_a_lock),
]:
    TRIED[f"defect: {name}"] = Operation(f"defect: {name}", Subject, prepare, act)


def points(name: str, count: int) -> list[int]:
    return some(range(1, len(undisturbed(name, "check").places) + 1), count, name)


@pytest.mark.parametrize("what", ["half done", "swallows", "hangs", "keeps the lock"])
def test_interrupts_find(what: str) -> None:
    name = f"defect: {what}"

    def is_found(nth: int) -> bool:
        disturb = lambda _, act: interrupt("KeyboardInterrupt", "check", nth, act)
        return bool(attempt(name, disturb, limit=5 if what == "hangs" else 60).wrong)

    assert any(is_found(nth) for nth in points(name, 40))


def test_interrupts_find_a_lock_that_is_not_taken() -> None:
    """A signal handler appends in the middle of an operation."""
    name = "defect: without a lock"
    assert any(attempt(name, within(partial(handler, "append", nth))).wrong for nth in points(name, 300))


# ---- allocations -------------------------------------------------------------------------------------------


def tries_again(subject: Subject) -> object:
    """What was appended before the lack of memory is appended twice."""
    values = subject.values(14)
    try:
        return subject.handle.extend(values, batch_bytes=450)
    except MemoryError:
        return subject.handle.extend(values, batch_bytes=450)


TRIED["defect: tries again"] = Operation("defect: tries again", Subject, eleven, tries_again)


def test_allocations_find_a_retry_that_doubles() -> None:
    allocations = pytest.importorskip("tests.interrupts.test_allocations")
    tried = [partial(allocations.without_memory, nth, 1) for nth in range(1, 200, 3)]
    assert any(attempt("defect: tries again", each, may_leave=True).wrong for each in tried)


# ---- compaction --------------------------------------------------------------------------------------------


def test_the_model_finds_a_bound_of_compaction_that_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction claims more than it has cleaned."""
    compact = kstore.LogWriter.compact

    def claim_more(self: kstore.LogWriter, **options: Any) -> Any:
        done = compact(self, **options)
        return done._replace(end_offset=self.log_end_offset, first_uncleanable_offset=self.log_end_offset)

    monkeypatch.setattr(kstore.LogWriter, "compact", claim_more)
    compare: Any = compact_and_compare.hypothesis.inner_test  # type: ignore[attr-defined]

    def is_found(seed: int) -> bool:
        try:
            compare(seed, tmp_path_factory, _nothing)
        except (AssertionError, kstore.KstoreError):
            return True
        return False

    assert any(is_found(seed) for seed in range(10))


# ---- bits --------------------------------------------------------------------------------------------------


def test_bits_find_a_checksum_that_is_not_compared(home: Path) -> None:  # noqa: F811
    """A producer snapshot with a turned bit has the checksum that fits."""
    right = answers(home / "t-0")
    tried, believed = 0, []
    for path in sorted((home / "t-0").glob("*.snapshot")):
        data = path.read_bytes()
        for bit in range(8 * 6, 8 * len(data), 61):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            changed[2:6] = crc32c(bytes(changed[6:])).to_bytes(4, "big")
            path.write_bytes(changed)
            tried += 1
            if outcome(home / "t-0", right, path).startswith("believed"):
                believed.append(bit)
        path.write_bytes(data)
    assert believed_by_the_page()[".snapshot"][1] == 0
    assert tried <= 500
    assert believed


# ---- descriptors -------------------------------------------------------------------------------------------

KEEPS_FILES = """
import sys
import kstore
from tests.descriptors.many_segments import main
kept, append = [], kstore.LogWriter.append
def append_and_keep(self, *given, **options):
    offset = append(self, *given, **options)
    kept.append(open(self.segments[-1].path))
    return offset
kstore.LogWriter.append = append_and_keep
main(sys.argv[1], 400, 64)
"""


def test_descriptors_find_files_that_are_not_closed(ram: Path) -> None:
    done = run_python(KEEPS_FILES, ram / "many")
    assert done.returncode != 0
    assert "Too many open files" in done.stderr


# ---- the page ----------------------------------------------------------------------------------------------


def test_the_page_names_a_test_for_every_search() -> None:
    """And the tests are there."""
    page = PAGE.read_text("utf-8")
    part = page[page.index("## What finds nothing proves nothing") :]
    named = re.findall(r"`(tests/[a-z_]+/[a-z_]+\.py)`", part)
    assert len(named) >= 10
    assert all((PAGE.parents[1] / path).is_file() for path in named)
    searches = re.findall(r"^\| ([a-z0-9 -]+?) \| [^|]+ \| [0-9,]+", page, re.MULTILINE)
    assert {search.name for search in SEARCHES} <= set(searches)
    assert [name for name in searches if f"| {name} |" not in part] == []
    assert all(
        (PAGE.parents[1] / test.partition("::")[0]).exists() for search in SEARCHES for test in search.tests
    )
    rows = re.findall(r"^\| crash states \| ([^|]+) \| [^|]+ \| `make (\w+)` \|", part, re.MULTILINE)
    in_test = (*QUICK, *QUICK_STORE)
    assert rows == [(name, "test" if name in in_test else "nightly") for name in (*DEFECTS, *STORE_DEFECTS)]
