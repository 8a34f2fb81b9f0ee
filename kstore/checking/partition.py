"""The check of one partition."""

from __future__ import annotations

import os

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64, MAX_DECOMPRESSED_BYTES
from kstore.checking.codes import found
from kstore.engine.scan.batch_reader import BatchReader
from kstore.errors import CorruptFileError, KstoreError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.recovery.loader import load
from kstore.log.recovery.presence import require_partition
from kstore.log.recovery.single_file import load_file

if TYPE_CHECKING:
    from kstore.checking.finding import Finding
    from kstore.engine.segment.segment import Segment
    from kstore.log.recovery.steps import Step


class Checked(NamedTuple):
    """The findings of a partition, and how many files and bytes of .log files were read."""

    findings: list[Finding]
    files: int
    bytes: int


def check_partition(path: str) -> Checked:
    """Check a partition or a single file. LogNotFoundError."""
    if os.path.isfile(path):
        loaded = load_file(path, INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES)
    else:
        require_partition(path)
        try:
            loaded = load(path)
        except (CorruptFileError, OSError) as e:
            return Checked([_unreadable(path, e)], 0, 0)
    steps = [step for step in (*loaded.recovery.steps, *loaded.recovery.gaps.steps) if step.code.kind]
    findings = [_of_step(step) for step in steps]
    size = 0
    for segment in loaded.segments:
        try:
            findings += _check_segment(segment)
            size += segment.size
        except (KstoreError, OSError) as e:
            findings.append(_unreadable(segment.path, e))
    return Checked(findings, len(loaded.segments), size)


def _of_step(step: Step) -> Finding:
    first, end = step.offsets
    offsets = (first, end - 1) if 0 <= first < end else None
    text = step.text(done=False)
    return found(step.code.name.lower(), step.file, text, position=step.position, offsets=offsets)


def _unreadable(path: str, error: Exception) -> Finding:
    if isinstance(error, CorruptFileError):
        code = "unreadable_file" if not error.file.endswith(".log") else "corrupt_batch"
        return found(code, error.file or path, error.reason, position=error.position, stops_kafka=False)
    return found("unreadable_file", path, str(error))


def _check_segment(segment: Segment) -> list[Finding]:
    """The findings about the batches of a segment, and about its indexes."""
    findings = [
        found("index_damaged", note.file, str(note), position=note.position) for note in segment.notes
    ]
    batches = BatchReader((segment,), 0, MAX64, first_position=0, on_error="skip")
    for batch in batches:
        try:
            latest = max((record.timestamp for record in batch.records(verify=False)), default=-1)
        except KstoreError as e:
            findings.append(found("unreadable_records", segment.path, str(e), position=batch.position))
            continue
        if latest > batch.max_timestamp:
            findings.append(found("late_record", segment.path, position=batch.position))
    for skipped in batches.skipped:
        text = str(skipped.error).removeprefix(f"{segment.path}: ")
        findings.append(found("corrupt_batch", skipped.file, text, position=skipped.position))
    if not layout.is_partition_name(os.path.basename(segment.directory)):
        return findings
    return findings
