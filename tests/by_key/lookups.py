"""Logs with keys, and what lookups by key must find in them."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kstore

OPTIONS = {
    "internal_segment_bytes": 3000,
    "cleanup_policy": "compact,delete",
    "min_cleanable_dirty_ratio": 0.0,
    "file_delete_delay_ms": 0,
}
KEYS = [b"key-%d" % i for i in range(90)]


def opened(path: Path, **options: Any) -> kstore.LogWriter:
    return kstore.open(path, "a", **OPTIONS | options)


def fill(log: kstore.LogWriter, seed: int, count: int = 300) -> None:
    rng = random.Random(seed)
    for _ in range(count // 5):
        chosen = [rng.choice(KEYS) for _ in range(5)]
        log.extend([rng.choice([None, b"v" * rng.randrange(50)]) for _ in chosen], keys=chosen)


def key_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.keys"))


def check(
    log: kstore.PartitionLog, keys: Iterable[bytes] = KEYS, isolation: Any = "read_uncommitted"
) -> None:
    """Each key, and some that are not there, is found as a plain reading finds it: by .keys files, by reading
    segments the first time, by maps in memory from the second time on."""
    records = list(log.records(isolation=isolation))
    for _ in range(3):
        for key in [*keys, b"", b"nobody"]:
            wanted = [record for record in records if record.key == key]
            assert log.last(key, isolation=isolation) == (wanted[-1] if wanted else None)
            assert list(log.history(key, isolation=isolation)) == wanted
