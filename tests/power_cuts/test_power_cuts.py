"""After a power cut on a real file system, nothing that was promised is lost, and nothing comes back.

`KSTORE_POWER_CUTS=N` cuts so often on each file system. `KSTORE_CRASH_SEED` repeats the run that a failure names, as far as
the moments of a kernel can be repeated.
"""

import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from kstore.testing.image import Image
from tests.crash_states.judge import Judge
from tests.crash_states.lives import Setting
from tests.crash_states.promises import Promise
from tests.helpers.processes import environment
from tests.power_cuts.disk import FILE_SYSTEMS, FileSystem, made, no_mounting
from tests.power_cuts.writer import LENGTH

CUTS = int(os.environ.get("KSTORE_POWER_CUTS", "8"))
SEED = os.environ.get("KSTORE_CRASH_SEED") or "1"
A_LIFE = 8  # cuts
LONGEST = 0.25  # s between two cuts
FOUND = ("sealed_files_are_not_synced", "checkpoints_are_renamed_before_they_are_synced")


class Life:
    """The process of a life, and the last that it has told."""

    def __init__(self, root: Path, seed: str, defect: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.power_cuts.writer", str(root), seed, defect],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert self.process.stdout is not None
        self._pipe: IO[bytes] = self.process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._told = bytearray()
        self._values: list[object] = []

    def listen(self, seconds: float) -> None:
        """Takes what it tells meanwhile."""
        until = time.monotonic() + seconds
        while self._take() or time.monotonic() < until:
            time.sleep(0.001)

    def _take(self) -> bool:
        piece = self._pipe.read()
        if piece is None or piece == b"":
            return False
        self._told += piece
        while len(self._told) >= LENGTH.size:
            size = LENGTH.size + LENGTH.unpack_from(self._told)[0]
            if len(self._told) < size:
                break
            self._values.append(pickle.loads(self._told[LENGTH.size : size]))
            del self._told[:size]
        return True

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing meanwhile; the kernel goes on with what it was told to write."""
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
    def promise(self) -> Promise | None:
        """What it promises now; None if it has told nothing yet."""
        found = self._values[-1] if self._values else None
        return found if isinstance(found, Promise) else None

    def end(self) -> None:
        self.process.kill()
        self._pipe.close()
        self.process.wait()


def complaints(system: FileSystem, ram: Path, seed: str, cuts: int, defect: str = "") -> list[str]:
    """What is wrong after power cuts in one life."""
    rng = random.Random(seed)
    wrong = []
    with made(system, ram) as disk:
        with disk.mounted() as root:
            life = Life(root, seed, defect)
            try:
                taken = []
                while len(taken) < cuts and life.process.poll() is None:
                    life.listen(rng.random() * LONGEST)
                    with life.stopped():
                        if life.promise is not None:
                            taken.append((disk.cut(), life.promise))
                assert life.process.poll() is None, f"the writer ended: {seed}"
            finally:
                life.end()
        judge = Judge(ram)
        for copy, promise in taken:
            with disk.look(copy) as root:
                image = Image.of(root)
            where = f"{system.name}, KSTORE_CRASH_SEED={SEED}, life {seed}, {life.setting}, {promise}"
            wrong += [f"{where}: {text}" for text in judge.judge(image, promise, life.setting)]
    return wrong


def need(system: FileSystem, ram: Path) -> None:
    why = no_mounting(ram) or system.missing()
    if why:
        pytest.skip(why)


@pytest.mark.timeout(0 if CUTS > 100 else 300)
@pytest.mark.parametrize("system", FILE_SYSTEMS, ids=lambda system: system.name)
def test_power_cuts(system: FileSystem, ram: Path, tried: Callable[[int], None]) -> None:
    need(system, ram)
    done = 0
    while done < CUTS:
        now = min(A_LIFE, CUTS - done)
        wrong = complaints(system, ram, f"{SEED}.{system.name}.{done}", now)
        assert not wrong, "\n".join(wrong)
        done += now
    tried(done)


@pytest.mark.parametrize("defect", FOUND)
def test_a_defect_is_found(defect: str, ram: Path) -> None:
    """A sync that was left out loses records on a real disk, and is complained of."""
    system = FILE_SYSTEMS[0]
    need(system, ram)
    assert any(complaints(system, ram, f"defect.{number}", A_LIFE, defect) for number in range(20))
