"""Sound directories of many kinds, for the tests of checks."""

import random
import time
from pathlib import Path

import kstore
from tests.helpers.markers import end_transaction, transactional

NOW = int(time.time() * 1000)  # open transactions are not hanging yet
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KINDS = ("plain", "keyed", "transactions", "truncated", "deleted")


def write_partition(path: Path, rng: random.Random, kind: str) -> None:
    """Write a partition of one of the KINDS, and close it."""
    policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0} if kind == "keyed" else {}
    config = kstore.LogConfig(
        internal_segment_bytes=rng.choice((3000, 8000, 30000)),
        index_interval_bytes=rng.choice((200, 4096)),
        **policy,
    )
    with kstore.open(path, "a", config=config) as log:
        known = log.producers().items()
        sequences = {pid: state.batches[-1].last_sequence + 1 for pid, state in known if state.batches}
        for _ in range(rng.randrange(1, 4)):
            for _ in range(rng.randrange(1, 25)):
                _append(log, rng, kind, sequences)
                if rng.random() < 0.1:
                    log.roll()
            if kind == "keyed":
                log.roll()
                log.compact()
            elif kind == "truncated":
                log.truncate_to(rng.randrange(log.log_end_offset))
            elif kind == "deleted":
                log.delete_records(rng.randrange(log.log_end_offset))


def _append(log: kstore.LogWriter, rng: random.Random, kind: str, sequences: dict[int, int]) -> None:
    records = [
        (NOW + rng.randrange(100_000), b"k%d" % rng.randrange(20), rng.randbytes(rng.randrange(80)), None)
        for _ in range(rng.randrange(1, 12))
    ]
    if kind != "transactions":
        log.append_batches(kstore.encode_batch(records, codec=rng.choice(CODECS)))
        return
    producer = rng.randrange(4)
    sequence = sequences.get(producer, 0)
    log.append_batches(transactional(*records, producer=producer, sequence=sequence))
    sequences[producer] = sequence + len(records)
    if rng.random() < 0.5:
        end_transaction(log, rng.choice(("ABORT", "COMMIT")), NOW, producer)


def write_store(path: Path, rng: random.Random) -> None:
    """Write a log directory with a partition of each kind, a table of topics, and a group."""
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("more", partitions=2)
        store.extend("more", [b"v"] * 100, [b"k%d" % i for i in range(100)])
        with store.cursor("group", ["more"]) as cursor:
            for record in cursor:
                cursor.commit(record)
                break
    for kind in KINDS:
        write_partition(path / f"{kind}-0", rng, kind)
