"""A store under random operations equals dicts and lists."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kstore import LogStore
from tests.helpers.effort import SEED, times
from tests.helpers.murmur2 import partition_of

SHM = Path("/dev/shm")
KEYS = st.one_of(st.none(), st.binary(max_size=3))
NAMES = st.sampled_from(["a", "b.c", "b-0", "__x"])


class Model:
    """A topic as it must be: its options, and each partition's log start offset and values."""

    def __init__(self, count: int, options: dict[str, object]) -> None:
        self.options = options
        self.values: list[list[bytes]] = [[] for _ in range(count)]
        self.starts = [0] * count


@seed(SEED)
class StoreMachine(RuleBasedStateMachine):
    """One or two directories, and few logs open at a time."""

    topics = Bundle("topics")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.model: dict[str, Model] = {}
        self.now = 10**12
        self.store: LogStore | None = None

    @initialize(dirs=st.integers(1, 2))
    def open(self, dirs: int) -> None:
        self.dirs = [self.root / str(i) for i in range(dirs)]
        self.reopen()

    def reopen(self) -> None:
        self.store = LogStore(
            *self.dirs,
            mode="a",
            max_open_partitions=2,
            clock=lambda: self.now,
            internal_segment_bytes=400,
            index_interval_bytes=50,
            retention_ms=-1,
        )

    @property
    def it(self) -> LogStore:
        assert self.store is not None
        return self.store

    @rule(target=topics, name=NAMES, count=st.integers(1, 4), size=st.sampled_from([None, 300, 1000]))
    def create(self, name: str, count: int, size: int | None) -> Any:
        if name in self.model:
            return multiple()
        options: dict[str, Any] = {} if size is None else {"retention_bytes": size}
        self.it.create_topic(name, count, **options)
        self.model[name] = Model(count, options)
        return name

    @rule(name=consumes(topics))
    def delete(self, name: str) -> None:
        if self.model.pop(name, None) is not None:
            self.it.delete_topic(name)

    @rule(name=topics, more=st.integers(1, 3))
    def add(self, name: str, more: int) -> None:
        if (topic := self.model.get(name)) is None:
            return
        self.it.add_partitions(name, len(topic.values) + more)
        topic.values += [[] for _ in range(more)]
        topic.starts += [0] * more

    @rule(name=topics, size=st.sampled_from([None, 300, 700]))
    def alter(self, name: str, size: int | None) -> None:
        if (topic := self.model.get(name)) is None:
            return
        self.it.alter_topic(name, retention_bytes=size)
        topic.options = {} if size is None else {"retention_bytes": size}

    @rule(name=topics, key=KEYS, value=st.binary(max_size=40))
    def append(self, name: str, key: bytes | None, value: bytes) -> None:
        if (topic := self.model.get(name)) is None:
            return
        number, offset = self.it.append(name, value, key)
        self.check_place(topic, number, key)
        assert offset == len(topic.values[number])
        topic.values[number].append(value)

    @rule(name=topics, records=st.lists(st.tuples(KEYS, st.binary(max_size=20)), min_size=1, max_size=30))
    def extend(self, name: str, records: list[tuple[bytes | None, bytes]]) -> None:
        if (topic := self.model.get(name)) is None:
            return
        placed = self.it.extend(name, [value for _, value in records], [key for key, _ in records])
        for key, value in records:
            if key is not None:
                topic.values[partition_of(key, len(topic.values))].append(value)
        # records without a key go to one partition, in order with those that have one
        if any(key is None for key, _ in records):
            (number,) = [n for n, offsets in placed.items() if len(topic.values[n]) < offsets.stop]
            del topic.values[number][placed[number].start :]
            for key, value in records:
                if key is None or partition_of(key, len(topic.values)) == number:
                    topic.values[number].append(value)
        for number, offsets in placed.items():
            assert offsets.stop == len(topic.values[number])

    def check_place(self, topic: Model, number: int, key: bytes | None) -> None:
        if key is not None:
            assert number == partition_of(key, len(topic.values))

    @rule(by=st.integers(-10_000, 100_000))
    def retain(self, by: int) -> None:
        self.now += by
        decisions = self.it.retain()
        for tp, each in decisions.items():
            gone = [d for d in each if d.delete]
            topic = self.model[tp.topic]
            assert not gone or topic.options
            log = self.it.log(*tp)
            assert log.log_start_offset >= topic.starts[tp.partition]
            topic.starts[tp.partition] = log.log_start_offset

    @rule()
    def flush(self) -> None:
        self.it.flush()

    @rule()
    def close_and_open(self) -> None:
        self.it.close()
        reader = LogStore(*self.dirs)
        assert reader.closed_cleanly
        assert reader.others == []
        self.reopen()
        assert self.it.health().ok

    @rule()
    def crash(self) -> None:
        """The process dies; what the system had is there."""
        self.it.abandon()
        self.reopen()
        assert self.it.health().ok

    @invariant()
    def equals_the_model(self) -> None:
        if self.store is None:
            return
        assert self.it.topics == {name: list(range(len(t.values))) for name, t in sorted(self.model.items())}
        for name, topic in self.model.items():
            assert self.it.describe(name).options == topic.options
            found: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(len(topic.values))}
            for batch in self.it.scan(name, ["partition", "offset", "value"]):
                for number, offset, value in batch.rows():
                    found[number].append((offset, value))
            for number, values in enumerate(topic.values):
                assert found[number] == list(enumerate(values))[topic.starts[number] :]

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
            assert LogStore(*self.dirs).closed_cleanly
        shutil.rmtree(self.root)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=times(12), stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
