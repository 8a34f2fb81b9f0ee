"""The log that kstore writes in a turn: made before it, closed and removed after it, neither counted."""

import shutil
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import kstore
from benchmarks.data import Data
from benchmarks.peers import InProcess

T = TypeVar("T")


def contestant(
    name: str,
    data: Data,
    load: Callable[[], T],
    work: Callable[[kstore.LogWriter, T], int],
    *,
    durability: Literal["none", "group", "each"] = "none",
    by_end: bool = False,
    by_bytes: bool = False,
    **config: Any,
) -> InProcess[tuple[kstore.LogWriter, T]]:
    """`work` appends what `load` gave to a new log, and returns its units; input is loaded before each turn,
    uncounted, as the peers do it: it lies in the processor's cache, or does not, for all alike. What proves
    it right is the size of the log, or where bytes may differ between contestants (`by_end`) its end offset;
    `by_bytes` counts bytes as units."""
    path = data.work / "kstore" / "log-0"

    def prepare(*args: int) -> tuple[kstore.LogWriter, T]:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        return kstore.open(path, "a", durability=durability, **config), load()

    def timed(given: tuple[kstore.LogWriter, T]) -> tuple[int, int]:
        log, loaded = given
        units = work(log, loaded)
        size = log.active.size
        return size if by_bytes else units, log.log_end_offset if by_end else size

    def clear(given: tuple[kstore.LogWriter, T]) -> None:
        given[0].close()
        shutil.rmtree(path.parent)

    return InProcess(name, prepare, timed, clear=clear)
