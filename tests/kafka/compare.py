"""What kstore and Kafka say of the same log, side by side."""

import random
from pathlib import Path
from typing import Any

import kstore
from tests.golden.answers import all_lines, answer
from tests.kafka.jvm import KafkaLog


def summary(log: kstore.PartitionLog) -> dict[str, Any]:
    """What Report.summary tells of a log, of kstore's."""
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "last_stable_offset": log.last_stable_offset(),
        "leader_epochs": [list(entry) for entry in log.leader_epochs],
        "segments": [
            {
                "base_offset": segment.base_offset,
                "size": segment.size,
                "index_entries": len(segment.offset_index),
                "time_index_entries": len(segment.time_index),
                "max_timestamp_so_far": list(segment.max_timestamp_so_far),
                "aborted": [list(txn[:4]) for txn in segment.transaction_index],
            }
            for segment in log.segments
        ],
        "producers": {
            str(state.producer_id): [
                state.producer_epoch,
                state.coordinator_epoch,
                state.last_timestamp,
                -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
                max((batch.last_offset for batch in state.batches), default=-1),
            ]
            for state in log.producers().values()
        },
    }


def queries(log: kstore.PartitionLog, seed: int = 1, most: int = 40) -> list[str]:
    """Questions at the edges of this log."""
    rnd = random.Random(seed)
    batches = list(log.from_file_start().batches())
    some = batches if len(batches) <= most else sorted(rnd.sample(batches, most), key=lambda b: b.base_offset)
    offsets = {0, log.log_start_offset, log.log_end_offset - 1, log.log_end_offset, log.log_end_offset + 1}
    stamps = {0, 2**62}
    for batch in some:
        offsets |= {batch.base_offset, batch.last_offset, batch.last_offset + 1}
        offsets.add((batch.base_offset + batch.last_offset) // 2)
        around = {batch.max_timestamp, rnd.choice(batch.records()).timestamp} if batch.records() else set()
        stamps |= {stamp + d for stamp in around for d in (-1, 0, 1)}
    offsets |= {s.base_offset + d for s in log.segments for d in (-1, 0)}
    asked = ["earliest", "latest", "max_timestamp"]
    asked += [f"offset {n}" for n in sorted(offsets) if n >= 0]
    asked += [f"timestamp {n}" for n in sorted(stamps) if n >= 0]
    for batch in some[:: max(1, len(some) // 10)]:
        for isolation in ("read_uncommitted", "read_committed"):
            asked.append(f"fetch {batch.base_offset} {1 << rnd.randrange(17)} {isolation} {rnd.randrange(2)}")
    start, end = log.log_start_offset, log.log_end_offset
    asked += [f"fetch {start} 1000000000 read_committed 1", f"fetch {end} 100 read_committed 1"]
    asked += [
        f"aborted {a} {b}" for a, b in ((start, end), (start, (start + end) // 2), ((start + end) // 2, end))
    ]
    return asked + [f"epoch_end {epoch}" for epoch in range(-1, 11)]


class Account:
    """All that kstore says of a log, taken before Kafka opens it: then its active indexes grow by zeros."""

    def __init__(self, log: kstore.PartitionLog) -> None:
        self.lines = all_lines(log)
        self.summary = summary(log)
        self.answers = [answer(log, query) for query in queries(log)]
        self.times = [(record.timestamp, record.offset) for record in log]
        self.reached = [(segment.largest_timestamp, segment.base_offset) for segment in log.segments]

    def check(self, theirs: KafkaLog) -> None:
        """The same records, the same state, the same answers from Kafka; and it finds the indexes sound."""
        assert theirs.records() == self.lines
        said = theirs.summary()
        said.pop("recovery_point")
        for a, b in zip(self.summary["segments"], said["segments"], strict=True):
            assert a == b
        if said["last_stable_offset"] != self.summary["last_stable_offset"]:
            # of a transaction that began below the log start, Kafka's is that of a whole batch at the log
            # start
            assert self.summary["last_stable_offset"] == self.summary["log_start_offset"]
            said["last_stable_offset"] = self.summary["log_start_offset"]
        assert self.summary == said
        assert theirs.wrong() == []
        said_too = theirs.answers(each["query"] for each in self.answers)
        pairs = zip(self.answers, said_too, strict=True)
        wrong = [(a, b) for a, b in pairs if a != b and not self._passes_over(a, b)]
        assert not wrong, f"{len(wrong)} of {len(said_too)} answers differ, the first: {wrong[0]}"

    def _passes_over(self, ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
        """Whether Kafka asks a segment for a time whose matches lie below the log start, and kstore finds the
        first one that is left: docs/differences-from-kafka.md."""
        what, _, rest = str(ours["query"]).partition(" ")
        if what != "timestamp" or theirs["offset"] is not None:
            return False
        asked = next((base for largest, base in self.reached if largest >= int(rest)), None)
        first = next((offset for timestamp, offset in self.times if timestamp >= int(rest)), None)
        start = int(self.summary["log_start_offset"])
        return asked is not None and asked < start and ours["offset"] == first


OURS = (
    ".lock",
    ".kafka_cleanshutdown",
    "kstore.json",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
)


def files_of(directory: Path) -> dict[str, bytes]:
    """{name: bytes} of what counts in a partition directory."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.suffix not in (".deleted", ".cut") and path.name not in OURS
    }


def check_same_files(ours: Path, theirs: Path) -> None:
    """Byte for byte."""
    a, b = files_of(ours), files_of(theirs)
    assert list(a) == list(b)
    differing = [name for name in a if a[name] != b[name]]
    assert not differing, f"{differing}: {_first_difference(a[differing[0]], b[differing[0]])}"


def _first_difference(a: bytes, b: bytes) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    ours, theirs = a[at:][:24].hex(), b[at:][:24].hex()
    return f"kstore's {len(a)} bytes, Kafka's {len(b)}, from byte {at} on {ours}, {theirs}"
