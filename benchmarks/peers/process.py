"""A peer in another process: one line of words in, one line "NANOSECONDS UNITS CHECKSUM" out."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from benchmarks.peers import Contestant, Missing, Sample


class Process:
    """Started once, kept alive, driven line by line. Its first line says what it is."""

    def __init__(self, command: Sequence[str], warm_up: float) -> None:
        self.warm_up = warm_up
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self._line()

    def contestant(self, name: str, workload: str, warm_up: float = 0) -> Contestant | Missing:
        return Remote(name, max(self.warm_up, warm_up), self, workload)

    def run(self, workload: str, *args: int) -> Sample:
        assert self._child.stdin
        print(workload, *args, file=self._child.stdin, flush=True)
        ns, units, checksum = map(int, self._line().split())
        return Sample(ns, units, checksum)

    def _line(self) -> str:
        assert self._child.stdout
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._child.args!r} ended with status {self._child.wait()}")
        return line.rstrip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.communicate()  # the end of its input is the end of it


@dataclass(frozen=True)
class Absent:
    """Stands for a peer that cannot be started here."""

    reason: str

    @property
    def about(self) -> str:
        return f"missing: {self.reason}"

    def contestant(self, name: str, workload: str, warm_up: float = 0) -> Contestant | Missing:
        return Missing(name, self.reason)


Peer = Process | Absent


@dataclass(frozen=True)
class Remote:
    """One workload of a peer."""

    name: str
    warm_up: float
    process: Process
    workload: str

    def turn(self, *args: int) -> Sample:
        return self.process.run(self.workload, *args)
