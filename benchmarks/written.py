"""The log that kstore writes in a turn: made before it, closed and removed after it, neither counted."""

import shutil
from collections.abc import Callable
from typing import Any, Literal

import kstore
from benchmarks.data import Data
from benchmarks.peers import InProcess


def contestant(
    name: str,
    data: Data,
    work: Callable[[kstore.LogWriter], int],
    *,
    durability: Literal["none", "group", "each"] = "none",
    by_end: bool = False,
    by_bytes: bool = False,
    **config: Any,
) -> InProcess[kstore.LogWriter]:
    """`work` appends to a new log and returns its units. What proves it right is the size of the log, or where bytes
    may differ between contestants (`by_end`) its end offset; `by_bytes` counts bytes as units."""
    path = data.work / "kstore" / "log-0"

    def prepare(*args: int) -> kstore.LogWriter:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        return kstore.open(path, "a", durability=durability, **config)

    def timed(log: kstore.LogWriter) -> tuple[int, int]:
        units = work(log)
        size = log.active.size
        return size if by_bytes else units, log.log_end_offset if by_end else size

    def clear(log: kstore.LogWriter) -> None:
        log.close()
        shutil.rmtree(path.parent)

    return InProcess(name, prepare, timed, clear=clear)
