"""A workload of a store: topics are created, changed and deleted, records appended, positions committed.

`record` records one; `complaints` says what is wrong with what a power cut left of it.
"""

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import kstore
from kstore.testing import Recorder, Trace

GROUP = "mailer"
NAMES = ("a", "b.c", "t-0")
SIZES = (None, 100_000, 200_000)  # retention.bytes: larger than anything here
STEPS = {
    "create": 5,
    "delete": 2,
    "add": 2,
    "alter": 3,
    "append": 5,
    "flush": 1,
    "commit": 4,
    "retain": 1,
    "reopen": 1,
}


@dataclass(frozen=True)
class Topic:
    """A topic as it was created: another one of that name has another `birth`."""

    birth: int
    count: int
    size: int | None = None

    @property
    def options(self) -> dict[str, object]:
        """As the store reports them."""
        return {} if self.size is None else {"retention_bytes": self.size}


Topics = dict[str, Topic]
Partition = tuple[int, int]  # birth of the topic, number
Shape = dict[str, tuple[list[int], dict[str, object]]]  # partitions and options, by topic


@dataclass(frozen=True)
class Expected:
    """What must hold after a power cut at one moment. `topics`: one of these. `written`: how many records the
    append of which has begun, `durable`: how many of them must be there. `committed`: one of these, None for
    no position."""

    doing: str = "nothing"
    topics: tuple[Topics, ...] = ({},)
    written: dict[Partition, int] = field(default_factory=dict)
    durable: dict[Partition, int] = field(default_factory=dict)
    committed: dict[Partition, tuple[int | None, ...]] = field(default_factory=dict)


def value_of(partition: Partition, number: int) -> bytes:
    return b"%d.%d.%d" % (*partition, number) + b"." * 60


class StoreWorkload:
    """Runs in `root`, and marks what is expected before and after each operation."""

    store: kstore.LogStore

    def __init__(self, root: Path, recorder: Recorder, rng: random.Random) -> None:
        self.root = root
        self.recorder = recorder
        self.rng = rng
        self.durability = rng.choice(("none", "group", "each"))
        self.births = 0
        self.now = Expected()

    @property
    def topics(self) -> Topics:
        return self.now.topics[-1]

    def mark(self, **changes: object) -> None:
        self.now = replace(self.now, **changes)  # type: ignore[arg-type]
        self.recorder.mark(self.now)

    def change(self, doing: str, after: Topics, act: Callable[[], object]) -> None:
        """A change of topics: until it returns, either table may be there."""
        self.mark(doing=doing, topics=(self.topics, after))
        act()
        self.mark(doing=f"after {doing}", topics=(after,))

    def some_topic(self) -> str | None:
        return self.rng.choice(sorted(self.topics)) if self.topics else None

    def some_partition(self) -> tuple[str, int, Partition] | None:
        name = self.some_topic()
        if name is None:
            return None
        topic = self.topics[name]
        number = self.rng.randrange(topic.count)
        return name, number, (topic.birth, number)

    def all_durable(self) -> dict[Partition, int]:
        partitions = [(t.birth, number) for t in self.topics.values() for number in range(t.count)]
        return self.now.durable | {each: self.now.written.get(each, 0) for each in partitions}

    # ---- operations ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """Some operation."""
        getattr(self, self.rng.choices(list(STEPS), list(STEPS.values()))[0])()

    def open(self) -> None:
        self.mark(doing="open")
        self.store = opened(self.root, self.durability)
        self.mark(doing="after open")

    def close(self) -> None:
        self.mark(doing="close")
        self.store.close()
        self.mark(doing="after close", durable=self.all_durable())

    def reopen(self) -> None:
        self.close()
        self.open()

    def create(self) -> None:
        name = self.rng.choice(NAMES)
        if name in self.topics:
            return self.delete()
        self.births += 1
        topic = Topic(self.births, self.rng.randrange(1, 4), self.rng.choice(SIZES))
        self.change(
            f"create {name} {topic}",
            self.topics | {name: topic},
            lambda: self.store.create_topic(name, topic.count, **topic.options),
        )

    def delete(self) -> None:
        name = self.some_topic()
        if name is not None:
            after = {each: topic for each, topic in self.topics.items() if each != name}
            self.change(f"delete {name}", after, lambda: self.store.delete_topic(name))

    def add(self) -> None:
        name = self.some_topic()
        if name is not None:
            topic = replace(self.topics[name], count=self.topics[name].count + 1)
            after = self.topics | {name: topic}
            self.change(f"add to {name}", after, lambda: self.store.add_partitions(name, topic.count))

    def alter(self) -> None:
        name = self.some_topic()
        if name is not None:
            size = self.rng.choice(SIZES)
            after = self.topics | {name: replace(self.topics[name], size=size)}
            self.change(f"alter {name}", after, lambda: self.store.alter_topic(name, retention_bytes=size))

    def append(self) -> None:
        found = self.some_partition()
        if found is None:
            return self.create()
        name, number, partition = found
        log = self.store.log(name, number)
        first, count = self.now.written.get(partition, 0), self.rng.randrange(1, 6)
        written = self.now.written | {partition: first + count}
        self.mark(doing=f"append {count} to {name}-{number}", written=written)
        log.extend([value_of(partition, first + i) for i in range(count)])
        if self.durability != "none":
            self.mark(durable=self.now.durable | {partition: first + count})

    def flush(self) -> None:
        self.mark(doing="flush")
        self.store.flush()
        self.mark(doing="after flush", durable=self.all_durable())

    def commit(self) -> None:
        found = self.some_partition()
        if found is None:
            return self.create()
        name, number, partition = found
        log = self.store.log(name, number)
        if log.log_end_offset == 0:
            return
        offset = self.rng.randint(1, log.log_end_offset)
        committed = self.now.committed
        before = committed.get(partition, (None,))[-1]
        doing = f"commit {offset} of {name}-{number}"
        self.mark(doing=doing, committed=committed | {partition: (before, offset)})
        with log.cursor(GROUP) as cursor:
            cursor.seek(offset)  # a commit alone does not move a position backwards
            cursor.commit(offset)
        self.mark(doing=f"after {doing}", committed=committed | {partition: (offset,)})

    def retain(self) -> None:
        """No record is old, but directories of deleted topics are removed."""
        self.mark(doing="retain")
        self.store.retain()


def opened(root: Path, durability: str = "none") -> kstore.LogStore:
    """Two log directories, as one store."""
    return kstore.LogStore(
        root / "one",
        root / "two",
        mode="a",
        background=False,
        durability=durability,
        internal_segment_bytes=600,
        segment_index_bytes=256,
        file_delete_delay_ms=0,
        retention_ms=-1,
    )


def record(root: Path, seed: str, calls: int) -> Trace:
    """The record of a workload of so many calls at least."""
    with Recorder(root) as recorder:
        workload = StoreWorkload(root, recorder, random.Random(seed))
        workload.mark()
        workload.open()
        while len(recorder.trace.calls) < calls:
            workload.step()
        workload.close()
    return recorder.trace


# ---- what a power cut may have left ------------------------------------------------------------------------


def complaints(root: Path, expected: Expected) -> list[str]:
    """What is wrong with the store in `root`."""
    wrong: list[str] = []
    allowed = [_shape(topics) for topics in expected.topics]
    directories = [path for path in (root / "one", root / "two") if path.is_dir()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)  # the records are compared
        try:
            if directories:
                reader = kstore.LogStore(*directories)
                found = _read(reader, reader.open, expected, wrong)
                if not any(found.items() <= shape.items() for shape in allowed):
                    wrong.append(f"a reader sees the topics {found}")
            with opened(root) as store:
                found = _read(store, store.log, expected, wrong)
                if found not in allowed:
                    wrong.append(f"the topics are {found}")
                if not store.health().ok:
                    wrong.append(f"not healthy: {store.health()}")
                store.create_topic("goes.on", 2)
                for name, (numbers, _) in found.items():
                    for number in numbers:
                        store.log(name, number).append(b"more")
            again = kstore.LogStore(root / "one", root / "two")
            if not again.closed_cleanly or again.others:
                wrong.append(f"closed, and not clean, or {again.others} are left")
            topics = {name: numbers for name, (numbers, _) in found.items()}
            if again.topics != {"goes.on": [0, 1], **topics}:
                wrong.append(f"opened again, the topics are {again.topics}")
        except (kstore.KstoreError, OSError, ValueError, LookupError, Warning) as e:
            wrong.append(f"{type(e).__name__}: {e}")
    return wrong


def _shape(topics: Topics) -> Shape:
    return {name: (list(range(topic.count)), topic.options) for name, topic in topics.items()}


def _read(
    store: kstore.LogStore,
    open_log: Callable[[str, int], kstore.PartitionLog],
    expected: Expected,
    wrong: list[str],
) -> Shape:
    """The topics that the store shows; what its partitions hold is compared."""
    shown: Shape = {}
    for name, numbers in store.topics.items():
        shown[name] = (numbers, dict(store.describe(name).options))
        births = {topics[name].birth for topics in expected.topics if name in topics}
        for number in numbers:
            log = open_log(name, number)
            values = [record.value for record in log]
            position = log.cursors().get(GROUP)
            offset = position.offset if position else None
            for partition in [(birth, number) for birth in births]:
                written, least = expected.written.get(partition, 0), expected.durable.get(partition, 0)
                if values != [value_of(partition, i) for i in range(len(values))] or len(values) > written:
                    wrong.append(f"{name}-{number} shows {values}, of {partition} {written} were appended")
                if len(values) < least:
                    wrong.append(f"{name}-{number} has {len(values)} records, {least} are durable")
                if offset not in expected.committed.get(partition, (None,)):
                    wrong.append(f"committed of {name}-{number} is {offset}")
    return shown
