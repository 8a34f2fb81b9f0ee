"""Run as `python -m tests.fuzz.positions SEED SECONDS`: a broker's __consumer_offsets with nonsense in it.

Its positions are taken over as a plain reading of Kafka's rules has them, or an error says what is wrong;
what was taken over is given back and read again.
"""

import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import kstore
from tests.fuzz.driver import Case, drive
from tests.fuzz.mutations import changed
from tests.helpers.markers import marker
from tests.hostile.material import GOLDEN

BROKER = GOLDEN / "broker" / "data"
Key = tuple[str, str, int]
Position = tuple[int, int, str, int]
GROUPS = ("g", "readers", "", ".", "..", "a/b", "ä", "\0", "x" * 201, "-")
TOPICS = ("t", "events", "", "../t", "t-0", "ä")
NUMBERS = (0, 1, 2, -1, 2**31 - 1)
OFFSETS = (0, 1, 7, -1, 2**63 - 1, -(2**63))
EPOCHS = (-1, 0, 3, -2, 2**31 - 1, -(2**31))
TIMES = (0, 1_711_530_458_631, -1, 2**63 - 1, -(2**63))


def text(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def value_of(position: Position, version: int) -> bytes:
    """An OffsetCommitValue."""
    offset, epoch, metadata, time = position
    parts = struct.pack(">hq", version, offset)
    if version >= 3:
        parts += struct.pack(">i", epoch)
    data = metadata.encode()
    if version < 4:
        return parts + text(data) + struct.pack(">q", time) + (bytes(8) if version == 1 else b"")
    size = len(data) + 1
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return parts + length + data + struct.pack(">qB", time, 0)


class Written:
    """A partition of __consumer_offsets as it is written, and what it says."""

    def __init__(self, case: Case, log: kstore.LogWriter) -> None:
        self.chance = case.chance
        self.log = log
        self.seeds = list(case.seeds)
        self.latest: dict[Key, tuple[int, Position | None]] = {}
        self.pending: dict[int, list[tuple[int, Key, Position | None]]] = {}
        self.sequences: dict[int, int] = {}
        self.is_nonsense = False  # a record is damaged: the whole must be refused

    def pair(self) -> tuple[bytes, bytes | None, Key | None, Position | None]:
        """A record, and what it says."""
        pick = self.chance.choice
        key = pick(GROUPS[:2] if self.chance.random() < 0.7 else GROUPS), pick(TOPICS), pick(NUMBERS)
        version = self.chance.randrange(5)
        epoch = pick(EPOCHS) if version >= 3 else -1
        position = pick(OFFSETS), epoch, pick(("", "words", "ü" * 80, "x" * 5000)), pick(TIMES)
        data = (
            struct.pack(">h", pick((0, 1)))
            + text(key[0].encode())
            + text(key[1].encode())
            + struct.pack(">i", key[2])
        )
        kind = self.chance.randrange(12)
        if kind == 0:
            return data, None, key, None
        if kind == 1:  # of the group itself, or of a version that is not known
            return struct.pack(">h", pick((2, 3, 77, -1))) + data[2:], pick((None, b"", b"x")), None, None
        return data, value_of(position, version), key, position

    def step(self) -> None:
        producer = self.chance.choice((-1, -1, 5, 6))
        if producer >= 0 and self.chance.random() < 0.4:
            self.end(producer)
            return
        pairs = [self.pair() for _ in range(self.chance.randint(1, 4))]
        base = self.log.log_end_offset
        records = [(1, key, value, None) for key, value, _, _ in pairs]
        told = [(base + i, key, position) for i, (_, _, key, position) in enumerate(pairs) if key is not None]
        if producer < 0:
            self.log.append_batches(kstore.encode_batch(records), origin="coordinator")
            self.take(told)
            return
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        self.log.append_batches(
            kstore.encode_batch(records, transactional=True, **fields),  # type: ignore[arg-type]
            origin="coordinator",
        )
        self.pending.setdefault(producer, []).extend(told)

    def end(self, producer: int) -> None:
        kind = self.chance.choice(("ABORT", "COMMIT"))
        self.log.append_batches(marker(kind, producer, 1), origin="coordinator", transaction_version=0)
        ended = self.pending.pop(producer, [])
        self.take(ended if kind == "COMMIT" else [])

    def take(self, told: list[tuple[int, Key, Position | None]]) -> None:
        for offset, key, position in told:
            if self.latest.get(key, (-1, None))[0] < offset:
                self.latest[key] = offset, position

    def add_nonsense(self) -> None:
        """A record that is changed by chance: it may still say something."""
        key, value, _, _ = self.pair()
        other = self.chance.choice(self.seeds)
        records = [(1, changed(key, self.chance, other), value and changed(value, self.chance, other), None)]
        self.log.append_batches(kstore.encode_batch(records), origin="coordinator")
        self.is_nonsense = True

    def says(self) -> dict[Key, Position]:
        return {key: position for key, (_, position) in self.latest.items() if position is not None}


def taken(found: dict[str, dict[kstore.TopicPartition, kstore.OffsetAndMetadata]]) -> dict[Key, Position]:
    return {
        (group, *tp): tuple(p)  # type: ignore[misc]
        for group, theirs in found.items()
        for tp, p in theirs.items()
    }


def exchange(case: Case, source: Path, expected: dict[Key, Position] | None) -> None:
    """Takes the positions over, and gives them back. `expected`: None if the source may be damaged."""
    here, back = case.scratch / "here", case.scratch / "back"
    for directory in (here, back):
        shutil.rmtree(directory, ignore_errors=True)
    with kstore.LogStore(here, mode="a", background=False) as store:
        store.create_topic("t", 3)
        store.create_topic("events", 1)
        try:
            done = store.import_cursors(source)
        except (kstore.KstoreError, OSError):
            assert expected is None
            return
        mine, left = taken(done.positions), set(done.left_out)
        assert not mine.keys() & left
        if expected is not None:
            assert mine.keys() | left == expected.keys()
            assert mine == {key: expected[key] for key in mine}
        assert taken(store.cursors()) == mine
        given = store.export_cursors(back, partitions=2)
        assert taken(given.positions) == mine
        assert not given.left_out
        if mine:
            assert taken(store.import_cursors(back, dry_run=True).positions) == mine
        for group, topic, number in mine:
            kstore.open(here / f"{topic}-{number}").cursor(group).close()


def written(case: Case) -> None:
    source = case.scratch / "__consumer_offsets-1"
    shutil.rmtree(source, ignore_errors=True)
    with kstore.open(source, "a", producer_id_expiration_ms=2**62, internal_segment_bytes=40_000) as log:
        made = Written(case, log)
        for _ in range(case.chance.randint(1, 30)):
            made.step()
        if case.chance.random() < 0.3:
            made.add_nonsense()
    exchange(case, source, None if made.is_nonsense else made.says())


def damaged(case: Case) -> None:
    """A real broker's, of which bytes are changed."""
    source = case.scratch / "__consumer_offsets-1"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(BROKER / "__consumer_offsets-0", source)
    for _ in range(case.chance.randint(1, 3)):
        path = case.chance.choice(sorted(source.iterdir()))
        path.write_bytes(changed(path.read_bytes(), case.chance, case.chance.choice(list(case.seeds))))
    exchange(case, source, None)


def try_one(case: Case) -> None:
    case.chance.choice((written, written, damaged))(case)


def contents() -> Iterator[bytes]:
    for batch in kstore.open(BROKER / "__consumer_offsets-0").batches():
        for record in batch.records():
            yield from (part for part in (record.key, record.value) if part)


if __name__ == "__main__":
    sys.exit(drive("positions", list(contents()), try_one, sys.argv[1:]))
