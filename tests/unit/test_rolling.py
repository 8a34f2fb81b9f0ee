"""Rolling in UnifiedLogTest and LogSegmentTest, as far as it is a decision (spec 5.1, 13.10)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.config import MAX32, MAX64, LogConfig
from kstore.log.rolling import (
    ActiveFacts,
    AppendFacts,
    max_segment_ms,
    roll_jitter_ms,
    should_roll,
    waited_ms,
)

SIZE = 70
RECORD = AppendFacts(size=SIZE, last_offset=5, largest_timestamp=-1)


def roll(
    now: int = 0,
    *,
    size: int = SIZE,
    first: int | None = None,
    created: int = 0,
    stamped: int = -1,
    **options: Any,
) -> str | None:
    """Why a record stamped `stamped` begins a new segment at `now`, after a segment made at 0."""
    jitter = options.pop("jitter", 0)
    active = ActiveFacts(0, size, first, created, jitter)
    return should_roll(active, RECORD._replace(largest_timestamp=stamped), LogConfig(**options), now_ms=now)


def test_time_based_log_roll() -> None:
    """segment.ms 3600: each step of 3601 ms, with and without timestamps."""
    now = 3601
    assert roll(now, size=0, segment_ms=3600) is None  # empty
    assert roll(now + 3601, created=now, segment_ms=3600) == "time"
    created = now + 3601
    now = created + 3601
    assert roll(now, created=created, segment_ms=3600) == "time"
    created = now  # a segment that begins without timestamps goes by the wall clock
    assert roll(now, created=created, stamped=now + 3601, segment_ms=3600) is None
    now += 3601
    assert roll(now, created=created, stamped=now, segment_ms=3600) == "time"
    created, first = now, now  # and one that begins with one, by timestamps
    now += 3601
    assert roll(now, created=created, first=first, stamped=first, segment_ms=3600) is None
    assert roll(now, created=created, first=first, stamped=now, segment_ms=3600) == "time"


def test_time_based_log_roll_jitter() -> None:
    """segment.ms 3600, jitter 1200: not at 2400, but at 3600 - the segment's own jitter + 1."""
    for drawn in (0, 1, 1199):
        options = {"segment_ms": 3600, "segment_jitter_ms": 1200, "jitter": drawn}
        assert roll(3600 - 1200, **options) is None
        assert roll(3600 - drawn, **options) is None
        assert roll(3600 - drawn + 1, **options) == "time"


def test_size_based_log_roll() -> None:
    """segment.bytes of ten records less ten bytes: the tenth begins a new segment; of ten: the eleventh."""
    for room, tenth in ((10 * (SIZE - 1), "size"), (10 * SIZE, None)):
        assert roll(size=9 * SIZE, internal_segment_bytes=room) == tenth
        assert roll(size=10 * SIZE, internal_segment_bytes=room) == "size"
        assert roll(size=8 * SIZE, internal_segment_bytes=room) is None


def test_segment_bytes_without_the_internal_one() -> None:
    """Exactly full is allowed."""
    assert roll(size=(1 << 20) - SIZE, segment_bytes=1 << 20) is None
    assert roll(size=(1 << 20) - SIZE + 1, segment_bytes=1 << 20) == "size"


@pytest.mark.parametrize(("stamped", "reason"), [(6000, None), (6001, "time"), (0, None)])
def test_first_batch_timestamp(stamped: int, reason: str | None) -> None:
    """First batch of 1000, segment.ms 5000: 6000 does not roll, 6001 does; the wall clock does not matter."""
    for now in (0, 10**9):
        assert roll(now, first=1000, stamped=stamped, segment_ms=5000) == reason


@pytest.mark.parametrize("first", [None, -1])
def test_first_batch_without_timestamp(first: int | None) -> None:
    """The wall clock counts, and the append's timestamps do not."""
    assert roll(5000, first=first, stamped=10**9, segment_ms=5000) is None
    assert roll(5001, first=first, stamped=0, segment_ms=5000) == "time"


def test_empty_segment_does_not_age() -> None:
    """However old it is; its first timestamp, if one was left from before, is not asked."""
    assert roll(MAX64, size=0, segment_ms=1) is None
    active = ActiveFacts(0, 0, first_batch_timestamp=7, created_ms=100)
    assert waited_ms(active, RECORD, 130) == 30


@pytest.mark.parametrize("size", [0, SIZE])
def test_full_indexes(size: int) -> None:
    """A full index begins a new segment, even after an empty one."""
    active = ActiveFacts(0, size, None, 0)
    config = LogConfig()
    full = active._replace(offset_index_is_full=True)
    assert should_roll(full, RECORD, config, now_ms=0) == "offset_index"
    full = active._replace(time_index_is_full=True)
    assert should_roll(full, RECORD, config, now_ms=0) == "time_index"
    full = active._replace(offset_index_is_full=True, time_index_is_full=True)
    assert should_roll(full, RECORD, config, now_ms=0) == "offset_index"


@pytest.mark.parametrize(
    ("base", "last", "reason"),
    [(0, MAX32, None), (0, MAX32 + 1, "offset_range"), (9, 9, None), (9, 8, "offset_range")],
)
def test_offset_range(base: int, last: int, reason: str | None) -> None:
    """The last offset is at most 2^31 - 1 from the base, and not below it."""
    active = ActiveFacts(base, SIZE, None, 0)
    assert should_roll(active, RECORD._replace(last_offset=last), LogConfig(), now_ms=0) == reason


def test_order_of_reasons() -> None:
    """Size before time before indexes before offsets."""
    active = ActiveFacts(0, SIZE, None, 0, offset_index_is_full=True)
    far = RECORD._replace(last_offset=MAX32 + 1)
    assert should_roll(active, far, LogConfig(internal_segment_bytes=SIZE), now_ms=MAX64) == "size"
    assert should_roll(active, far, LogConfig(), now_ms=MAX64) == "time"
    assert should_roll(active, far, LogConfig(), now_ms=0) == "offset_index"


def test_compaction_lag() -> None:
    """A compacted log's segments end by max.compaction.lag.ms, others by segment.ms alone."""
    for policy, expected in (("compact", 50), ("compact,delete", 50), ("delete", 100), ("", 100)):
        assert (
            max_segment_ms(LogConfig(segment_ms=100, max_compaction_lag_ms=50, cleanup_policy=policy))
            == expected
        )
    assert max_segment_ms(LogConfig(segment_ms=100, cleanup_policy="compact")) == 100


@pytest.mark.parametrize(
    ("drawn", "jitter", "segment", "expected"),
    [
        (12345, 0, 1000, 0),
        (1201, 1200, 3600, 1),
        (-1201, 1200, 3600, 1),
        (2500, 5000, 1000, 500),
        (-(2**31), 1200, 3600, 0),
        (2**31 - 1, MAX64, MAX64, 2**31 - 1),
    ],
)
def test_jitter(drawn: int, jitter: int, segment: int, expected: int) -> None:
    """The remainder by the smaller of segment.jitter.ms and segment.ms; -2^31 counts as 0."""
    assert roll_jitter_ms(LogConfig(segment_jitter_ms=jitter, segment_ms=segment), drawn) == expected


def test_jitter_of_a_wrong_draw() -> None:
    """It must be a Java int."""
    with pytest.raises(ValueError, match="32-bit"):
        roll_jitter_ms(LogConfig(), 2**31)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, MAX64), st.integers(1, MAX64))
def test_jitter_leaves_time(drawn: int, jitter: int, segment: int) -> None:
    """It is less than segment.ms, so that a segment lasts at least a millisecond."""
    drawn = roll_jitter_ms(LogConfig(segment_jitter_ms=jitter, segment_ms=segment), drawn)
    assert 0 <= drawn < segment
    assert drawn <= jitter
