"""An explanation of compaction agrees with what compact() does, also at the moment at which it is due."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.compaction.operations import end, transaction
from tests.helpers.clock import T0, Clock

NEVER = 2**40


@given(
    segments=st.lists(st.lists(st.integers(-5, 30), min_size=1, max_size=3), min_size=1, max_size=5),
    compacted=st.booleans(),
    open_at=st.none() | st.integers(0, 5),
    config=st.fixed_dictionaries(
        {
            "cleanup_policy": st.sampled_from(["compact", "compact", "delete"]),
            "min_cleanable_dirty_ratio": st.sampled_from([0.0, 0.5, 0.9]),
            "min_compaction_lag_ms": st.sampled_from([0, 0, 10, 40]),
            "max_compaction_lag_ms": st.sampled_from([50, 100, 2**63 - 1]),
        }
    ),
)
def test_it_is_due_when_compact_begins(
    segments: list[list[int]], compacted: bool, open_at: int | None, config: dict[str, Any]
) -> None:
    clock = Clock()
    ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=ram) as scratch,
        kstore.open(f"{scratch}/t-0", "a", clock=clock, message_timestamp_after_max_ms=2**62) as log,
    ):
        for number, ages in enumerate(segments):
            if number == open_at:
                log.append_batches(transaction(7, 0, range(2)))
            for age in ages:
                log.append(b"v", b"k", timestamp=T0 - age)
            log.roll()
            if compacted and number == 0:
                log.configure(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
                log.compact()
        log.configure(**config)

        def begins(now: int) -> bool:
            clock.now = now
            try:
                return bool(log.compact(dry_run=True).segments)
            except kstore.PolicyViolationError:
                return False

        found = kstore.explain.compaction(log, now_ms=T0)
        assert found.is_due == begins(T0), found
        assert found.is_due == (found.due_at_ms == T0)
        if found.due_at_ms is None:
            assert not begins(T0 + NEVER)
        elif not found.is_due:
            assert not begins(found.due_at_ms - 1)
            assert begins(found.due_at_ms)
        kinds = {wait.kind for wait in found.waits}
        assert found.is_due or kinds or found.first_dirty_offset == found.active_base_offset
        assert ("open_transaction" in kinds) == (open_at is not None and open_at < len(segments)) or (
            kinds == {"cleanup_policy"}
        )
        sizes = sum(segment.size for segment in log.segments)
        assert found.clean_bytes + found.cleanable_bytes + found.uncleanable_bytes == sizes
        for wait in found.waits:
            if wait.until_ms is not None:
                clock.now = wait.until_ms
                again = kstore.explain.compaction(log, now_ms=wait.until_ms)
                assert again.first_uncleanable_offset > wait.offset or "open_transaction" in kinds
        if "open_transaction" in kinds:
            end(log, 7, "ABORT")
            assert "open_transaction" not in {w.kind for w in kstore.explain.compaction(log).waits}
