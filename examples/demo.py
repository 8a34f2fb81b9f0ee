"""The main job on real input: a broker's log directory, read without a broker.

The directory is tests/golden/data/broker/data, written by a real Apache Kafka 4.3.1.
"""

import tempfile
from pathlib import Path

import kstore
from kstore.__main__ import main

BROKER = Path(__file__).parents[1] / "tests" / "golden" / "data" / "broker" / "data"


def title(text: str) -> None:
    print(f"\n== {text}")


store = kstore.LogStore(BROKER)
title(f"log directory of node {store.meta()['node.id']}, closed cleanly: {store.closed_cleanly}")
for topic, partitions in store.topics.items():
    print(f"{topic}: partitions {', '.join(map(str, partitions))}")

title("segments of events-0")
main(["stat", str(BROKER / "events-0")])

with store.open("events", 0) as log:
    title(f"first records of {log.topic_partition}")
    for record in log.records(stop=log.log_start_offset + 3):
        print(record)

    middle = (log.log_start_offset + log.log_end_offset) // 2
    title(f"find by offset {middle}, and by the timestamp found there")
    found = log.find(offset=middle)
    assert found is not None
    print(found)
    print(log.find(timestamp=found.timestamp))
    print("earliest", log.find(timestamp="earliest"), "latest", log.find(timestamp="latest"))

title("committed records of payments-0: transactions that were aborted are left out")
with store.open("payments", 0) as log:
    print(
        f"{sum(1 for _ in log)} records, "
        f"{sum(1 for _ in log.records(isolation='read_committed'))} of them committed"
    )

title("dump of a segment and its indexes, as kafka-dump-log prints them (first lines)")
segment = BROKER / "trimmed-0" / "00000000000000000021.log"
for kind in (".log", ".index", ".timeindex"):
    main(["dump", str(segment.with_suffix(kind))])

title("a log of our own: the broker's topic copied, rolled, found again after a clean close")
with tempfile.TemporaryDirectory() as data:
    with (
        kstore.open(
            f"{data}/copy-0", "a", internal_segment_bytes=20_000, retention_ms=7 * 86_400_000
        ) as copy,
        store.open("events", 0) as log,
    ):
        records = list(log)
        copy.extend(
            [r.value for r in records],
            [r.key for r in records],
            [r.timestamp for r in records],
            [r.headers for r in records],
        )
        copy.append(b"one more", key=b"k", timestamp=records[-1].timestamp)
        print(f"{copy.log_end_offset} records in {len(copy.segments)} segments, durable up to {copy.flush()}")
        for decision in copy.retain(dry_run=True)[:2]:
            print(decision)
    with kstore.open(f"{data}/copy-0") as copy:
        assert [(r.key, r.value, r.headers) for r in copy][:-1] == [
            (r.key, r.value, r.headers) for r in records
        ]
        print(copy.recovery, "the last:", copy.get(copy.log_end_offset - 1))
