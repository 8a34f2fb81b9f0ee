"""Batches of producers in one call that do not fit into one segment: as if they had come one by one."""

from pathlib import Path

import kstore
from tests.helpers.markers import marker

AT = 1_700_000_000_000


def batches() -> list[bytes]:
    several = [
        kstore.encode_batch(
            [(AT, None, b"x" * 60, None)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        for sequence in range(4)
        for producer_id in (7, 8)
    ]
    return [*several, marker("ABORT", 7, AT), marker("COMMIT", 8, AT)]


def written(path: Path, calls: list[bytes]) -> dict[str, bytes]:
    with kstore.open(
        path,
        "a",
        internal_segment_bytes=300,
        segment_index_bytes=800,
        message_timestamp_before_max_ms=2**63 - 1,
        segment_jitter_ms=0,
    ) as log:
        for call in calls:
            log.append_batches(call, origin="coordinator", transaction_version=0)
        assert log.last_stable_offset() == log.log_end_offset == 10
        assert len(log.segments) > 3
        log.append_batches(calls[0][:0])
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix in kinds}


def test_as_one_by_one(tmp_path: Path) -> None:
    one_by_one = written(tmp_path / "several", batches())
    assert written(tmp_path / "one", [b"".join(batches())]) == one_by_one
