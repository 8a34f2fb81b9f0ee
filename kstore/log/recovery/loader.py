"""Loading a partition directory, as Kafka does it (spec 8).

Loading writes nothing. It reads facts (`survey`), makes a plan of them, and returns the log that the plan
leads to. An opening for writing then runs the plan.
"""

from __future__ import annotations

import os

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES
from kstore.engine.io.file import read_whole
from kstore.engine.segment.index import TimeIndex
from kstore.errors import CorruptFileError, CorruptRecordError, LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import State, directory_of, is_led, is_tiered, read_state
from kstore.log.files.producer_snapshot import checked_count
from kstore.log.files.truncations import NO_TRUNCATIONS
from kstore.log.later import later
from kstore.log.recovery.plan import counted_swaps, make_plan, tidied
from kstore.log.recovery.presence import not_found
from kstore.log.recovery.report import Gaps, Recovery
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.recovery.survey import (
    SNAPSHOT,
    TRANSACTIONS,
    changed_from,
    is_as_listed,
    read_names,
    read_swaps,
    segments_of,
    survey,
    transactions_until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kstore.engine.segment.segment import Segment
    from kstore.log.files.manifest import Stamp
    from kstore.log.files.truncations import Truncations
    from kstore.log.recovery.gaps import Gap, gaps_in
    from kstore.log.recovery.plan import Kept, Plan
    from kstore.log.recovery.repairs import Repairs
    from kstore.log.recovery.steps import Code, Step
    from kstore.log.recovery.survey import Mode, Names, Survey
    from kstore.typed import StrPath
else:
    later(globals(), {"kstore.log.recovery.gaps": "Gap gaps_in", "kstore.log.recovery.steps": "Code Step"})


class Loaded:
    """A loaded partition: its segments, bounds, leader epochs and truncations. Immutable."""

    def __init__(
        self,
        segments: tuple[Segment, ...],
        log_start_offset: int,
        log_end_offset: int,
        leader_epochs: LeaderEpochs,
        recovery: Recovery,
        lost_time_indexes: frozenset[int],
        lost_transaction_indexes: frozenset[int],  # their content is only in the batches
        recovered_producers: bool,  # whether a recovered segment has batches with producer ids
        origin: object,  # a new object if segments were replaced, or all was loaded again
        truncations: Truncations = NO_TRUNCATIONS,  # the number of the last one is the generation
        manifest: Stamp = None,  # the manifest that has the truncations, for a reader of the directory
    ) -> None:
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.leader_epochs = leader_epochs
        self.recovery = recovery
        self.lost_time_indexes = lost_time_indexes
        self.lost_transaction_indexes = lost_transaction_indexes
        self.recovered_producers = recovered_producers
        self.origin = origin
        self.truncations = truncations
        self.manifest = manifest

    def replace(self, **changes: Any) -> Loaded:
        """A copy with these changes."""
        return Loaded(**vars(self) | changes)


def load(
    path: StrPath,
    *,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    recover: bool = True,
    state: State | None = None,
    mode: Mode = "read",
    is_alone: bool = True,
) -> Loaded:
    """Load a partition directory without writing. Arguments that are None come from the checkpoints, which
    need not be readable if there is none.

    mode: "write" if the plan will be run, "dry" if the plan for writing is only shown, "read" otherwise. With
    "read", LogChangedError if segments are deleted or replaced meanwhile. is_alone: no other process is
    writing, so files that are not finished are of one that died.
    """
    try:
        stored = state or read_state(path)
    except OSError:
        if clean is None or recovery_point is None or log_start_offset is None:
            raise
        stored = State(clean, recovery_point, 0, ())
    # These arguments distrust the last stop: every batch from the recovery point on is checked.
    is_given = clean is not None or recovery_point is not None
    state = stored._replace(
        clean=stored.clean if clean is None else clean,
        recovery_point=stored.recovery_point if recovery_point is None else recovery_point,
        log_start_offset=stored.log_start_offset if log_start_offset is None else log_start_offset,
        by_itself=stored.by_itself and not is_given,
    )
    make = SegmentFactory(str(path), index_interval_bytes, max_decompressed_bytes)
    try:
        names = read_names(str(path))
    except OSError:
        if os.path.isdir(path):
            raise
        raise not_found(path) from None
    after, steps, losses = names, list[Step](), list[str]()
    if recover:
        after, steps, losses = tidied(names, read_swaps(counted_swaps(names), make), is_alone=is_alone)
    surveyed = segments_of(after, make)
    found = survey(
        path,
        after,
        surveyed,
        state,
        recover=recover,
        mode=mode,
        trusts_writer=mode == "read" and not is_given,
        is_alone=is_alone,
    )
    plan = make_plan(found, state, stored, recover=recover, mode=mode)
    segments = _built(found, plan, surveyed, make, recover)
    steps = [*_noted(names, state, found, mode), *steps, *plan.steps]
    losses = [*losses, *plan.losses]
    gaps = Gaps()
    if segments:
        flushed = plan.log_end_offset if found.clean else min(state.recovery_point, plan.log_end_offset)
        gaps = Gaps(
            lambda: _gap_steps(path, names, found, plan, segments, make, stored),
            lambda: _snapshot_steps(names, plan, flushed),
        )
    if mode != "read":
        _refuse_overlap(gaps.between, path)  # before appends and retention change the files
    recovered = list(plan.recovered_segments)
    recovery = Recovery(
        found.clean, state.recovery_point, False, recovered, plan.truncated_bytes, losses, tuple(steps), gaps
    )
    epochs = LeaderEpochs(plan.epochs)
    # Kafka's loading drops an epoch without records. A live writer has begun it, so keep it then.
    is_begun = bool(plan.epochs) and plan.epochs[-1][1] == plan.log_end_offset
    is_live = is_begun and mode == "read" and is_locked(directory_of(path))
    epochs = epochs.until(plan.log_end_offset + is_live).since(plan.wanted_start)
    if mode == "read":
        for segment in segments:  # a compaction may replace the file of this name
            segment.files.remember(*_file_of(names, segment))
        if not is_as_listed(names):
            raise LogChangedError(str(path), 0, 0, 0, "segments came or went while it was opened")
    return Loaded(
        segments,
        plan.log_start_offset,
        plan.log_end_offset,
        epochs,
        recovery.shown() if mode == "read" else recovery,
        plan.lost_time_indexes,
        plan.lost_transaction_indexes,
        plan.has_producers,
        object(),
    )


def _noted(names: Names, state: State, found: Survey, mode: Mode) -> list[Step]:
    """Steps about damaged checkpoints and an empty directory."""
    steps = []
    for file, text, hides_start in state.complaints:
        code = Code.LOG_START_UNKNOWN if hides_start else Code.CHECKPOINT_DAMAGED
        steps.append(Step(code, file, detail=text))
    if mode == "read" and not (names.files or names.others):
        steps.append(Step(Code.DIRECTORY_EMPTY, names.directory))
    if found.epochs_error is not None:
        file = f"{names.directory}/{layout.LEADER_EPOCHS}"
        steps.append(Step(Code.EPOCHS_DAMAGED, file, detail=found.epochs_error))
    return steps


def _built(
    found: Survey, plan: Plan, surveyed: Sequence[Segment], make: SegmentFactory, recover: bool
) -> tuple[Segment, ...]:
    """The segments of the log as the plan leaves them."""
    built = list(surveyed[: plan.kept_count])
    for at in sorted(plan.walked, reverse=True):
        built[at : at + 1] = [_segment_of(kept, surveyed[at], make) for kept in plan.walked[at]]
    lost = plan.lost_time_indexes.difference(plan.recovered_segments)
    for segment in built if lost else ():
        if segment.base_offset in lost:
            segment.use_indexes(None, TimeIndex(segment.base_offset))
    if built and recover:
        last, known = built[-1], found.segments[-1]
        is_rebuilt = last.base_offset in plan.recovered_segments
        if known.files & TRANSACTIONS and known.transactions is None and not is_rebuilt:
            index = transactions_until(last, plan.log_end_offset)
            if len(index) < len(last.transaction_index):
                last.use_indexes(None, None, index)
        last.read_next_offset()
    return tuple(built)


def _segment_of(kept: Kept, segment: Segment, make: SegmentFactory) -> Segment:
    part = kept.part
    assert part.walk is not None
    if (part.base_offset, kept.end_offset) != (segment.base_offset, segment.end_offset):
        segment = make(segment.stem, part.base_offset, segment.suffixes, kept.end_offset, part.origin)
    segment.limit_to(part.walk.valid_bytes)
    segment.use_indexes(part.walk.offset_index, part.walk.time_index)
    return segment


def _file_of(names: Names, segment: Segment) -> tuple[int, int]:
    """The device and inode of a segment's .log when the directory was listed; (0, 0) if that is not known."""
    if segment.suffixes or segment.origin:
        return 0, 0
    return names.device, names.inodes.get(segment.base_offset, 0)


def _gap_steps(
    path: StrPath,
    names: Names,
    found: Survey,
    plan: Plan,
    segments: Sequence[Segment],
    make: SegmentFactory,
    stored: State,
) -> list[Step]:
    """Steps about missing offsets between segments, and bytes there that are not a batch."""
    first = segments[0]
    gaps: list[tuple[Segment, Gap]] = [(first, g) for g in _gap_before(path, found, plan, first, stored)]
    recovered = [segment for segment in segments if segment.base_offset in plan.recovered_segments]
    if len(segments) > 1:
        gaps += gaps_in(path, segments, recovered, plan.wanted_start, plan.orphans, make)
    changed = changed_from(names) if gaps else None
    steps = []
    for segment, gap in gaps:
        if changed is not None and changed <= gap.offsets[1]:
            continue  # another process is replacing segments, so a file may be missing for a moment
        if gap.tail:
            steps.append(Step(gap.code, segment.path, segment.size - gap.tail, gap.tail))
        else:
            steps.append(Step(gap.code, segment.path, offsets=gap.offsets, is_loss=gap.is_sure))
    return steps


def _snapshot_steps(names: Names, plan: Plan, flushed: int) -> list[Step]:
    """Steps about damaged snapshots of producers, down to a sound one. A crash may leave a damaged one above
    the offset up to which they were flushed."""
    first = plan.log_start_offset
    kept = [offset for offset, bits in names.files.items() if bits & SNAPSHOT]
    steps: list[Step] = []
    for offset in sorted((o for o in kept if first < o <= plan.log_end_offset), reverse=True):
        path = f"{names.directory}/{layout.segment_stem(offset)}.snapshot"
        try:
            checked_count(read_whole(path, or_deleted=True), path)
            return steps
        except CorruptFileError as e:
            if offset <= flushed:
                steps.append(Step(Code.SNAPSHOT_DAMAGED, path, detail=str(e).removeprefix(f"{path}: ")))
        except (
            OSError
        ):  # another process has removed it, or it cannot be read, which an opening for writing says
            return steps
    if steps and first > 0:
        steps[0] = steps[0]._replace(code=Code.PRODUCERS_FORGOTTEN)
    return steps


def _gap_before(path: StrPath, found: Survey, plan: Plan, first: Segment, stored: State) -> list[Gap]:
    """Missing offsets before the first segment, if an index without its log or a checkpoint with an earlier
    log start names them.

    Both are reliable only after a clean stop, because retention may have been interrupted otherwise. The
    checkpoint of a broker includes the remote part of a topic.
    """
    start, base = stored.log_start_offset, first.base_offset
    # the leader epochs of a topic without remote storage begin with the first segment
    remote = max(min((offset for _, offset in found.epochs), default=base), start)
    if remote < base and is_tiered(path):
        return [Gap((remote, base), Code.OFFSETS_REMOTE, is_sure=False, tail=0)]
    begun = [offset for offset in plan.orphans if plan.wanted_start <= offset < base]
    if 0 < start < base:
        begun.append(start)
    if not (found.clean and begun):
        return []
    is_sure = not (stored.by_broker or is_led(path)) or begun != [start]
    return [Gap((min(begun), base), Code.OFFSETS_MISSING, is_sure, 0)]


def _refuse_overlap(steps: Sequence[Step], path: StrPath) -> None:
    """Raise CorruptRecordError if offsets are in two segments: appended records would be ambiguous, too."""
    for step in steps:
        if step.code is Code.SEGMENTS_OVERLAP:
            error = CorruptRecordError(
                "last offset of a segment",
                file=step.file,
                position=0,
                expected=f"below {step.offsets[0]}, where the next one begins",
                found=step.offsets[1] - 1,
            )
            error.add_note(
                f"kstore recover {path} --all ends the log there, and keeps the rest in .cut files"
            )
            raise error


def carried_out(loaded: Loaded, repairs: Repairs) -> Loaded:
    """Run the plan of a log that was loaded for writing, and return the log after it. OSError."""
    recovery = loaded.recovery.run(repairs)
    segments = tuple(_settled(segment, recovery) for segment in loaded.segments)
    return loaded.replace(segments=segments, recovery=recovery)


def _settled(segment: Segment, recovery: Recovery) -> Segment:
    """A segment with the names that its files have after the plan."""
    stem = layout.segment_stem(segment.base_offset)
    if not segment.suffixes and not segment.origin and segment.stem == stem:
        return segment
    make = SegmentFactory(segment.directory, segment.index_interval_bytes, segment.max_decompressed_bytes)
    settled = make(stem, segment.base_offset, None, segment.end_offset)
    if segment.base_offset in recovery.recovered_segments:
        settled.use_indexes(segment.offset_index, segment.time_index)
    return settled
