"""log.retain(): which segments go and why (spec 9.1, 9.2), against a plain model of Kafka's three loops."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore.__main__ import main
from kstore.testing import count_calls
from tests.unit.logs import offsets

NOW = 1_700_000_000_000
Decided = list[tuple[int, str | None]]  # the base offset of a segment and the rule by which it goes


class Case(NamedTuple):
    """Segments as lists of (age in ms, size of the value), one record each, and what retention is told."""

    segments: list[list[tuple[int, int]]]
    start: int
    config: dict[str, Any]
    rolled: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small enough that limits are often met exactly."""
    record = st.tuples(st.integers(-3, 20), st.sampled_from([0, 10]))
    segments = draw(st.lists(st.lists(record, min_size=1, max_size=3), min_size=1, max_size=5))
    count = sum(map(len, segments))
    config = {
        "retention_bytes": draw(st.sampled_from([-1, 0]) | st.integers(0, 90 * count)),
        "retention_ms": draw(st.integers(-1, 20)),
        "cleanup_policy": draw(st.sampled_from(["delete", "compact", "compact,delete", ""])),
    }
    return Case(segments, draw(st.integers(0, count)), config, draw(st.booleans()))


def written(case: Case, path: str) -> kstore.LogWriter:
    log = kstore.open(path, "a", clock=lambda: NOW, message_timestamp_after_max_ms=2**62)
    for number, segment in enumerate(case.segments):
        if number:
            log.roll()
        for age, size in segment:
            log.append(b"v" * size, b"k", timestamp=NOW - age)
    if case.rolled:
        log.roll()
    log.delete_records(case.start)
    log.configure(**case.config)
    return log


def as_kafka_decides(case: Case, log: kstore.LogWriter) -> Decided:
    """Each rule walks over what the one before left, from the oldest segment until one stays."""
    ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
    left = list(zip(log.segments, ends, strict=True))
    newest = [min((age for age, _ in segment), default=0) for segment in case.segments]
    age_of = {segment.base_offset: age for (segment, _), age in zip(left, newest, strict=False)}
    decided: Decided = []
    room = sum(segment.size for segment in log.segments)

    def walk(rule: str, is_due: Callable[[kstore.Segment, int], bool]) -> None:
        while left:
            segment, end = left[0]
            is_last = len(left) == 1
            if (is_last and segment.size == 0) or not is_due(segment, end):
                return
            decided.append((segment.base_offset, rule))
            left.pop(0)

    def is_over_size(segment: kstore.Segment, end: int) -> bool:
        nonlocal room
        if room - segment.size < case.config["retention_bytes"]:
            return False
        room -= segment.size
        return True

    walk("start_offset", lambda segment, end: len(left) > 1 and end <= log.log_start_offset)
    room = sum(segment.size for segment, _ in left)
    if "delete" in case.config["cleanup_policy"]:
        if case.config["retention_bytes"] >= 0:
            walk("size", is_over_size)
        if case.config["retention_ms"] >= 0:
            walk("time", lambda segment, end: age_of[segment.base_offset] > case.config["retention_ms"])
    return decided + [(segment.base_offset, None) for segment, _ in left]


@given(case=cases())
def test_it_decides_as_kafka_does(case: Case) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        log = written(case, f"{scratch}/t-0")
        expected = as_kafka_decides(case, log)
        planned = log.retain(dry_run=True)
        assert [(d.base_offset, d.rule) for d in planned] == expected
        assert all(d.reason and d.delete == (d.rule is not None) for d in planned)
        ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
        start = max([case.start, *(end for end, d in zip(ends, planned, strict=True) if d.delete)])
        assert log.retain() == planned
        kept = [base for base, rule in expected if rule is None]
        assert [s.base_offset for s in log.segments] == (kept or [log.log_end_offset])
        assert log.log_start_offset == start
        assert offsets(log) == list(range(start, log.log_end_offset))
        assert not any(d.delete for d in log.retain())
        log.close()


def reasons(log: kstore.LogWriter, **config: Any) -> list[str]:
    log.configure(**{"retention_bytes": None, "retention_ms": -1, **config})
    return [decision.reason for decision in log.retain(dry_run=True)]


def test_a_reason_has_the_numbers(tmp_path: Path) -> None:
    case = Case([[(20, 10)], [(0, 10)]], 0, {"retention_ms": -1}, False)
    with written(case, str(tmp_path / "t-0")) as log:
        size = log.segments[0].size
        first, second = reasons(log, retention_bytes=2 * size, retention_ms=30)
        assert first == (
            f"the next segment begins at offset 1, the log start offset is 0; without its {size} bytes the "
            f"log would have {size}, retention.bytes is {2 * size}; its newest record is stamped 20 ms ago, "
            "retention.ms is 30"
        )
        assert second == "the older segment 0 stays"
        assert reasons(log)[0].endswith("retention.bytes is -1, no limit; retention.ms is -1, no limit")
        assert "cleanup.policy is compact" in reasons(log, cleanup_policy="compact")[0]
    days = Case([[(5_400_000, 10)], [(-5, 10)], [(7, 10)]], 0, {"retention_ms": 604_800_000}, False)
    with written(days, str(tmp_path / "days-0")) as log:
        words = "stamped 5400000 ms ago (1.5 hours), retention.ms is 604800000 (7.0 days)"
        assert reasons(log, retention_ms=604_800_000)[0].endswith(words)
        _, ahead, behind = reasons(log, retention_ms=1)
        assert "5 ms in the future" in ahead
        assert behind == "the older segment 1 stays"


def test_a_segment_without_timestamps_is_judged_by_its_file(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: NOW, retention_ms=6) as log:
        log.append(b"v", timestamp=-1)
        log.roll()
        os.utime(log.segments[0].path, ns=(0, (NOW - 7) * 1_000_000))
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: NOW) as log:
        decision = log.retain(dry_run=True)[0]
        assert decision.rule == "time"
        assert "file was modified 7 ms ago" in decision.reason


def test_a_size_alone_is_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", retention_bytes=2000, internal_segment_bytes=500) as log:
        for i in range(100):
            log.append(b"%d" % i * 20, timestamp=NOW)
        assert {decision.rule for decision in log.retain() if decision.delete} == {"size"}
        assert 2000 <= sum(segment.size for segment in log.segments) < 2600
        assert log.retain(dry_run=True)[0].rule is None
        log.extend([b"." * 400] * 5, batch_bytes=0)
    assert main(["retain", str(path)]) == 0
    assert "delete (size)" in capsys.readouterr().out


@pytest.mark.parametrize("limit", [-1, 10**9])
def test_segments_that_stay_cost_no_system_calls(ram: Path, limit: int) -> None:
    """A run examines the oldest segment; the first after opening the sizes of all, if there is a limit."""
    options: Any = {"retention_ms": 10**12, "retention_bytes": limit, "internal_segment_bytes": 300}
    with kstore.open(ram / "t-0", "a", **options) as writer:
        writer.extend([b"x" * 150] * 200, batch_bytes=0)
        writer.flush()  # else another thread is still at it, whose calls count too
        writer.retain()
        assert min(count_calls(writer.retain) for _ in range(5)) <= 2
        writer.roll()
        writer.flush()
        assert count_calls(writer.retain) <= 4
    with kstore.open(ram / "t-0", "a") as writer:
        assert len(writer.segments) > 150
        first = count_calls(writer.retain)
        assert first <= 20 if limit < 0 else first > 150
        assert min(count_calls(writer.retain) for _ in range(5)) <= 2
        assert not any(decision.delete for decision in writer.retain())


@pytest.mark.parametrize(
    ("options", "span"),
    [
        ({}, 604_800_000),
        ({"retention_ms": -1}, 604_800_000),
        ({"retention_ms": 604_800_000}, 151_200_000),
        ({"retention_ms": 10 * 604_800_000}, 604_800_000),
        ({"retention_ms": 3_600_000}, 900_000),
        ({"retention_ms": 5_000}, 60_000),
        ({"retention_ms": 3_600_000, "segment_ms": 3_000_000}, 3_000_000),
        ({"retention_ms": 3_600_000, "cleanup_policy": "compact"}, 604_800_000),
        ({"retention_ms": 3_600_000, "cleanup_policy": "compact,delete"}, 900_000),
        ({"retention_ms": 3_600_000, "cleanup_policy": "compact,delete", "max_compaction_lag_ms": 9}, 9),
    ],
)
def test_a_short_retention_makes_short_segments(tmp_path: Path, options: dict[str, Any], span: int) -> None:
    """An append begins a segment once the records span more."""
    now = NOW
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: now, **options) as log:
        log.append(b"v", b"k")
        now = NOW + span
        log.append(b"v", b"k")
        assert len(log.segments) == 1
        now += 1
        log.append(b"v", b"k")
        assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_busy_log_keeps_records_a_quarter_longer_at_most(tmp_path: Path) -> None:
    now, hour = NOW, 3_600_000
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: now, retention_ms=4 * hour) as log:
        for _ in range(100):
            now += hour // 10
            log.append(b"v")
            log.retain()
            assert now - log.get(log.log_start_offset).timestamp <= 5 * hour + hour // 10
        assert len(log.segments) <= 6
