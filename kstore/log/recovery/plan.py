"""The plan of an opening: facts in, steps with reasons out (spec 8.2 to 8.4, 8.7).

Kafka finishes interrupted work when it loads a log: it deletes, renames, truncates incomplete ends and
rebuilds indexes. These functions decide these steps. They read and write nothing.
"""

from __future__ import annotations

from bisect import bisect_left

from kstore.arguments import MAX64
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.later import later
from kstore.log.recovery.survey import (
    BITS,
    INDEX,
    KEYS,
    LOG,
    TIME_INDEX,
    TRANSACTION,
    TRANSACTIONS,
    Rest,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kstore.log.files.log_dir_state import State
    from kstore.log.recovery.repairs import Place, Repairs
    from kstore.log.recovery.steps import Action, Code, Step, action
    from kstore.log.recovery.survey import Mode, Names, Part, SegmentFacts, Survey, Swapped
else:
    later(
        globals(),
        {"kstore.log.recovery.repairs": "Place Repairs", "kstore.log.recovery.steps": "Code Step action"},
    )

_INDEXES = INDEX | TIME_INDEX | TRANSACTIONS
_GONE = {"read": "are left out", "dry": "would be cut off", "write": "were cut off"}


class Kept(NamedTuple):
    """A segment of the log after recovery."""

    part: Part
    end_offset: int


class Plan(NamedTuple):
    """The log as recovery leaves it, and the steps that lead there, in order.

    kept_count: how many of the first segments of the directory stay. walked: those of them that recovery has
    walked, by number, with the segments that replace each. orphans: offsets of indexes without a log, except
    those of an interrupted removal. has_producers: whether a walked segment may have batches with producer
    ids.
    """

    kept_count: int
    walked: Mapping[int, tuple[Kept, ...]]
    steps: tuple[Step, ...]
    losses: tuple[str, ...]
    log_start_offset: int
    log_end_offset: int
    wanted_start: int  # the stored log start offset, 0 if it is invalid; the first segment may begin later
    epochs: tuple[tuple[int, int], ...]
    recovered_segments: tuple[int, ...]
    truncated_bytes: int
    has_producers: bool
    lost_time_indexes: frozenset[int]
    lost_transaction_indexes: frozenset[int]
    orphans: tuple[int, ...]


# ---- interrupted work ------------------------------------------------------------------------------------


def counted_swaps(names: Names) -> list[str]:
    """The .swap files that an opening completes: those below the first .cleaned file."""
    first_cleaned = _first_cleaned(names)
    swaps = sorted(name for name in names.others if name.endswith(".swap"))
    return [name for name in swaps if first_cleaned is None or _offset(name) < first_cleaned]


def _first_cleaned(names: Names) -> int | None:
    offsets = (layout.parse_offset(name) for name in names.others if name.endswith(".cleaned"))
    return min((offset for offset in offsets if offset is not None), default=None)


def _offset(name: str) -> int:
    return layout.parse_offset(name) or 0


def tidied(
    names: Names, swaps: Mapping[str, Swapped], *, is_alone: bool
) -> tuple[Names, list[Step], list[str]]:
    """Passes 1 to 3 of spec 8.2, which finish interrupted deletions and compactions. Returns the names after
    them, the steps and the losses. swaps: facts about the .log.swap files of `counted_swaps`. is_alone: no
    other process may be compacting."""
    extras = sorted(n for n in names.others if n.endswith((".deleted", ".cleaned", ".swap")))
    if not extras:
        return names, [], []
    there = set(names.others)
    for offset, bits in names.files.items():
        there.update(names_of(offset, bits))
    steps: list[Step] = []
    losses: list[str] = []

    def note(code: Code, name: str, detail: object = "", do: Action | None = None) -> None:
        steps.append(Step(code, f"{names.directory}/{name}", detail=detail, action=do))

    def delete(code: Code, name: str, detail: object = "") -> None:
        there.discard(name)
        note(code, name, detail, action(Repairs.delete, name))

    removed: set[int] = set()
    for name in extras:
        if name.endswith(".deleted"):
            gone = layout.segment_offset(name.removesuffix(".deleted"))
            if gone is not None:
                removed.add(gone)
            if not name.endswith(".checkpoint.deleted"):
                delete(Code.REMOVAL_UNDER_WAY, name)
    counted = counted_swaps(names)
    void = [name for name in extras if name.endswith(".swap") and name not in counted]
    for name in void:
        delete(Code.COMPACTION_UNFINISHED, name)
    if void:  # durably, before the .cleaned files, which make the .swap files void
        note(Code.NAMES_SYNCED, "", do=action(Repairs.sync_names))
    for name in extras:
        if name.endswith(".cleaned") and is_alone:
            delete(Code.COMPACTION_UNFINISHED, name)
    placed = sorted(
        (at, name)
        for name in there
        if not name.endswith(".swap") and (at := layout.parse_offset(name)) is not None
    )
    for swap, found in swaps.items():
        base = _offset(swap)
        end = found.end if found.is_sound else max(found.end, base + 1)
        for _, name in placed[bisect_left(placed, (base, "")) : bisect_left(placed, (end, ""))]:
            if name not in there:
                continue
            if found.is_sound or not name.endswith(".log"):
                delete(Code.COMPACTION_REPLACES, name, swap)
            else:
                there.discard(name)
                note(Code.DAMAGED_REPLACES, name, swap, action(Repairs.set_aside, name))
                losses.append(f"{names.directory}/{swap}, which replaces {name}, is damaged")
    if counted:  # or replaced files could come back
        note(Code.NAMES_SYNCED, "", do=action(Repairs.sync_names))
    renamed = set()
    for name in counted:
        final = name.removesuffix(".swap")
        file = layout.parse_file(final)
        if file is None or file.extra or file.stem != layout.segment_stem(file.offset):
            note(Code.NO_NAME_OF_A_SWAP, name)  # with another name it might replace a segment later
            continue
        there.discard(name)
        there.add(final)
        renamed.add(final)
        note(Code.COMPACTION_ALL_BUT_FINISHED, name, do=action(Repairs.rename, name, final))
    files, others = _sorted_out(there)
    return names.finished(files, others, frozenset(renamed), frozenset(removed)), steps, losses


def _sorted_out(names: Collection[str]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Names, split into `files` and `others` of Names."""
    files: dict[int, int] = {}
    others = []
    for name in sorted(names):
        stem, _, kind = name.partition(".")
        bit, offset = BITS.get("." + kind), layout.parse_offset(name)
        if bit is None or offset is None or offset < 0 or stem != layout.segment_stem(offset):
            others.append(name)
        else:
            files[offset] = files.get(offset, 0) | bit
    return files, tuple(others)


# ---- segments --------------------------------------------------------------------------------------------


class _Draft:
    """A plan under construction. `point`: the offset to which the log was closed or flushed, at least."""

    def __init__(self, found: Survey, log_start_offset: int, point: int, mode: Mode) -> None:
        self.clean = found.clean
        self.log_start_offset = log_start_offset
        self.point = point
        self.mode = mode
        self.walked: dict[int, tuple[Kept, ...]] = {}
        self.steps: list[Step] = []
        self.losses: list[str] = []
        self.recovered: list[int] = []
        self.truncated_bytes = 0

    def must_keep(self, path: str, size: int, rest: Rest, offset: int) -> bool:
        """Note the loss of removed bytes, and return whether to keep them in a .cut file. offset: the first
        one that the bytes may contain."""
        promised = self.clean or offset < self.point
        self.lose(path, size, rest, promised)
        return promised or rest.is_followed or rest.sound is not None

    def lose(self, path: str, size: int, rest: Rest, promised: bool) -> None:
        """Note the loss of removed bytes."""
        if rest.sound is not None:
            if rest.sound.last_offset >= self.log_start_offset:  # else it was deleted
                self.losses.append(f"{size} bytes of {path} {_GONE[self.mode]}, with {rest.sound}")
        elif promised and size:
            self.losses.append(f"{size} bytes of {path}, which had been flushed, were damaged")
        elif rest.is_followed and size:
            self.losses.append(f"{size} bytes of {path}, before sound batches, were damaged")

    def remove(self, code: Code, path: str, part: Part) -> None:
        """Add the step that removes a segment."""
        assert part.rest is not None
        keep = self.must_keep(path, part.size, part.rest, part.base_offset)
        do = action(Repairs.delete_segment, layout.segment_stem(part.base_offset), keep)
        self.steps.append(Step(code, path, 0, part.size, sound=part.rest.sound, action=do))
        self.truncated_bytes += part.size * (code is Code.BEHIND_DAMAGE)

    def cut(self, path: str, part: Part) -> None:
        """Add the step that ends a segment after its last sound batch."""
        walk, rest = part.walk, part.rest
        if walk is None or rest is None:
            return
        size = part.size - walk.valid_bytes
        keep = self.must_keep(path, size, rest, walk.next_offset)
        self.truncated_bytes += size
        code = Code.OFFSETS_FALL if walk.disordered else Code.TORN_TAIL if walk.torn else Code.CORRUPT_BATCH
        if code is Code.CORRUPT_BATCH and not keep and rest.is_zeros:
            code = Code.SPARE_ROOM
        name = f"{layout.segment_stem(part.base_offset)}.log"
        do = action(Repairs.cut, name, walk.valid_bytes, keep)
        self.steps.append(
            Step(code, path, walk.valid_bytes, size, detail=walk.error, sound=rest.sound, action=do)
        )

    def recover(self, known: SegmentFacts, path: str, end_offset: int) -> None:
        """Add the steps for a segment that was walked."""
        parts = known.parts
        ends = [*(part.base_offset for part in parts[1:]), end_offset]
        if [part.base_offset for part in parts] != [known.base_offset]:
            places = [Place(p.base_offset, p.origin, p.size, end) for p, end in zip(parts, ends, strict=True)]
            do = action(Repairs.split, known.base_offset, tuple(places))
            self.steps.append(Step(Code.OFFSETS_FAR_APART, path, detail=len(parts), action=do))
        kept = []
        for part, end in zip(parts, ends, strict=True):
            if part.walk is None:
                self.remove(Code.BEHIND_DAMAGE, path, part)
                continue
            self.cut(path, part)
            stem = layout.segment_stem(part.base_offset)
            do = action(Repairs.write_indexes, stem, part.walk.offset_index, part.walk.time_index)
            self.steps.append(Step(Code.INDEXES_REBUILT, path, action=do))
            self.recovered.append(part.base_offset)
            kept.append(Kept(part, end if part.rest is None else end_offset))
        self.walked[known.at] = tuple(kept)


def make_plan(found: Survey, state: State, stored: State, *, recover: bool, mode: Mode) -> Plan:
    """The plan of an opening. state: the last stop as this opening takes it; stored: as the files report
    it."""
    point = max(state.recovery_point, stored.recovery_point)
    draft = _Draft(found, state.log_start_offset, point, mode)
    steps = draft.steps
    orphans = _note_other_files(found, steps)
    behind = [each for each in found.segments if each.is_behind_damage]
    count = len(found.bases) - len(behind)
    for known in found.segments[: len(found.segments) - len(behind)]:
        path = found.path_of(known.base_offset)
        _note_indexes(known, path, steps)
        if behind and known.at == count - 1:
            # Later segments are deleted first, the last one before the others, so that a crash leaves no gap.
            before = len(draft.losses)
            for each in reversed(behind):
                draft.remove(Code.BEHIND_DAMAGE, found.path_of(each.base_offset), each.parts[0])
            later = draft.losses[before:]
            del draft.losses[before:]
            steps.append(Step(Code.NAMES_SYNCED, path, action=action(Repairs.sync_names)))
            draft.recover(known, path, MAX64)
            draft.losses += reversed(later)
        elif known.is_trusted:
            for part in known.parts:
                draft.cut(path, part)
                draft.walked[known.at] = (Kept(part, known.end_offset),)
        elif known.parts:
            draft.recover(known, path, known.end_offset)
    return _with_end(draft, found, count, state, stored, recover, tuple(orphans))


def _note_indexes(known: SegmentFacts, path: str, steps: list[Step]) -> None:
    """Add the steps for missing and damaged index files of a segment."""
    stem = layout.segment_stem(known.base_offset)
    if not known.files & INDEX:
        if not known.is_blank:  # the first append creates the indexes of an empty segment
            steps.append(Step(Code.NO_OFFSET_INDEX, path))
    elif not known.files & TIME_INDEX:
        do = action(Repairs.write_index, f"{stem}.timeindex", b"")
        steps.append(Step(Code.NO_TIME_INDEX, path, action=do))
    if known.transactions is not None:
        error = known.transactions
        steps.append(Step(Code.BROKEN_TRANSACTION_INDEX, path, error.position, detail=error))


def _note_other_files(found: Survey, steps: list[Step]) -> list[int]:
    """Add the steps for files without a segment and for other names. Returns the offsets of indexes without a
    log, except those of an interrupted removal."""
    orphans: list[int] = []

    def note(code: Code, name: str, detail: object = "", offset: int = -1, *, delete: bool = False) -> None:
        do = action(Repairs.delete, name) if delete else None
        file = f"{found.names.directory}/{name}"
        steps.append(Step(code, file, detail=detail, offsets=(offset, -1), action=do))

    def leave_aside(offset: int, name: str) -> None:
        note(Code.INDEX_WITHOUT_LOG, name, delete=True)
        if offset not in found.names.removed and not name.endswith(layout.KEYS):
            orphans.append(offset)

    for offset, bits in found.names.files.items():
        if not bits & LOG:
            for name in names_of(offset, bits & (_INDEXES | KEYS)):
                leave_aside(offset, name)
    for name in found.names.others:
        parsed = layout.parse_offset(name)
        if name.endswith(".log"):
            if parsed is None or parsed < 0:
                note(Code.NO_NAME_OF_A_SEGMENT, name)
            else:
                right = f"{layout.segment_stem(parsed)}.log"
                note(Code.OTHER_NAME_OF_A_SEGMENT, name, right, parsed)
        elif name.endswith(layout.INDEX_KINDS):
            if parsed is None:
                note(Code.NO_NAME_OF_A_SEGMENT, name)
            elif not found.names.files.get(parsed, 0) & LOG:
                leave_aside(parsed, name)
        elif name in found.packed:
            kind = found.packed[name]
            note(Code.NOT_READ, name, f"the file is {kind}" if kind else "no name of a segment")
        elif name in found.drafts:
            note(Code.FILE_UNFINISHED, name, delete=True)
    return orphans


# ---- start and end ---------------------------------------------------------------------------------------


def _with_end(
    draft: _Draft,
    found: Survey,
    count: int,
    state: State,
    stored: State,
    recover: bool,
    orphans: tuple[int, ...],
) -> Plan:
    """Complete the plan with the start and the end of the log."""
    steps, walked, point, clean = draft.steps, draft.walked, draft.point, found.clean
    start = state.log_start_offset
    log_end_offset = found.next_offset
    epochs = _epochs(found)
    if count:
        path = found.path_of(found.bases[count - 1])
        _note_tail(draft, found, path, recover)
        if clean and log_end_offset < point:
            steps.append(Step(Code.ENDS_EARLY, path, offsets=(log_end_offset, point)))
        elif clean and 0 < point < log_end_offset:
            steps.append(Step(Code.ENDS_LATE, path, offsets=(log_end_offset, point)))
        # A start beyond the end is valid if the caller passed it, or if a truncation was to continue there.
        # delete_records() flushes the records that it deletes before it writes the start.
        if log_end_offset < start == stored.log_start_offset and not found.truncation_continues:
            steps.append(Step(Code.LOG_START_BEYOND_END, found.log_starts, offsets=(start, log_end_offset)))
            start = 0
        if log_end_offset < start:
            for base_offset in found.bases[:count]:
                do = action(Repairs.delete_segment, layout.segment_stem(base_offset), True)
                steps.append(Step(Code.BELOW_LOG_START, found.path_of(base_offset), action=do))
            count = 0
            walked.clear()
            epochs = LeaderEpochs()
        elif recover:
            _note_transactions(draft, found, log_end_offset)
    first = start
    if count:
        first = walked[0][0].part.base_offset if 0 in walked else found.bases[0]
    log_end_offset = log_end_offset if count else first
    # A clean stop stores the end of the log. A broker's stored end is behind the last batch if the broker has
    # truncated the log inside a batch.
    is_explained = clean and (draft.losses or (count and state.by_broker))
    if log_end_offset < point and not is_explained:
        lost = Step(Code.FLUSHED_IS_LOST, found.names.directory, offsets=(log_end_offset, point))
        draft.losses.append(lost.text(done=True))
        if not (clean and found.bases):  # else the log ends early
            steps.append(lost)
    if draft.mode != "read" and count - 1 in walked and not walked[count - 1][-1].part.origin:
        # the writer writes the indexes of the last segment itself, from memory
        path = found.path_of(found.bases[count - 1])
        steps = [step for step in steps if step.code is not Code.INDEXES_REBUILT or step.file != path]
    broken = [each.base_offset for each in found.segments if each.transactions is not None]
    has_producers = any(
        each.is_trusted or any(part.walk is not None and part.walk.has_producers for part in each.parts)
        for each in found.segments
    )
    return Plan(
        count,
        walked,
        tuple(steps),
        tuple(draft.losses),
        max(start, first),
        log_end_offset,
        start,
        epochs.entries,
        tuple(draft.recovered),
        draft.truncated_bytes,
        has_producers or bool(broken and not recover),
        frozenset(
            each.base_offset
            for each in found.segments
            if recover and each.files & (INDEX | TIME_INDEX) == INDEX
        ),
        frozenset(() if recover else broken),
        orphans,
    )


def _note_tail(draft: _Draft, found: Survey, path: str, recover: bool) -> None:
    """Add the step for bytes after the last whole batch of a log that was closed cleanly."""
    end = found.end
    if end is None:
        return
    if end.tail:
        draft.steps.append(Step(Code.TAIL_LEFT, path, end.size - end.tail, end.tail))
        if recover:
            draft.lose(path, end.tail, Rest(end.sound), found.clean and end.was_batch)
    elif end.size and found.next_offset == found.bases[-1] and not recover:
        draft.steps.append(Step(Code.WRONG_NAME, path, 0, end.size))


def _note_transactions(draft: _Draft, found: Survey, log_end_offset: int) -> None:
    """Add the step that removes entries of the transaction index behind the end, before another marker gets
    such an offset. A reader ignores them: the writer may be about to write the marker."""
    before, after = (count * TRANSACTION for count in found.end.transactions) if found.end else (0, 0)
    if after < before and draft.mode != "read":
        name = f"{layout.segment_stem(found.bases[-1])}.txnindex"
        file, do = f"{found.names.directory}/{name}", action(Repairs.cut, name, after, False)
        offsets = log_end_offset, -1
        draft.steps.append(
            Step(Code.TRANSACTIONS_BEHIND_END, file, after, before - after, offsets=offsets, action=do)
        )


def _epochs(found: Survey) -> LeaderEpochs:
    """The leader epochs of the checkpoint, with later ones of the batches."""
    is_damaged = found.epochs_error is not None
    in_batches = list(found.epochs) if is_damaged else []
    for each in found.segments:
        in_batches += [
            entry for part in each.parts if part.walk is not None for entry in part.walk.leader_epochs
        ]
    known = LeaderEpochs(() if is_damaged else found.epochs)
    entries, latest = list(known.entries), known.latest
    for epoch, offset in in_batches:
        if latest is None or epoch > latest:
            entries.append((epoch, offset))
            latest = epoch
    return LeaderEpochs(entries)
