"""The plan of an opening: facts in, steps out. Each case is facts about one directory."""

from typing import Any

import pytest

from kstore.arguments import MAX64
from kstore.engine.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from kstore.engine.segment.recovery_walk import RecoveryWalk
from kstore.errors import CorruptRecordError
from kstore.log.files.log_dir_state import State
from kstore.log.recovery.plan import Plan, counted_swaps, make_plan, tidied
from kstore.log.recovery.steps import SoundBatches
from kstore.log.recovery.survey import (
    INDEX,
    LOG,
    TIME_INDEX,
    End,
    Names,
    Part,
    Rest,
    SegmentFacts,
    Survey,
    Swapped,
)

WHOLE = LOG | INDEX | TIME_INDEX
CLEAN, CRASHED = State(True, 30, 0, ()), State(False, 0, 0, ())


def name(offset: int, kind: str = ".log") -> str:
    return f"{offset:020d}{kind}"


def path(offset: int) -> str:
    return f"t-0/{name(offset)}"


def walked(base: int, valid: int, size: int = 100, **rest: Any) -> Part:
    """A segment of 10 records, of which so many bytes count; `rest` is about the others."""
    error = CorruptRecordError("batch", file=name(base), position=valid) if valid < size else None
    offsets, times = OffsetIndex(base), TimeIndex(base)
    count = valid // 10
    time = TimestampOffset(-1, base)
    walk = RecoveryWalk(
        valid, base + count, count, offsets, times, time, [], error, False, False, False, False
    )
    return Part(base, 0, size, walk, Rest(rest.get("sound"), rest.get("is_zeros", False)) if error else None)


def behind(base: int, sound: SoundBatches | None) -> Part:
    return Part(base, 0, 100, None, Rest(sound))


def plan(parts: dict[int, Part | None], state: State, next_offset: int, **more: Any) -> Plan:
    """The plan for a log of these segments; None for one that was not walked."""
    segments = tuple(
        SegmentFacts(at, base, end, more.get("files", WHOLE), () if part is None else (part,))
        for at, ((base, part), end) in enumerate(zip(parts.items(), [*parts, MAX64][1:], strict=True))
    )
    end = more.get("end")
    names = Names("t-0", dict.fromkeys(parts, WHOLE), more.get("others", ()), {}, 0, 0)
    found = Survey(
        *(names, tuple(parts), segments, state.clean, next_offset, end, "", False, (), None, {}),
        tuple(name for name in names.others if name.endswith(".tmp")),
    )
    stored = more.get("stored", state)
    return make_plan(found, state, stored, recover=True, mode=more.get("mode", "write"))


def shown(steps: Any) -> list[tuple[str, str, str]]:
    """(code, file, method of the action) of each step."""
    return [
        (step.code.name.lower(), step.file, "" if step.action is None else step.action.method.__name__)
        for step in steps
    ]


SOUND = SoundBatches(2, 14, 19, 100)
TAIL = End(100, 28, 20, None, True, (0, 0))


@pytest.mark.parametrize(
    ("parts", "state", "next_offset", "more", "steps", "end", "losses"),
    [
        ({0: None}, CLEAN, 30, {}, [], 30, 0),
        ({0: None}, CLEAN, 30, {"files": LOG | INDEX}, [("no_time_index", path(0), "write_index")], 30, 0),
        (
            {0: None},
            CLEAN,
            28,
            {"end": TAIL},
            [("tail_left", path(0), ""), ("ends_early", path(0), "")],
            28,
            1,
        ),
        ({0: None}, CLEAN, 40, {}, [("ends_late", path(0), "")], 40, 0),
        (
            {0: walked(0, 100), 10: walked(10, 40, is_zeros=True)},
            CRASHED,
            14,
            {},
            [("indexes_rebuilt", path(0), "write_indexes"), ("spare_room", path(10), "cut")],
            14,
            0,
        ),
        (
            {0: walked(0, 100), 10: walked(10, 40, sound=SOUND), 20: behind(20, None), 30: behind(30, SOUND)},
            CRASHED,
            14,
            {},
            [
                ("indexes_rebuilt", path(0), "write_indexes"),
                ("behind_damage", path(30), "delete_segment"),
                ("behind_damage", path(20), "delete_segment"),
                ("names_synced", path(10), "sync_names"),
                ("corrupt_batch", path(10), "cut"),
            ],
            14,
            2,
        ),
        (
            {0: walked(0, 100)},
            CRASHED._replace(log_start_offset=50),
            10,
            {"stored": CRASHED},
            [("indexes_rebuilt", path(0), "write_indexes"), ("below_log_start", path(0), "delete_segment")],
            50,
            0,
        ),
        (
            {0: walked(0, 100)},
            CRASHED._replace(log_start_offset=50),
            10,
            {},
            [("log_start_beyond_end", "", "")],
            10,
            0,
        ),
        (
            {0: None},
            CLEAN,
            30,
            {"others": ("9.log", "x.log", name(9, ".index.tmp"))},
            [
                ("other_name_of_a_segment", "t-0/9.log", ""),
                ("no_name_of_a_segment", "t-0/x.log", ""),
                ("file_unfinished", f"t-0/{name(9, '.index.tmp')}", "delete"),
            ],
            30,
            0,
        ),
    ],
)
def test_plans(
    parts: dict[int, Part | None],
    state: State,
    next_offset: int,
    more: dict[str, Any],
    steps: list[tuple[str, str, str]],
    end: int,
    losses: int,
) -> None:
    found = plan(parts, state, next_offset, **more)
    assert shown(found.steps) == steps
    assert (found.log_end_offset, len(found.losses)) == (end, losses)


@pytest.mark.parametrize(
    ("others", "is_sound", "steps", "left"),
    [
        ([name(0, ".log.deleted")], True, ["removal_under_way"], [name(0), name(10)]),
        (
            [name(0, ".log.swap"), name(0, ".log.cleaned")],
            True,
            ["compaction_unfinished", "names_synced", "compaction_unfinished"],
            [name(0), name(10)],
        ),
        (
            [name(0, ".log.swap")],
            True,
            ["compaction_replaces", "compaction_replaces", "names_synced", "compaction_all_but_finished"],
            [name(0)],
        ),
        (
            [name(0, ".log.swap")],
            False,
            ["damaged_replaces", "damaged_replaces", "names_synced", "compaction_all_but_finished"],
            [name(0)],
        ),
    ],
)
def test_interrupted_work(others: list[str], is_sound: bool, steps: list[str], left: list[str]) -> None:
    names = Names("t-0", {0: LOG, 10: LOG}, tuple(others), {}, 0, 0)
    after, done, losses = tidied(names, {swap: Swapped(20, is_sound) for swap in counted_swaps(names)})
    assert [step.code.name.lower() for step in done] == steps
    assert [name(offset) for offset in after.files] == left
    assert len(losses) == 2 * (not is_sound)
