"""Retention in UnifiedLogTest, as far as it is a decision (spec 9.1, 9.2, 13.10), and what holds for any log."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore.config import LogConfig
from kstore.log.write.retention import Decision, SegmentFacts, decide
from kstore.testing.faults import count_calls

NOW = 1_000_000
BATCH = 70  # bytes of a record in a batch of its own


def log(
    *timestamps: int, records: int = 5, size: int | None = None, mtime: bool = False
) -> list[SegmentFacts]:
    """Segments of five records each, and their largest timestamps."""
    size = records * BATCH if size is None else size
    return [
        SegmentFacts(at * records, (at + 1) * records, size, timestamp, mtime)
        for at, timestamp in enumerate(timestamps)
    ]


def run(
    segments: list[SegmentFacts], start: int = 0, high: int | None = None, **options: Any
) -> list[Decision]:
    """The decisions at NOW; the high watermark is the log's end unless told."""
    end = segments[-1].next_offset if segments else 0
    return decide(
        segments,
        LogConfig(**options),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end if high is None else high,
        now_ms=NOW,
    )


def rules(decisions: list[Decision]) -> list[str | None]:
    return [decision.rule for decision in decisions]


class TestSize:
    def test_should_delete_size_based_segments(self) -> None:
        """15 records in three segments, room for ten: one goes."""
        decisions = run(log(NOW, NOW, NOW), retention_bytes=10 * BATCH)
        assert rules(decisions) == ["size", None, None]

    def test_should_not_delete_size_based_segments_when_under_retention_size(self) -> None:
        """Room for all 15."""
        assert rules(run(log(NOW, NOW, NOW), retention_bytes=15 * BATCH)) == [None] * 3

    def test_never_below(self) -> None:
        """One byte more to keep, and the segment stays."""
        assert rules(run(log(NOW, NOW, NOW), retention_bytes=10 * BATCH + 1)) == [None] * 3

    def test_cleanup_segments_to_maintain_size(self) -> None:
        """LogManagerTest: of 20 segments those stay that hold five segments' bytes and ten more: six."""
        segments = log(*[NOW] * 20)
        decisions = run(segments, retention_bytes=5 * segments[0].size + 10, retention_ms=-1)
        assert rules(decisions) == ["size"] * 14 + [None] * 6

    def test_no_room_at_all(self) -> None:
        """retention.bytes 0 takes the active segment too."""
        assert rules(run(log(NOW, NOW), retention_bytes=0)) == ["size", "size"]

    @pytest.mark.parametrize("limit", [-1, -2, -(2**63)])
    def test_off(self, limit: int) -> None:
        """Any negative number is no limit."""
        assert rules(run(log(NOW, NOW), retention_bytes=limit)) == [None, None]


class TestTime:
    def test_should_delete_time_based_segments_ready_to_be_deleted(self) -> None:
        """Timestamp 10, 10 s to keep: all three go; one new segment is what Kafka has left."""
        segments = log(10, 10, 10)
        decisions = run(segments, retention_ms=10_000)
        assert rules(decisions) == ["time"] * 3

    def test_should_not_delete_time_based_segments_when_none_ready(self) -> None:
        """Records of now."""
        assert rules(run(log(NOW, NOW, NOW), retention_ms=10_000)) == [None] * 3

    @pytest.mark.parametrize(("age", "rule"), [(1000, None), (1001, "time")])
    def test_strictly_older(self, age: int, rule: str | None) -> None:
        """As old as retention.ms stays."""
        assert rules(run(log(NOW - age), retention_ms=1000)) == [rule]

    def test_future_holds_all_later_ones(self) -> None:
        """A record of the future keeps its segment and those after it, however old they are."""
        decisions = run(log(10, NOW + 5, 10, 10), retention_ms=1)
        assert rules(decisions) == ["time", None, None, None]
        assert "5 ms in the future" in decisions[1].reason
        assert "older segment 5" in decisions[3].reason

    def test_modification_time(self) -> None:
        """A segment without timestamps is judged by its file."""
        decisions = run(log(NOW - 7, mtime=True), retention_ms=6)
        assert rules(decisions) == ["time"]
        assert "file was modified 7 ms ago" in decisions[0].reason

    def test_retention_off(self) -> None:
        """-1: never by time."""
        assert rules(run(log(0), retention_ms=-1)) == [None]

    def test_zero(self) -> None:
        """retention.ms 0: all that is not of this millisecond."""
        assert rules(run(log(NOW - 1, NOW), retention_ms=0)) == ["time", None]


class TestPolicy:
    def test_should_not_delete_segments_when_policy_does_not_include_delete(self) -> None:
        """compact alone: neither by time nor by size."""
        decisions = run(log(10, 10, 10), cleanup_policy="compact", retention_ms=10_000, retention_bytes=1)
        assert rules(decisions) == [None] * 3
        assert "cleanup.policy is compact" in decisions[0].reason

    def test_should_delete_segments_ready_to_be_deleted_when_cleanup_policy_is_compact_and_delete(
        self,
    ) -> None:
        """compact,delete: as with delete."""
        assert (
            rules(run(log(10, 10, 10), cleanup_policy="compact,delete", retention_ms=10_000)) == ["time"] * 3
        )

    def test_should_delete_start_offset_breached_segments_when_policy_does_not_include_delete(self) -> None:
        """compact, log start offset 5: the first segment goes."""
        assert rules(run(log(10, 10, 10), start=5, cleanup_policy="compact")) == ["start_offset", None, None]

    def test_empty_policy(self) -> None:
        """No policy: all stays but what lies below the log start offset."""
        decisions = run(log(10, 10), start=5, cleanup_policy=(), retention_ms=1, retention_bytes=0)
        assert rules(decisions) == ["start_offset", None]


class TestStartOffset:
    @pytest.mark.parametrize(("start", "gone"), [(1, 0), (4, 0), (5, 1), (6, 1), (10, 2), (15, 2)])
    def test_log_deletion_after_delete_records(self, start: int, gone: int) -> None:
        """Deleted to 1, 6, 15 of 15 records: 3, 2, 1 segments; the last never goes for this."""
        segments = log(NOW, NOW, NOW)
        decisions = run(segments, start=start)
        assert rules(decisions) == ["start_offset"] * gone + [None] * (3 - gone)

    def test_deletion_by_start_offset_then_time(self) -> None:
        """Retention 900 ms; segments stamped +100, 0, +100, 901 ms later, log start 1: two go at once, then none."""
        written = NOW - 901
        segments = log(written + 100, written, written + 100, records=1)
        decisions = run(segments, start=1, retention_ms=900)
        assert rules(decisions) == ["start_offset", "time", None]
        assert rules(run(segments[2:], start=2, retention_ms=900)) == [None]

    def test_size_over_what_is_left(self) -> None:
        """What goes by the log start offset no longer counts as size."""
        assert rules(run(log(NOW, NOW, NOW), start=5, retention_bytes=6 * BATCH)) == [
            "start_offset",
            None,
            None,
        ]
        assert rules(run(log(NOW, NOW, NOW), start=5, retention_bytes=5 * BATCH)) == [
            "start_offset",
            "size",
            None,
        ]


class TestLimits:
    def test_high_watermark_gates_all(self) -> None:
        """100 records; at each high watermark what lies wholly below it goes."""
        segments = log(*[10] * 20)
        for high in range(101):
            decisions = run(segments, high=high, start=min(high, 3), retention_ms=1, retention_bytes=0)
            assert sum(d.delete for d in decisions) == high // 5
        assert "high watermark is 4" in run(segments, high=4, retention_ms=1)[0].reason

    def test_empty_last_segment(self) -> None:
        """It never goes, not even where all rules would have it."""
        segments = [*log(10, 10), SegmentFacts(10, 10, 0, 10, True)]
        assert rules(run(segments, start=10, retention_ms=1, retention_bytes=0)) == [
            "start_offset",
            "start_offset",
            None,
        ]

    def test_nothing(self) -> None:
        """No segments, no decisions."""
        assert run([]) == []

    def test_facts_that_contradict_each_other(self) -> None:
        """A gap between segments, or another end of the log."""
        first, second = log(10, 10)
        with pytest.raises(ValueError, match="begins at 5"):
            run([first._replace(next_offset=4), second])
        with pytest.raises(ValueError, match="ends at 5, not at 6"):
            decide([first], LogConfig(), log_start_offset=0, log_end_offset=6, high_watermark=5, now_ms=NOW)


def test_reasons_have_the_numbers() -> None:
    """A kept segment has a word on each rule."""
    first, second = run(log(NOW - 20, NOW), start=2, retention_bytes=400, retention_ms=30)
    assert first.reason == (
        "the next segment begins at offset 5, the log start offset is 2; "
        "without its 350 bytes the log would have 350, retention.bytes is 400; "
        "its newest record is stamped 20 ms ago, retention.ms is 30"
    )
    assert second.reason == "the older segment 0 stays"
    old = run(log(NOW - 5_400_000), retention_ms=604_800_000)[0].reason
    assert old.endswith("stamped 5400000 ms ago (1.5 hours), retention.ms is 604800000 (7.0 days)")
    assert run(log(5), retention_ms=-1)[0].reason == (
        "it is the last one, and the log start offset is 0; retention.bytes is -1, no limit; "
        "retention.ms is -1, no limit"
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[SegmentFacts], dict[str, int], LogConfig]:
    """A log, its offsets and a configuration, small enough that limits are often met exactly."""
    bases = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=9)))
    segments = [
        SegmentFacts(base, end, draw(st.integers(1, 5)), draw(st.integers(0, 20)), draw(st.booleans()))
        for base, end in pairwise(bases)
    ]
    if draw(st.booleans()):
        segments.append(SegmentFacts(bases[-1], bases[-1], 0, draw(st.integers(0, 20)), True))
    high = draw(st.integers(bases[0], bases[-1]))
    offsets = {
        "log_start_offset": draw(st.integers(bases[0], high)),
        "log_end_offset": bases[-1],
        "high_watermark": high,
        "now_ms": draw(st.integers(0, 30)),
    }
    config = LogConfig(
        retention_bytes=draw(st.integers(-1, 30)),
        retention_ms=draw(st.integers(-1, 20)),
        cleanup_policy=draw(st.lists(st.sampled_from(["delete", "compact"]))),
    )
    return segments, offsets, config


@given(cases())
def test_what_holds_for_any_log(case: tuple[list[SegmentFacts], dict[str, int], LogConfig]) -> None:
    """A prefix goes, within every limit; and what is left is left by a second run too."""
    segments, offsets, config = case
    decisions = decide(segments, config, **offsets)
    assert [d.base_offset for d in decisions] == [s.base_offset for s in segments]
    assert all(d.reason and d.delete == (d.rule is not None) for d in decisions)
    count = sum(d.delete for d in decisions)
    assert [d.delete for d in decisions] == [True] * count + [False] * (len(segments) - count)
    gone, kept = segments[:count], segments[count:]

    order = [("start_offset", "size", "time").index(d.rule) for d in decisions if d.rule]
    assert order == sorted(order)  # each rule works on what the one before left
    assert all(s.next_offset <= offsets["high_watermark"] for s in gone)
    assert not gone or gone[-1].size > 0
    if not config.deletes:
        assert {d.rule for d in decisions} <= {"start_offset", None}

    by = {
        rule: [s for s, d in zip(segments, decisions, strict=True) if d.rule == rule]
        for rule in ("start_offset", "size", "time")
    }
    assert all(s.next_offset <= offsets["log_start_offset"] for s in by["start_offset"])
    assert segments[-1] not in by["start_offset"]
    if by["size"]:
        assert sum(s.size for s in by["time"] + kept) >= config.retention_bytes >= 0
    assert all(offsets["now_ms"] - s.largest_timestamp > config.retention_ms >= 0 for s in by["time"])

    start = max([offsets["log_start_offset"], *(s.next_offset for s in gone)])
    assert offsets["log_start_offset"] <= start <= offsets["high_watermark"]
    assert all(s.next_offset <= start for s in gone)
    if kept:
        again = decide(kept, config, **(offsets | {"log_start_offset": start}))
        assert not any(d.delete for d in again)


@given(cases(), st.integers(0, 10))
def test_more_room_keeps_more(case: tuple[list[SegmentFacts], dict[str, int], LogConfig], more: int) -> None:
    """Greater limits, or a lower high watermark, never make another segment go."""
    segments, offsets, config = case

    def count(config: LogConfig, **changes: int) -> int:
        return sum(d.delete for d in decide(segments, config, **(offsets | changes)))

    before = count(config)
    if config.retention_bytes >= 0:
        assert count(config.replace(retention_bytes=config.retention_bytes + more)) <= before
    if config.retention_ms >= 0:
        assert count(config.replace(retention_ms=config.retention_ms + more)) <= before
    assert count(config, high_watermark=offsets["high_watermark"] - more) <= before
    assert count(config, now_ms=offsets["now_ms"] + more) >= before
    assert count(config.replace(cleanup_policy="")) <= before


@pytest.mark.parametrize("limit", [-1, 10**9])
def test_segments_that_stay_are_not_looked_at(tmp_path: Path, limit: int) -> None:
    """Each check looks at the oldest alone; the first of an opening at the sizes of all, if there is a limit to them."""
    options: dict[str, Any] = {"retention_ms": 10**12, "retention_bytes": limit}
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=300, **options) as writer:
        writer.extend([b"x" * 150] * 400, batch_bytes=0)
        assert len(writer.segments) > 300
        writer.flush()  # else another thread is still at it, whose calls count too
        writer.retain()
        assert min(count_calls(writer.retain) for _ in range(5)) <= 2
        writer.roll()
        writer.flush()
        assert count_calls(writer.retain) <= 4
    with kstore.open(tmp_path / "t-0", "a") as writer:
        first = count_calls(writer.retain)
        assert first <= 20 if limit < 0 else first > 300
        assert min(count_calls(writer.retain) for _ in range(5)) <= 2
        assert not any(decision.delete for decision in writer.retain())
