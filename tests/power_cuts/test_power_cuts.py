"""After a power cut on a real file system, no durable record is lost, and no deleted one is back.

SEED repeats a run that failed, as far as the moments of a kernel can be repeated.
"""

import contextlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from kstore.testing import Image
from tests.crash_states.expected import Expected
from tests.crash_states.judge import Judge
from tests.crash_states.workload import Setting
from tests.helpers.effort import SEED, times
from tests.helpers.processes import environment
from tests.power_cuts.disk import FILE_SYSTEMS, FileSystem, made, no_mounting
from tests.power_cuts.writer import LENGTH

CUTS = 8  # of one workload
LONGEST = 0.25  # s between two cuts
UNSYNCED = Path(__file__).with_name("unsynced.c")


class Writer:
    """A process that runs a workload, and the last that it has said."""

    def __init__(self, root: Path, seed: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.power_cuts.writer", str(root), seed],
            stdout=subprocess.PIPE,
            env=environment(**more),
        )
        assert self.process.stdout is not None
        self._pipe: IO[bytes] = self.process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._read = bytearray()
        self._values: list[object] = []

    def listen(self, seconds: float) -> None:
        """Takes what it says meanwhile."""
        until = time.monotonic() + seconds
        while self._take() or time.monotonic() < until:
            time.sleep(0.001)

    def _take(self) -> bool:
        piece = self._pipe.read()
        if piece is None or piece == b"":
            return False
        self._read += piece
        while len(self._read) >= LENGTH.size:
            size = LENGTH.size + LENGTH.unpack_from(self._read)[0]
            if len(self._read) < size:
                break
            self._values.append(pickle.loads(self._read[LENGTH.size : size]))
            del self._read[:size]
        return True

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing meanwhile; the kernel goes on with what it was asked to write."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        while self._take():
            pass
        yield
        self.process.send_signal(signal.SIGCONT)

    @property
    def setting(self) -> Setting:
        found = self._values[0]
        assert isinstance(found, Setting)
        return found

    @property
    def expected(self) -> Expected | None:
        """What it expects now; None if it has said nothing yet."""
        found = self._values[-1] if self._values else None
        return found if isinstance(found, Expected) else None

    def end(self) -> None:
        self.process.kill()
        self._pipe.close()
        self.process.wait()


def complaints(system: FileSystem, ram: Path, seed: str, **more: str) -> list[str]:
    """What is wrong after power cuts within one workload. `more`: the environment of the writer."""
    rng = random.Random(seed)
    wrong = []
    with made(system, ram) as disk:
        with disk.mounted() as root:
            writer = Writer(root, seed, **more)
            try:
                taken = []
                while len(taken) < CUTS and writer.process.poll() is None:
                    writer.listen(rng.random() * LONGEST)
                    with writer.stopped():
                        if writer.expected is not None:
                            taken.append((disk.cut(), writer.expected))
                assert writer.process.poll() is None, f"the writer ended: {seed}"
            finally:
                writer.end()
        judge = Judge(ram)
        for copy, expected in taken:
            with disk.look(copy) as root:
                image = Image.of(root)
            where = f"{system.name}, SEED={SEED}, workload {seed}, {writer.setting}, {expected}"
            wrong += [f"{where}: {text}" for text in judge.judge(image, expected, writer.setting)]
    return wrong


def need(system: FileSystem, ram: Path) -> None:
    why = no_mounting(ram) or system.missing()
    if why:
        pytest.skip(why)


@pytest.mark.parametrize("number", range(times(1)))
@pytest.mark.parametrize("system", FILE_SYSTEMS, ids=lambda system: system.name)
def test_power_cuts(system: FileSystem, number: int, ram: Path, tried: Callable[[int], None]) -> None:
    need(system, ram)
    wrong = complaints(system, ram, f"{SEED}.{system.name}.{number}")
    assert not wrong, "\n".join(wrong)
    tried(CUTS)


@pytest.mark.parametrize("name", [".log", "-checkpoint.tmp"])
def test_a_left_out_sync_is_found(name: str, ram: Path) -> None:
    """A library that is preloaded into the writer ignores syncs of files with such a name."""
    system = FILE_SYSTEMS[0]
    need(system, ram)
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    library = ram / "unsynced.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, UNSYNCED, "-ldl"], check=True)
    seeds = (f"defect.{number}" for number in range(20))
    assert any(complaints(system, ram, seed, LD_PRELOAD=str(library), UNSYNCED=name) for seed in seeds)
