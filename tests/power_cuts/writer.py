"""A process that runs a workload on a disk until it is killed, and prints what it expects."""

import pickle
import random
import struct
import sys
import warnings
from pathlib import Path

import kstore
from tests.crash_states.expected import Book
from tests.crash_states.workload import Setting, Workload

LENGTH = struct.Struct(">I")


class Pipe:
    """Writes what is marked to stdout."""

    def mark(self, value: object) -> None:
        content = pickle.dumps(value)
        sys.stdout.buffer.write(LENGTH.pack(len(content)) + content)
        sys.stdout.buffer.flush()


def main(root: Path, seed: str) -> None:
    """Never returns. The first value is the Setting."""
    rng = random.Random(seed)
    setting = Setting.chosen(rng)
    setting.prepare(root)
    pipe = Pipe()
    pipe.mark(setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)
        Workload(root, pipe, Book(), rng, setting).run(lambda steps: False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
