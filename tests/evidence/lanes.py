"""What `make evidence` runs: the searches of the other folders, in pieces that take a minute or a few each."""

from typing import NamedTuple


class Lane(NamedTuple):
    """One search. `piece`: the settings of a piece of it. `seed`: the setting that lets each piece try something else; none
    if chance decides anyway. `share`: its part of the time. `once`: a second piece would try the same again."""

    name: str
    what: str
    tests: tuple[str, ...]
    piece: dict[str, str]
    seed: str
    share: int
    once: bool = False  # another piece would try the same again


LANES = (
    Lane(
        "kill -9",
        "writers killed, at every system call and at random moments",
        ("tests/crash",),
        {"KSTORE_CRASHES": "150"},
        "",
        3,
    ),
    Lane(
        "crash states",
        "states that a disk may hold after a power cut, built from the record of a writer's or a store's life; "
        "each is opened",
        ("tests/crash_states/test_crash_states.py", "tests/crash_states/test_store_states.py"),
        {"KSTORE_CRASH_STATES": "1", "KSTORE_CRASH_MOMENTS": "30"},
        "KSTORE_CRASH_SEED",
        4,
    ),
    Lane(
        "power cuts",
        "copies of a disk while a writer lives, mounted and opened (ext4 ordered and writeback, XFS, btrfs)",
        ("tests/power_cuts/test_power_cuts.py::test_power_cuts",),
        {"KSTORE_POWER_CUTS": "32"},
        "KSTORE_CRASH_SEED",
        3,
    ),
    Lane(
        "interrupts",
        "Ctrl-C or lack of memory at points of all public operations",
        ("tests/interrupts/test_points.py",),
        {},
        "KSTORE_INTERRUPTS_SEED",
        3,
    ),
    Lane(
        "allocations",
        "allocations in C, Cython or Python that fail within public operations",
        ("tests/interrupts/test_allocations.py::test_no_memory",),
        {"KSTORE_ALLOCATIONS": "4"},
        "KSTORE_INTERRUPTS_SEED",
        2,
    ),
    Lane(
        "compaction",
        "random logs that are compacted, over several rounds, against a dict",
        ("tests/compaction/test_model.py",),
        {"KSTORE_COMPACTIONS": "150"},
        "",
        2,
    ),
    Lane(
        "bits",
        "bits of a log directory turned, each by itself",
        ("tests/hostile/test_every_bit.py",),
        {"KSTORE_BITS": "all"},
        "",
        1,
        once=True,
    ),
    Lane(
        "descriptors",
        "segments and logs read and written under 256 descriptors",
        ("tests/descriptors",),
        {"KSTORE_MANY": "20000"},
        "",
        1,
        once=True,
    ),
)
