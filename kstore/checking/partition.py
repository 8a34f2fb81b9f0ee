"""The check of one partition: what is read, and the judgements about it."""

from __future__ import annotations

import contextlib
import errno
import os
from itertools import pairwise

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64, MAX_DECOMPRESSED_BYTES
from kstore.checking import segments
from kstore.checking.codes import GAPS, found, why
from kstore.checking.directory import check_partition_files, stops_kafka
from kstore.checking.producers import OpenTransaction, check_producers
from kstore.checking.segment_facts import read_segment
from kstore.errors import CorruptFileError, KstoreError, LogChangedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.checkpoints import read_epochs
from kstore.log.files.lock import holder_in, is_loaded
from kstore.log.files.log_dir_state import (
    Checkpoint,
    directory_of,
    is_kept_checkpoint,
    kept_checkpoints,
    locate,
    located,
    read_checkpoint,
    read_state,
)
from kstore.log.files.manifest import read_manifest
from kstore.log.recovery.file_kind import kind_of
from kstore.log.recovery.gaps import is_compacted
from kstore.log.recovery.loader import load
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.recovery.single_file import load_file
from kstore.log.recovery.steps import Code
from kstore.log.recovery.survey import read_names, segments_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstore.checking.finding import Finding
    from kstore.checking.segment_facts import SegmentFacts
    from kstore.engine.segment.segment import Segment
    from kstore.log.recovery.gaps import Ranges
    from kstore.log.recovery.loader import Loaded
    from kstore.log.recovery.steps import Step

# what the reading of every byte finds, and more exactly
_OWN_SUFFIXES = ("", ".deleted", ".cleaned", ".swap", ".moved", ".tmp")  # behind .log, .index and so on
_FOUND_BY_READING = (
    Code.TAIL_LEFT,
    Code.FILE_TAIL,
    Code.BYTES_BEFORE_NEXT_SEGMENT,
    Code.SNAPSHOT_DAMAGED,
)


class Checked(NamedTuple):
    """What the check of a partition found.

    `start`, `end`: the bounds of the log; None if it could not be loaded. `open_transactions`: those without
    an end.
    """

    path: str
    findings: list[Finding]
    segments: int
    bytes: int
    start: int | None = None
    end: int | None = None
    open_transactions: tuple[OpenTransaction, ...] = ()
    is_live: bool = False


class PartitionCheck:
    """The check of a partition or of a single .log file: it is loaded, then each of `segments` is read by the
    caller, then `finish` judges."""

    def __init__(self, path: str, *, of_directory: bool = False) -> None:
        """Load it. An error becomes a finding, except LogChangedError. of_directory: the files around it are
        checked, too."""
        self.path = path
        self._of_directory = of_directory
        self.is_file = os.path.isfile(path)
        self.findings: list[Finding] = []
        self._loaded: Loaded | None = None
        self._alone: Sequence[Segment] | None = None
        self.is_live = False
        self._is_clean = True
        self._recovery_point = 0
        try:
            self._load()
        except (CorruptFileError, OSError) as e:
            if isinstance(e, LogNotFoundError) and self.is_file:
                raise  # it is no file of a log
            self.findings.append(unreadable(path, e))

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments to read; those of a log that cannot be loaded are read each by itself."""
        if self._loaded is not None:
            return self._loaded.segments
        if self._alone is None:
            self._alone = ()
            if not self.is_file:
                with contextlib.suppress(OSError):  # a finding already
                    self._alone = tuple(segments_of(read_names(self.path), SegmentFactory(self.path)))
        return self._alone

    def _load(self) -> None:
        path = self.path
        around = directory_of(os.path.dirname(path) if self.is_file else path)
        self.is_live = is_loaded(located(path)) or holder_in(around) is not None
        if self.is_file:
            self._loaded = load_file(path, INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES)
            return
        # What cannot be read of a log directory is a finding about the directory.
        state = read_state(path, _read_checkpoint) if self._of_directory else read_state(path)
        self._is_clean, self._recovery_point = state.clean, state.recovery_point
        # As after a clean stop, nothing is read twice: the check reads all. Beside a writer the view ends
        # where that has arrived.
        self._loaded = load(path, state=state, clean=None if self.is_live else True)

    def finish(self, read: Sequence[SegmentFacts | Exception]) -> Checked:
        """Judge what was read of the segments, in order. LogChangedError if another process has replaced or
        removed files meanwhile."""
        for each in read:
            if isinstance(each, LogChangedError):
                raise each
        loaded = self._loaded
        facts = [each for each in read if not isinstance(each, Exception)]
        failed = [each for each in read if isinstance(each, Exception)]
        self.findings += [unreadable(self.path, each) for each in failed]
        if loaded is None:
            return self._finish_alone(facts)
        self.findings += self._of_steps(loaded)
        compacted = not self.is_file and is_compacted(self.path)
        state = segments.State(
            self._is_clean,
            self.is_live,
            compacted or segments.look_compacted(facts),
            compacted,
            self._recovery_point,
            loaded.log_start_offset,
        )
        gaps = {each.offsets[0] for each in self.findings if each.offsets is not None}
        self.findings += segments.gaps_between(read, state, gaps)
        base = loaded.segments[0].base_offset if loaded.segments else 0
        epoch = max((epoch for epoch, at in loaded.leader_epochs.entries if at <= base), default=None)
        for each in facts:
            self.findings += segments.damage_in(each, state)
            self.findings += segments.lies_in(each, state, epoch)
            epoch = each.epochs[-1][0] if each.epochs else -1 if epoch is None else epoch
            if not self.is_file:
                self.findings += segments.index_faults(each, state, each.segment is loaded.segments[-1])
        self.findings = list(segments.without_added(self.findings, self._added(facts)))
        open_transactions: list[OpenTransaction] = []
        if not self.is_file:
            is_complete = not failed and segments.are_complete(facts)
            found_, open_transactions = check_producers(
                self.path,
                facts,
                state,
                is_complete=is_complete,
                end_offset=loaded.log_end_offset,
            )
            self.findings += found_
            epochs = f"{self.path}/{layout.LEADER_EPOCHS}"
            # the line with the log start went with the name of a partition that was set aside
            is_start_lost = layout.is_set_aside(os.path.basename(self.path))
            if not (is_start_lost or any(f.code == "epochs_damaged" for f in self.findings)):
                start = loaded.log_start_offset
                entries = loaded.leader_epochs.entries
                is_known = _are_log_starts_known(directory_of(self.path))
                self.findings += segments.epochs_of(facts, entries, epochs, start, is_start_known=is_known)
            self.findings += _of_files(self.path)
            around = directory_of(self.path)
            if not self._of_directory and around != self.path:
                self.findings += [found("checkpoint_kept", file) for file in kept_checkpoints(around)]
            is_filled = loaded.log_end_offset > loaded.log_start_offset
            if is_filled and not (self._is_clean or self.is_live) and locate(self.path).is_alone:
                self.findings.append(found("not_closed", self.path))
            self.findings = list(_without_noted(self.path, self.findings, loaded, facts))
        size = sum(each.size for each in facts)
        return Checked(
            self.path,
            self.findings,
            len(facts),
            size,
            loaded.log_start_offset,
            loaded.log_end_offset,
            tuple(open_transactions),
            self.is_live,
        )

    def _added(self, facts: Sequence[SegmentFacts]) -> dict[str, str]:
        """The files with the name of a segment and only batches of others, where the segment before it goes
        on, each with that before it. OSError, LogChangedError."""
        overlapping = {each.file for each in self.findings if each.code == "segments_overlap"}
        added = {}
        for before, after in pairwise(facts) if overlapping else ():
            if before.segment.path in overlapping and not after.batches:
                # read again: an opening without its index has ended it at the first batch
                every = segments_of(read_names(self.path), SegmentFactory(self.path))
                own = [each for each in every if each.path == after.segment.path]
                if own and segments.is_of_others(read_segment(own[0])):
                    added[after.segment.path] = before.segment.path
        return added

    def _finish_alone(self, facts: Sequence[SegmentFacts]) -> Checked:
        """Judge the segments of a log that cannot be loaded, each by itself."""
        state = segments.State(self._is_clean, self.is_live, True, True, 0, 0)
        for each in facts:
            self.findings += segments.damage_in(each, state)
            self.findings += segments.lies_in(each, state, None)
            self.findings += segments.index_faults(each, state, each.segment.end_offset == MAX64)
        if not self.is_file:
            with contextlib.suppress(OSError):  # a finding already
                self.findings += _of_files(self.path)
        size = sum(each.size for each in facts)
        return Checked(self.path, self.findings, len(facts), size, is_live=self.is_live)

    def _of_steps(self, loaded: Loaded) -> Iterator[Finding]:
        """The findings of the opening, except those that reading finds."""
        try:
            gaps = loaded.recovery.gaps.steps
        except (KstoreError, OSError) as e:
            yield unreadable(self.path, e)
            gaps = ()
        for step in (*loaded.recovery.steps, *gaps):
            if not step.code.kind or step.code in _FOUND_BY_READING:
                continue
            if self.is_live and step.code in (Code.TORN_TAIL, Code.CORRUPT_BATCH, Code.SPARE_ROOM):
                continue  # what a process is writing
            if step.code is Code.ENDS_LATE and not self._is_clean:
                continue  # records were appended behind the recovery point
            if step.code is Code.ENDS_EARLY and not self._is_clean:
                step = step._replace(code=Code.FLUSHED_IS_LOST)
            if self._of_directory and step.code in (Code.CHECKPOINT_DAMAGED, Code.LOG_START_UNKNOWN):
                continue  # one finding for all partitions
            yield _of_step(self.path, step, self._is_clean)


def _read_checkpoint(path: str) -> Checkpoint:
    """A checkpoint file; it is damaged if it cannot be read."""
    try:
        return read_checkpoint(path)
    except OSError as e:
        return Checkpoint({}, str(e))


def _are_log_starts_known(directory: str) -> bool:
    """Whether the file of log start offsets is there and sound, and was not made again after damage."""
    path = f"{directory}/{layout.LOG_STARTS}"
    is_lost = any(each.startswith(f"{path}.") for each in kept_checkpoints(directory))
    return os.path.exists(path) and not (is_lost or _read_checkpoint(path).damage)


def _of_step(path: str, step: Step, is_clean: bool) -> Finding:
    first, end = step.offsets
    offsets = (first, end - 1) if 0 <= first < end else None
    text = step.text(done=False).replace(f"{step.file}: ", "")
    code = step.code.name.lower()
    stops, severity = None, ""
    # a repair opens the partition; the file may be in the log directory
    file = path if step.code is Code.LOG_START_BEYOND_END else step.file
    if isinstance(step.detail, OSError):
        return found("unreadable_file", step.file, str(step.detail))
    if step.code in (Code.NO_OFFSET_INDEX, Code.NO_TIME_INDEX) and not is_clean:
        severity = "note"  # the next opening makes it from the log
    if step.code in (Code.CHECKPOINT_DAMAGED, Code.LOG_START_UNKNOWN):
        stops = stops_kafka(step.file) and not locate(path).is_alone  # Kafka reads those of log directories
    elif step.code is Code.EPOCHS_DAMAGED:
        stops = os.path.exists(step.file) and _is_malformed(step.file)
    return found(
        code,
        file,
        text,
        position=step.position,
        offsets=offsets,
        severity=severity,
        stops_kafka=stops,
    )


def _without_noted(
    path: str, findings: Sequence[Finding], loaded: Loaded, facts: Sequence[SegmentFacts]
) -> Iterator[Finding]:
    """The findings, with the losses that a repair has noted; those about noted gaps become notes. Losses
    whose offsets are deleted or are in the log again do not count."""
    gaps: Ranges = ()
    lost_ends: Ranges = ()
    with contextlib.suppress(KstoreError, OSError):  # findings already
        *_, gaps, lost_ends = read_manifest(path)
    seen = [each.offsets for each in findings if each.code in GAPS and each.offsets is not None]
    # a file that was lost may have been put back
    seen += [
        (each.first_offset, each.next_offset - 1)
        for each in facts
        if each.batches and segments.are_complete([each])
    ]
    # a log that has lost its first segment begins right behind the gap
    for code, ranges, least in (
        ("gap_noted", gaps, loaded.log_start_offset - 1),
        ("end_noted", lost_ends, loaded.log_end_offset),
    ):
        for first, last in ((begin, begin + count - 1) for begin, count in ranges):
            is_seen = code == "gap_noted" and any(low <= last and first <= high for low, high in seen)
            if last >= least and not is_seen:
                yield found(code, f"{path}/{layout.MANIFEST}", offsets=(first, last))
    for each in findings:
        if each.code in GAPS and each.offsets is not None:
            first, last = each.offsets
            if any(begin <= first and last < begin + count for begin, count in gaps):
                each = found("gap_noted", each.file, position=each.position, offsets=each.offsets)
        yield each


def _is_malformed(file: str) -> bool:
    """Whether a leader-epoch-checkpoint cannot be read; Kafka takes one without entries as it is."""
    try:
        read_epochs(file)
    except (CorruptFileError, OSError):
        return True
    return False


def unreadable(path: str, error: Exception) -> Finding:
    """The finding for a file that cannot be read."""
    if isinstance(error, CorruptFileError):
        file = error.file or path
        text = why(error)
        code = "corrupt_batch" if file.endswith(".log") else "unreadable_file"
        if kind := kind_of(file) if os.path.isfile(file) and file.endswith(".log") else "":
            code, text = "not_a_log", f"the file is {kind}"
        return found(code, file, text, position=error.position, stops_kafka=False)
    file = getattr(error, "filename", None) or path
    if isinstance(error, PermissionError) and _is_closed(path):
        return found(
            "unreadable_file", path, f"{error.strerror}: the files in the directory cannot be opened"
        )
    if isinstance(error, OSError) and error.errno == errno.EFBIG and file.endswith(".log"):
        return found("too_large", file, f"{error.strerror}; neither Kafka nor kstore opens it")
    return found("unreadable_file", file, str(error))


def _is_closed(path: str) -> bool:
    """Whether the mode of a directory keeps this process from its files."""
    try:
        if os.path.isdir(path):
            os.scandir(path).close()
            os.stat(os.path.join(path, os.curdir))
    except PermissionError:
        return True
    return False


def _of_files(path: str) -> Iterator[Finding]:
    """The findings about other files in a partition directory."""
    for name in sorted(os.listdir(path)):
        file = f"{path}/{name}"
        if name.endswith(layout.CUT):
            if not is_kept_checkpoint(name):
                is_repaired = ".log." not in name or name.endswith(layout.REPAIRED)
                yield found("kept_file" if is_repaired else "cut_off", file)
        elif (parsed := layout.parse_file(name)) is not None and parsed.extra not in _OWN_SUFFIXES:
            kind = kind_of(file)
            text = f"not read: the file is {kind}" if kind else "not read: a copy of a file of a segment"
            yield found("not_read", file, text)
    for file in kept_checkpoints(path):
        yield found("checkpoint_kept", file)
    yield from check_partition_files(path)
