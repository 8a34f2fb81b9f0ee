"""The main job on real input: a broker's log directory, read without a broker.

The directory is tests/golden/data/broker/data, written by a real Apache Kafka 4.3.1.
"""

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
