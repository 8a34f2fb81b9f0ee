"""What `make evidence` runs: the searches of the other folders, in pieces that take a minute or a few
each."""

from typing import NamedTuple


class Search(NamedTuple):
    """One search. `effort`: how much a piece of it tries. `share`: its part of the time. `once`: another
    piece would try the same again."""

    name: str
    what: str
    tests: tuple[str, ...]
    effort: int
    share: int
    once: bool = False


SEARCHES = (
    Search(
        "kill -9",
        "writers killed, at system calls and at random moments",
        ("tests/crash",),
        6,
        3,
    ),
    Search(
        "crash states",
        "states that a disk may hold after a power cut, built from the record of a workload of a log or of a store; "
        "each is opened",
        ("tests/crash_states/test_crash_states.py",),
        3,
        4,
    ),
    Search(
        "power cuts",
        "copies of a disk under a writer, mounted and opened (ext4 ordered and writeback, XFS, btrfs)",
        ("tests/power_cuts/test_power_cuts.py::test_power_cuts",),
        4,
        3,
    ),
    Search(
        "interrupts",
        "Ctrl-C or lack of memory at points of all public operations",
        ("tests/interrupts/test_interrupts.py",),
        4,
        3,
    ),
    Search(
        "allocations",
        "allocations in C, Cython or Python that fail within public operations",
        ("tests/interrupts/test_allocations.py::test_no_memory",),
        1,
        2,
    ),
    Search(
        "compaction",
        "random logs that are compacted, over several rounds, against a dict",
        ("tests/compaction/test_model.py",),
        10,
        2,
    ),
    Search(
        "bits",
        "bits of a log directory turned, each by itself",
        ("tests/hostile/test_every_bit.py",),
        100,
        1,
        once=True,
    ),
    Search(
        "descriptors",
        "segments and logs read and written under 256 descriptors",
        ("tests/descriptors",),
        50,
        1,
        once=True,
    ),
)
