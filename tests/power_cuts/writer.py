"""A process that lives a writer's life on a disk, and tells what it promises, before and after every operation."""

import pickle
import random
import struct
import sys
import warnings
from pathlib import Path
from typing import Any, cast

import pytest

import kstore
from kstore.testing.recorder import Recorder
from tests.crash_states.defects import DEFECTS
from tests.crash_states.lives import Life, setting_of
from tests.crash_states.promises import Promises

LENGTH = struct.Struct(">I")


class Teller:
    """Stands for a Recorder: it writes what is marked to stdout."""

    def mark(self, value: object) -> None:
        content = pickle.dumps(value)
        sys.stdout.buffer.write(LENGTH.pack(len(content)) + content)
        sys.stdout.buffer.flush()


def main(root: Path, seed: str, defect: str) -> None:
    """Lives until it is killed. First it tells its Setting."""
    rng = random.Random(seed)
    setting = setting_of(rng)
    setting.prepare(root)
    teller = Teller()
    teller.mark(setting)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)
        if defect:
            DEFECTS[defect](patch)
        life = Life(root, cast("Recorder", cast("Any", teller)), Promises(), rng, setting)
        life.mark()
        life.open()
        while True:
            life.step()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
