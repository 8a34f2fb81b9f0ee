"""Ctrl-C while something is opened leaves no lock, not even while its traceback lives, which refers to what was
being opened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import some
from tests.helpers.injector import InjectedInterrupt, Injector, raiser

LAST = (
    16  # points of each opening that are always tried: there an object is made, and its owner has it not yet
)
OPENINGS: dict[str, Callable[[Path], Any]] = {
    "log": lambda path: kstore.open(path / "t-0", "a"),
    "shared log": lambda path: kstore.open(path / "t-0", "a", shared=True),
    "cursor": lambda path: kstore.open(path / "t-0").cursor("g"),
    "store": lambda path: kstore.LogStore(path, mode="a", background=False),
    "shared store": lambda path: kstore.LogStore(path, mode="a", background=False, shared=True),
    "store's cursor": lambda path: kstore.LogStore(path).cursor("g", ["t"]),
}


# in a finalizer, CPython reports it instead of raising it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", OPENINGS)
def test_an_interrupted_opening_leaves_no_lock(name: str, tmp_path: Path) -> None:
    opening = OPENINGS[name]
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    opening(tmp_path).close()  # it makes files, and imports modules
    with Injector("check") as undisturbed:
        opened = opening(tmp_path)
    opened.close()
    total = len(undisturbed.where)
    points = {*some(range(1, total + 1), 12, name), *range(total - LAST, total + 1)}
    stopped = 0
    for nth in sorted(points):
        try:
            with Injector("check", nth, raiser(InjectedInterrupt)):
                opened = opening(tmp_path)
        except InjectedInterrupt:
            stopped += 1
            opening(tmp_path).close()
        else:
            opened.close()
    assert stopped
