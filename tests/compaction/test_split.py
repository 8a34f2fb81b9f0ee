"""A segment whose offsets span more than 2^31 - 1, as Kafka before 2.0 could leave one, met by a compaction."""

from pathlib import Path

import pytest

import kstore
from kstore.engine.io import file
from tests.compaction.stages import names, overflowed

CONFIG = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}


def last_ones(log: kstore.PartitionLog) -> list[int]:
    """Which records a compaction must leave."""
    return sorted({record.key: record.offset for record in log}.values())


def test_it_is_split_first(tmp_path: Path) -> None:
    partition = overflowed(tmp_path)
    with kstore.open(partition, "a", clean=True, **CONFIG) as log:
        left = last_ones(log)
        kept = {path: path.read_bytes() for path in partition.iterdir()}
        told = log.compact(dry_run=True)
        assert {path: path.read_bytes() for path in partition.iterdir()} == kept
        reader = iter(kstore.open(partition, clean=True))
        next(reader)
        done = log.compact()
        assert done == told._replace(dry_run=False)
        assert [s.base_offset for s in done.segments] == [0, 2147483657, 6442450941]
        assert [record.offset for record in log] == left
        assert all(log.get(offset).offset == offset for offset in left)  # by the new indexes
        assert len(list(reader)) == 23  # in the old file
        assert not log.compact().segments
    again = kstore.open(partition)
    assert [record.offset for record in again] == left
    assert not again.recovery.findings
    assert not [name for name in names(partition) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("number", range(1, 40))
def test_old_or_new_if_a_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Whatever renaming fails: this log, and another opening, have the records that were there, or those that stay."""
    partition = overflowed(tmp_path)
    with kstore.open(partition, "a", clean=True, **CONFIG) as log:
        before, left = [record.offset for record in log], last_ones(log)
        calls = 0
        real = file.rename

        def failing(source: str, target: str) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise OSError(5, "made up", source)
            real(source, target)

        for module in ("kstore.log.writer", "kstore.log.write.deleted_segments"):
            monkeypatch.setattr(f"{module}.rename", failing)
        try:
            log.compact()
        except (OSError, kstore.KstoreError):
            assert calls >= number
        monkeypatch.undo()
        assert set(left) <= {record.offset for record in kstore.open(partition)} <= set(before)
        log.abandon()
    with kstore.open(partition, "a", **CONFIG) as log:
        found = [record.offset for record in log]
        assert set(left) <= set(found) <= set(before)
        assert found == sorted(found)
        log.compact()
        assert [record.offset for record in log] == left
