"""Explanations of directories that Kafka wrote: sizes, lookups and openings, against files and indexes read
here."""

import struct
import warnings
from pathlib import Path

import pytest

import kstore
from tests.golden.scenarios import Scenario, scenarios

BY_NAME = pytest.mark.parametrize("scenario", scenarios(), ids=str)


def opened(scenario: Scenario) -> kstore.PartitionLog:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)
        log = kstore.open(scenario.shared())
        log.for_reading()
    return log


@BY_NAME
def test_sizes_add_up(scenario: Scenario) -> None:
    log = opened(scenario)
    found = kstore.explain.sizes(log, sample=3)
    files = [path for path in Path(log.path).rglob("*") if path.is_file()]
    assert found.total == sum(path.stat().st_size for path in files)
    start, end = found._fields.index("values"), found._fields.index("total")
    assert sum(found[start:end]) == found.total
    assert min(found[start:end]) >= 0
    values = keys = headers = count = 0
    for batch in log.from_file_start().batches(on_error="skip"):
        records, error = batch.sound_records()
        if batch.is_control or error is not None or not batch.is_valid:
            continue
        for record in records:
            count += 1
            values += len(record.value or b"")
            keys += len(record.key or b"")
            headers += sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    assert found.record_count == count
    assert found.values + found.decompressed_values == values
    assert found.keys + found.decompressed_keys == keys
    assert found.headers + found.decompressed_headers == headers
    assert {each.codec for each in found.codecs} in (set(), {"none", "gzip", "snappy", "lz4", "zstd"})


def entry_of_offset(
    segment: kstore.Segment, offset: int
) -> kstore.explain.SegmentLookup | tuple[int, int] | None:
    """The last entry at or below an offset, from the bytes of the index that the log uses."""
    data = segment.offset_index.to_bytes()
    entries = [(segment.base_offset + a, b) for a, b in struct.iter_unpack(">II", data)]
    return max((entry for entry in entries if entry[0] <= offset), default=None)


def entry_of_time(segment: kstore.Segment, timestamp: int) -> tuple[int, int] | None:
    data = segment.time_index.to_bytes()
    entries = [(a, segment.base_offset + b) for a, b in struct.iter_unpack(">qI", data)]
    return max((entry for entry in entries if entry[0] <= timestamp), default=None)


@BY_NAME
def test_lookups_agree_with_the_indexes(scenario: Scenario) -> None:
    log = opened(scenario)
    segments = {segment.base_offset: segment for segment in log.segments}
    stamps = {0, 2**62}
    offsets = {max(log.log_start_offset - 1, 0), log.log_end_offset, *(s.base_offset for s in log.segments)}
    for batch in list(log.batches(on_error="skip"))[:: max(1, len(log.segments))][:40]:
        offsets |= {batch.base_offset, batch.last_offset, batch.last_offset + 1}
        stamps |= {min(max(batch.max_timestamp + d, 0), 2**63 - 1) for d in (-1, 0, 1)}
    for offset in sorted(offsets):
        try:
            answer = log.find(offset=offset)
        except kstore.OffsetOutOfRangeError:
            answer = None
        except kstore.CorruptRecordError:
            continue
        found = kstore.explain.lookup(log, offset=offset)
        assert (found.found, found.offset, found.timestamp) == (answer, offset, None)
        inside = log.log_start_offset <= offset < log.log_end_offset
        assert bool(found.segments) == inside, offset
        check_steps(found, segments)
        for step in found.segments:
            assert step.time_index_entry is None
            assert step.offset_index_entry == entry_of_offset(segments[step.base_offset], offset)
    for stamp in sorted(stamps):
        try:
            answer = log.find(timestamp=stamp)
        except kstore.CorruptRecordError:
            continue
        found = kstore.explain.lookup(log, timestamp=stamp)
        assert (found.found, found.offset, found.timestamp) == (answer, None, stamp)
        check_steps(found, segments)
        for step in found.segments:
            entry = entry_of_time(segments[step.base_offset], stamp)
            assert step.time_index_entry == entry
            first = max(log.log_start_offset, step.base_offset if entry is None else entry[1])
            assert step.offset_index_entry == entry_of_offset(segments[step.base_offset], first)


def check_steps(found: kstore.explain.Lookup, segments: dict[int, kstore.Segment]) -> None:
    """Batches follow on from the entry, and the last one has what was found."""
    for step in found.segments:
        position = 0 if step.offset_index_entry is None else step.offset_index_entry.position
        for batch in step.batches:
            assert batch.position == position
            assert segments[step.base_offset].batch_at(position).base_offset == batch.base_offset
            position += batch.size
    if found.found is not None:
        last = found.segments[-1].batches[-1]
        assert last.base_offset <= found.found.offset <= last.last_offset


@BY_NAME
def test_openings_are_what_they_are_said_to_be(scenario: Scenario, tmp_path: Path) -> None:
    path = scenario.unpack(tmp_path)
    before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in tmp_path.rglob("*")}
    found = kstore.explain.opening(path)
    assert {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in tmp_path.rglob("*")} == before
    if path.name.startswith("__cluster_metadata"):
        return  # a broker's only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)
        with kstore.open(path, "r+") as log:
            assert (log.log_start_offset, log.log_end_offset) == (
                found.log_start_offset,
                found.log_end_offset,
            )
            recovery = log.recovery
            assert (recovery.clean, recovery.recovery_point) == (found.clean, found.recovery_point)
            assert tuple(recovery.recovered_segments) == found.recovered_segments
            assert recovery.truncated_bytes == found.truncated_bytes
            done = {(finding.code, finding.file) for finding in recovery.findings}
            assert done <= {(step.code, step.file) for step in found.steps}
        for step in found.steps:
            is_replaced = any(each.file == f"{step.file}.swap" for each in found.steps)
            if step.action == "delete" and not is_replaced:
                assert not Path(step.file).exists(), step
            elif step.action == "cut" and step.position >= 0 and step.size > 0:
                assert Path(step.file).stat().st_size == step.position, step
    again = kstore.explain.opening(path)
    assert again.bytes_to_read == 0
    assert not again.clean or [step for step in again.steps if step.action] == []


def test_an_open_log_has_nothing_to_recover(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        found = kstore.explain.opening(tmp_path / "t-0")
        assert (found.is_open, found.steps, found.log_end_offset) == (True, (), 1)
        log.abandon()
    found = kstore.explain.opening(tmp_path / "t-0")
    assert (found.is_open, found.clean, found.recovered_segments) == (False, False, (0,))
    assert found.bytes_to_read == (tmp_path / "t-0" / f"{0:020}.log").stat().st_size
    assert kstore.explain.opening(tmp_path / "t-0", whole=True).recovered_segments == (0,)
    with pytest.raises(kstore.LogNotFoundError):
        kstore.explain.opening(tmp_path / "gone-0")
