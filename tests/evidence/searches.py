"""What `make evidence` runs: the searches of other folders, in pieces of a minute or a few."""

from typing import NamedTuple


class Search(NamedTuple):
    """One search. `effort`: how much a piece of it tries. `share`: its part of the time. `once`: another
    piece would try the same again."""

    name: str
    effort: int
    share: int
    tests: tuple[str, ...]
    what: str
    once: bool = False


SEARCHES = (
    Search(
        "kill -9", 6, 3, ("tests/crash", "tests/interrupts/test_failing_calls.py::test_a_call"),
        "writers killed at random moments; system calls of public operations that kill, or fail",
    ),
    Search(
        "crash states", 3, 4, ("tests/crash_states/test_crash_states.py",),
        "states that a disk may hold after a power cut, built from the record of a workload of a log or of a "
        "store; each is opened",
    ),
    Search(
        "power cuts", 4, 3, ("tests/power_cuts/test_power_cuts.py::test_power_cuts",),
        "copies of a disk under a writer, mounted and opened (ext4 ordered and writeback, XFS, btrfs)",
    ),
    Search(
        "interrupts", 4, 3, ("tests/interrupts/test_interrupts.py",),
        "Ctrl-C or lack of memory at points of all public operations",
    ),
    Search(
        "allocations", 1, 2, ("tests/interrupts/test_allocations.py::test_no_memory",),
        "allocations in C, Cython or Python that fail within public operations",
    ),
    Search(
        "compaction", 10, 2, ("tests/compaction/test_model.py",),
        "random logs that are compacted, over several rounds, against a dict",
    ),
    Search(
        "bits", 100, 1, ("tests/hostile/test_every_bit.py",),
        "bits of a log directory turned, each by itself", once=True,
    ),
    Search(
        "descriptors", 50, 1, ("tests/descriptors",),
        "segments and logs read and written under 256 descriptors", once=True,
    ),
)  # fmt: skip
