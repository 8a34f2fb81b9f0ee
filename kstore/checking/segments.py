"""What is wrong with segments, by their facts. Nothing is read or written here."""

from __future__ import annotations

import os
from itertools import pairwise

from kstore.arguments import MAX64
from kstore.checking.codes import REPAIR, found, why
from kstore.errors import CorruptRecordError, shown
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kstore.checking.finding import Finding
    from kstore.checking.segment_facts import Place, SegmentFacts
    from kstore.engine.scan.batch_reader import Skipped

_BEGUN_LATER = (
    "put log-start-offset-checkpoint back from a copy; if records below offset {0} were deleted, "
    "LogWriter.delete_records({0}) deletes them again"
)
_SET_ASIDE = f"put it where it belongs; or {REPAIR} renames it to a .cut file"
_RECOVERED = ". An opening for writing, or a broker, ends the log here and removes what follows"
_STRAY = "offsets of a batch"  # the reason of the error about a batch with a right checksum
_UNREPORTED = -(2**62)  # below any timestamp: the column of batches without records


class State(NamedTuple):
    """The state of a partition, as far as the judgements depend on it.

    is_clean: it was closed cleanly. is_live: a process is writing it. is_compacted: its batches look
    compacted, or it is known to be (is_known_compacted). recovery_point: where the next opening begins to
    check batches.
    """

    is_clean: bool
    is_live: bool
    is_compacted: bool
    is_known_compacted: bool
    recovery_point: int
    log_start_offset: int

    def is_rebuilt(self, facts: SegmentFacts) -> bool:
        """Whether the next opening for writing makes the indexes of a segment from the log."""
        is_checked = facts.segment.end_offset == MAX64 or facts.next_offset > self.recovery_point
        return is_checked and not self.is_clean and not self.is_live


def look_compacted(facts: Sequence[SegmentFacts]) -> bool:
    """Whether records are missing as a compaction takes them out: in more than one place, or within
    batches."""
    gaps = sum(each.gap_count for each in facts)
    gaps += sum(before.next_offset < after.segment.base_offset for before, after in pairwise(facts))
    return gaps > 1 or any(each.has_horizon or each.inner_count for each in facts)


def are_complete(facts: Sequence[SegmentFacts]) -> bool:
    """Whether every offset from the first to the last is in a sound batch."""
    return not any(
        each.gap_count or each.inner_count or each.skipped or each.errors for each in facts
    ) and all(before.next_offset == after.segment.base_offset for before, after in pairwise(facts))


def damage_in(facts: SegmentFacts, state: State) -> Iterator[Finding]:
    """The findings about the bytes of a segment."""
    path = facts.segment.path
    if facts.kind:
        yield found("not_a_log", path, f"the file is {facts.kind}", position=0)
        return
    is_recovered = state.is_rebuilt(facts)
    skipped = facts.skipped
    is_last = facts.segment.end_offset == MAX64
    # zeros before another segment end the log there, as damage does
    if facts.is_zeros_behind and is_last and not state.is_clean:
        last = skipped[-1]
        skipped = skipped[:-1]
        yield found(
            "spare_room", path, f"{last.size} bytes of zeros follow the last batch", position=last.position
        )
    for run in _runs(skipped):
        if len(run) == 1:
            yield _of_skipped(run[0], is_recovered, _lost_at(run[0], facts))
        else:
            yield _of_strays(run, is_recovered, facts)
    tail = facts.size - facts.end_position
    if tail > 0 and not (is_last and state.is_live):
        text = f"{tail} bytes at the end hold no whole batch"
        offset = (facts.next_offset, facts.next_offset if is_last else facts.segment.end_offset - 1)
        severity = "damaged"
        if is_last and not state.is_clean:
            severity = "suspicious"
            text += ": a process died while it wrote, and an opening for writing cuts them off"
        code = "torn_tail"
        yield found(code, path, text, position=facts.end_position, offsets=offset, severity=severity)
    for position, error in facts.errors.items():
        yield found("unreadable_records", path, why(error), position=position)


def without_added(findings: Sequence[Finding], added: Mapping[str, str]) -> Iterator[Finding]:
    """The findings, with one about each file that has the name of a segment and only batches of others, where
    the segment before it goes on. Without the file, neither would have a finding. added: the files, each with
    that before it."""
    stems = {os.path.basename(file).removesuffix(".log") for file in added}
    for each in findings:
        of_overlap = each.file in added.values() and each.code in ("segments_overlap", "foreign_segment")
        if not of_overlap and os.path.basename(each.file).partition(".")[0] not in stems:
            yield each
    for file, before in added.items():
        text = (
            f"all its batches have the offsets of other segments, and {shown(before)} goes on where it would "
            "begin. The file is of another log, or has the name of another segment"
        )
        yield found("foreign_segment", file, text, remedy=_SET_ASIDE)


def is_of_others(facts: SegmentFacts) -> bool:
    """Whether a segment has sound batches, and all of them have the offsets of other segments."""
    return not facts.batches and bool(facts.skipped) and all(map(_is_stray, facts.skipped))


def _runs(skipped: Sequence[Skipped]) -> list[list[Skipped]]:
    """The skipped bytes, with sound batches of other offsets than those of the segment together."""
    runs: list[list[Skipped]] = []
    for each in skipped:
        before = runs[-1][-1] if runs else each
        follows = before.position + before.size == each.position and _is_stray(before) and _is_stray(each)
        if follows and _base_offset(before) < _base_offset(each):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _base_offset(skipped: Skipped) -> int:
    return getattr(skipped.error, "offset", -1)


def _is_stray(skipped: Skipped) -> bool:
    """Whether a batch was skipped for its offsets, which is found out last: its checksum is right."""
    error = skipped.error
    return isinstance(error, CorruptRecordError) and error.reason == _STRAY


def _of_strays(run: Sequence[Skipped], is_recovered: bool, facts: SegmentFacts) -> Finding:
    base, end = facts.segment.base_offset, facts.segment.end_offset
    own = f"from {base} on" if end == MAX64 else f"{base} to {end - 1}"
    text = (
        f"{len(run)} batches have right checksums and the base offsets {_base_offset(run[0])} to "
        f"{_base_offset(run[-1])}; the offsets of the segment are {own}. The file is of another log, or has "
        f"the name of another segment{_RECOVERED if is_recovered else ''}"
    )
    position, offsets = run[0].position, _lost_at(run[0], facts)
    return found("foreign_segment", run[0].file, text, position=position, offsets=offsets)


def _lost_at(skipped: Skipped, facts: SegmentFacts) -> tuple[int, int] | None:
    """The offsets between the sound batches around skipped bytes; of bytes at the end of the log, as far as
    is known."""
    hole = [each for each in facts.holes if each.position <= skipped.position][-1]
    last = hole.last
    if hole is facts.holes[-1] and facts.segment.end_offset == MAX64:
        last = max(last, _base_offset(skipped))
    return (hole.first, last) if hole.first <= last else None


def _of_skipped(skipped: Skipped, is_recovered: bool, offsets: tuple[int, int] | None) -> Finding:
    error, path = skipped.error, skipped.file
    text = why(error)
    if skipped.size:
        text += f"; {skipped.size} bytes are unreadable"
    if is_recovered:
        text += _RECOVERED
    return found("corrupt_batch", path, text, position=skipped.position, offsets=offsets)


def lies_in(facts: SegmentFacts, state: State, epoch: int | None) -> Iterator[Finding]:
    """The findings about headers that contradict the records, and about missing offsets in the segment.
    epoch: the leader epoch before it; None if the log may begin with its first batch."""
    path = facts.segment.path

    def at(code: str, place: Place, text: str, severity: str = "") -> Finding:
        offsets = place.first, place.last
        return found(code, path, text, position=place.position, offsets=offsets, severity=severity)

    for place in facts.late:
        yield at(
            "late_record",
            place,
            f"a record has the timestamp {place.found}; the largest one in the header is {place.expected}, "
            "so lookups by time miss it",
        )
    for place in facts.early:
        if place.found > _UNREPORTED:
            text = (
                f"the largest timestamp in the header is {place.expected}; "
                f"that of its records is {place.found}"
            )
            yield at("early_records", place, text)
    if facts.next_offset <= state.log_start_offset:
        return
    if not state.is_compacted:
        for place in facts.gaps:
            if place.position == 0:  # a segment that was never compacted has the name of its first batch
                if epoch is None or place.last < state.log_start_offset:
                    continue
                place = place._replace(expected=epoch)
            if place.found > place.expected:
                text = (
                    f"offsets are missing where leader epoch {place.found} begins: a broker that truncates "
                    "inside a batch removes the whole batch"
                )
                yield at("offset_gap", place, text, "note")
            else:
                text = "offsets are missing between two batches"
                if not place.position:
                    text = f"the segment begins at offset {place.last + 1}, and its name is {place.first}"
                text += ", and the log does not look compacted"
                yield at("offset_gap", place, text)
    elif facts.gap_count + facts.inner_count and not state.is_known_compacted:
        text = (
            f"{facts.gap_count} times offsets are missing between batches, {facts.inner_count} times within, "
            "as compaction leaves them; nothing in the directory says that the topic is compacted"
        )
        yield found("offset_gap", path, text, severity="note")


def gaps_between(
    read: Sequence[SegmentFacts | Exception], state: State, known: Collection[int]
) -> Iterator[Finding]:
    """The findings about offsets that are missing between two segments, unless a compaction or a truncation
    explains them. read: what was read of each segment. known: the first offsets of gaps that the opening has
    found."""
    if state.is_compacted:
        return
    for before, after in pairwise(read):
        if isinstance(before, Exception) or isinstance(after, Exception):
            continue
        first, end = before.next_offset, after.segment.base_offset
        if before.skipped or first >= end or end <= state.log_start_offset or first in known:
            continue
        epochs = [epoch for epoch, _, _ in (*before.epochs[-1:], *after.epochs[:1])]
        if len(epochs) == 2 and epochs[0] == epochs[1]:  # a broker that truncates begins another epoch
            text = "offsets are missing between two segments, and the log does not look compacted"
            path = before.segment.path
            yield found("offset_gap", path, text, position=before.end_position, offsets=(first, end - 1))


def index_faults(facts: SegmentFacts, state: State, newest: bool) -> Iterator[Finding]:
    """The findings about the indexes of a segment. newest: it is the last one."""
    segment = facts.segment
    if newest and state.is_live:
        return  # the writer is changing them
    is_rebuilt = state.is_rebuilt(facts)
    severity = "note" if is_rebuilt else ""
    for error in facts.unread:
        yield found("unreadable_file", error.filename or segment.path, str(error))
    if facts.unread:
        return
    hint = ". The next opening makes it from the log" if is_rebuilt else ""
    # after an unclean stop, room may be behind the entries of the last segment
    for note in () if newest and is_rebuilt else segment.notes:
        yield found("index_damaged", note.file, why(note) + hint, position=note.position, severity=severity)
    # entries that lead into damage are right
    for kind, position, text in () if facts.skipped else facts.index_faults:
        path = segment.path_of(kind)
        yield found("index_differs", path, text + hint, position=position, severity=severity)
    if segment.notes or facts.skipped or not facts.batches or is_rebuilt:
        return
    known = segment.max_timestamp_so_far.timestamp
    if known < facts.max_timestamp:
        text = f"it ends at {known}, the log at {facts.max_timestamp}: lookups by time miss records"
        yield found("time_index_short", segment.path_of(".timeindex"), text)


def epochs_of(
    facts: Sequence[SegmentFacts],
    checkpoint: Sequence[tuple[int, int]],
    file: str,
    start: int,
    *,
    is_start_known: bool,
) -> Iterator[Finding]:
    """The findings about leader epochs: they rise, and the checkpoint has them. is_start_known: whether the
    file with the log start offset is sound, and was not made again after damage."""
    latest = -1
    for each in facts:
        for epoch, offset, position in each.epochs:
            path = each.segment.path
            if epoch < latest:
                text = f"the leader epoch falls from {latest} to {epoch}: one of them was changed on the disk"
                yield found("epoch_falls", path, text, position=position, offsets=(offset, offset))
            elif checkpoint and offset >= start:
                known = [number for number, begins in checkpoint if begins <= offset]
                if not known or known[-1] != epoch:
                    said = known[-1] if known else "none"
                    text = (
                        f"by this file, offset {offset} has leader epoch {said}; the batch with this offset "
                        f"has leader epoch {epoch}"
                    )
                    if not (known or is_start_known):  # a repair would remove what shows where the log began
                        first = checkpoint[0][1]
                        text = f"the leader epochs begin at offset {first}, and the log at {start}"
                        remedy = _BEGUN_LATER.format(first)
                        yield found(
                            "epochs_begin_later", file, text, offsets=(start, first - 1), remedy=remedy
                        )
                        checkpoint = ()
                        continue
                    yield found("epochs_differ", file, text, offsets=(offset, offset))
            latest = max(latest, epoch)
