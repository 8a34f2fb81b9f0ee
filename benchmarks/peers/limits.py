"""The machine's limit: straight C loops (limits/limits.c)."""

from pathlib import Path

from benchmarks.data import NoCompilerError, compile_c
from benchmarks.peers.process import Absent, Peer, Process


def start(data: Path, work: Path) -> Peer:
    """It writes below `work`."""
    try:
        return Process([str(compile_c("limits")), str(data), str(work)], warm_up=0.3)
    except NoCompilerError as e:
        return Absent(str(e))
