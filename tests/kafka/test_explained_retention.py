"""Kafka's retention deletes a segment at the moment that kstore.explain names, and not a millisecond
before."""

import os
import random
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import EFFORT
from tests.kafka.jvm import NOW, Kafka


@pytest.mark.parametrize("seed", range(6 * EFFORT))
def test_each_moment_is_kafkas(kafka: Kafka, log_directory: Path, seed: int) -> None:
    rnd = random.Random(seed)
    config = {
        "retention_ms": rnd.choice([-1, 20, 50, 50]),
        "retention_bytes": rnd.choice([-1, -1, 300, 900]),
        "cleanup_policy": rnd.choice(["delete", "delete", "compact,delete", "compact"]),
    }
    path = log_directory / "t-0"
    with kstore.open(path, "a", clock=lambda: NOW, **config) as log:
        for number in range(rnd.randint(1, 7)):
            if number:
                log.roll()
            for _ in range(rnd.randint(0, 3)):
                log.append(b"v" * 60, b"k", timestamp=NOW + rnd.randint(-60, 30))
        log.delete_records(rnd.choice([0, 0, log.log_end_offset // 2, log.log_end_offset]))
        start = log.log_start_offset
        for segment in log.segments:
            os.utime(segment.path, ns=(0, (NOW - 10) * 1_000_000))
    found = kstore.explain.retention(kstore.open(path), now_ms=NOW)
    topic = {name.replace("_", "."): str(value) for name, value in config.items()}
    theirs = kafka.open(path, topic, now=NOW, log_start_offset=start)
    moments = {s.deletable_at_ms for s in found.segments if s.deletable_at_ms is not None}
    deleted = 0
    for moment in sorted(moments | {m - 1 for m in moments if m > NOW} | {NOW, NOW + 10**9}):
        theirs.ask("now", ms=moment)
        deleted += theirs.ask("retain")["deleted"]
        expected = [
            s for s in found.segments if s.deletable_at_ms is not None and s.deletable_at_ms <= moment
        ]
        assert deleted == len(expected), (moment - NOW, found)
    theirs.ask("close")
