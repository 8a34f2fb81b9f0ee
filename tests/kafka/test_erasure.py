"""Kafka reads a log after an erasure as kstore does: records, batches, producers, lookups by time."""

import random
from pathlib import Path

import pytest

from tests.kafka.jvm import Kafka
from tests.kafka.test_compaction import Story, opened, read_by_kafka, write


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # a follower left gaps
@pytest.mark.parametrize("seed", range(6))
def test_kafka_reads_what_is_left(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    story = Story(random.Random(seed))
    directory = tmp_path / "data" / "t-0"
    directory.parent.mkdir()
    (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    write([directory], story, 60)
    with opened(directory, story) as log:
        start, end = log.log_start_offset, log.log_end_offset
        kept = [r.offset for r in log if r.offset % 3]
        what = ("records", "values")[seed % 2]
        done = log.erase(where=lambda r: r.offset % 3 == 0, reason="asked", what=what)
    erased = {offset for segment in done.segments for offset in segment.offsets}
    assert erased
    records, _ = read_by_kafka(kafka, directory, story, start, end)
    found = {record["offset"] for record in records}
    assert found >= set(kept)
    assert (found & erased) == (set() if what == "records" else {o for o in erased if o >= start})
