"""The life of a store: topics are made, changed and deleted, records appended, positions committed; with what each promises."""

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kstore
from kstore.testing.recorder import Recorder, Trace

GROUP = "mailer"
NAMES = ("a", "b.c", "t-0")
SIZES = (None, 100_000, 200_000)  # retention.bytes: larger than anything here


@dataclass(frozen=True)
class Topic:
    """A topic as it is made: another one of that name has another `birth`."""

    birth: int
    count: int
    size: int | None = None

    @property
    def options(self) -> dict[str, object]:
        """As the store tells them."""
        return {} if self.size is None else {"retention_bytes": self.size}


Topics = dict[str, Topic]
Place = tuple[int, int]  # birth of the topic, number of the partition


@dataclass(frozen=True)
class StorePromise:
    """What holds after a power cut at one moment."""

    doing: str = "nothing"
    topics: tuple[Topics, ...] = ({},)  # one of these
    written: dict[Place, int] = field(default_factory=dict)  # how many records were appended, or begun to be
    durable: dict[Place, int] = field(default_factory=dict)  # how many of them are there
    committed: dict[Place, tuple[int | None, ...]] = field(
        default_factory=dict
    )  # one of these; None: nothing

    def __str__(self) -> str:
        return f"while {self.doing}: {self.topics}, durable {self.durable}, committed {self.committed}"


def value_of(place: Place, number: int) -> bytes:
    return b"%d.%d.%d" % (*place, number) + b"." * 60


class StoreLife:
    """Lives in `root`, recorded."""

    def __init__(self, root: Path, recorder: Recorder, rng: random.Random, durability: str) -> None:
        self.root = root
        self.recorder = recorder
        self.rng = rng
        self.durability = durability
        self.births = 0
        self.now = StorePromise()
        self.store: Any = None

    # ---- what is known ------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Topics:
        return self.now.topics[-1]

    def mark(self, **changes: object) -> None:
        self.now = replace(self.now, **changes)  # type: ignore[arg-type]
        self.recorder.mark(self.now)

    def change(self, doing: str, after: Topics, act: Callable[[], object]) -> None:
        """A change of topics: before and after it, one table; meanwhile, either."""
        self.mark(doing=doing, topics=(self.topics, after))
        act()
        self.mark(doing=f"after {doing}", topics=(after,))

    def partition(self) -> tuple[str, int, Place] | None:
        """Any."""
        if not self.topics:
            return None
        name = self.rng.choice(sorted(self.topics))
        topic = self.topics[name]
        number = self.rng.randrange(topic.count)
        return name, number, (topic.birth, number)

    # ---- what is done -------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.mark(doing="open")
        self.store = opened(self.root, self.durability)
        self.mark(doing="after open")

    def all_durable(self) -> dict[Place, int]:
        places = [(t.birth, number) for t in self.topics.values() for number in range(t.count)]
        return self.now.durable | {place: self.now.written.get(place, 0) for place in places}

    def close(self) -> None:
        self.mark(doing="close")
        self.store.close()
        self.mark(doing="after close", durable=self.all_durable())

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
        if self.topics:
            name = self.rng.choice(sorted(self.topics))
            after = {each: topic for each, topic in self.topics.items() if each != name}
            self.change(f"delete {name}", after, lambda: self.store.delete_topic(name))

    def add(self) -> None:
        if self.topics:
            name = self.rng.choice(sorted(self.topics))
            topic = replace(self.topics[name], count=self.topics[name].count + 1)
            self.change(
                f"add to {name}",
                self.topics | {name: topic},
                lambda: self.store.add_partitions(name, topic.count),
            )

    def alter(self) -> None:
        if self.topics:
            name = self.rng.choice(sorted(self.topics))
            topic = replace(self.topics[name], size=self.rng.choice(SIZES))
            self.change(
                f"alter {name}",
                self.topics | {name: topic},
                lambda: self.store.alter_topic(name, retention_bytes=topic.size),
            )

    def append(self) -> None:
        found = self.partition()
        if found is None:
            return self.create()
        name, number, place = found
        log = self.store.log(name, number)
        first, count = self.now.written.get(place, 0), self.rng.randrange(1, 6)
        self.mark(
            doing=f"append {count} to {name}-{number}", written=self.now.written | {place: first + count}
        )
        log.extend([value_of(place, first + i) for i in range(count)])
        if self.durability != "none":
            self.mark(durable=self.now.durable | {place: first + count})

    def flush(self) -> None:
        self.mark(doing="flush")
        self.store.flush()
        self.mark(doing="after flush", durable=self.all_durable())

    def commit(self) -> None:
        found = self.partition()
        if found is None:
            return self.create()
        name, number, place = found
        log = self.store.log(name, number)
        if log.log_end_offset == 0:
            return
        offset = self.rng.randint(1, log.log_end_offset)
        now = self.now.committed.get(place, (None,))[-1]
        committed = self.now.committed
        self.mark(doing=f"commit {offset} of {name}-{number}", committed=committed | {place: (now, offset)})
        with log.cursor(GROUP) as cursor:
            cursor.seek(offset)  # a commit alone does not go back
            cursor.commit(offset - 1)  # the last record that is done
        self.mark(doing=f"after {self.now.doing}", committed=committed | {place: (offset,)})

    def retain(self) -> None:
        """Nothing is old, but directories of deleted topics go."""
        self.mark(doing="retain")
        self.store.retain()

    def reopen(self) -> None:
        self.close()
        self.open()

    def step(self) -> None:
        names = list(STEPS)
        getattr(self, self.rng.choices(names, [STEPS[name] for name in names])[0])()


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


def opened(root: Path, durability: str = "none") -> Any:
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


def live(root: Path, seed: str, calls: int) -> Trace:
    """A life of so many calls; its record."""
    rng = random.Random(seed)
    with Recorder(root) as recorder:
        life = StoreLife(root, recorder, rng, rng.choice(("none", "group", "each")))
        life.mark()
        life.open()
        while len(recorder.trace.calls) < calls:
            life.step()
        life.close()
    return recorder.trace


# ---- what a power cut may have left ---------------------------------------------------------------------------------


def complaints(root: Path, promise: StorePromise) -> list[str]:
    """What is wrong with the store in `root`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)  # the losses are looked at
        return _complaints(root, promise)


def _complaints(root: Path, promise: StorePromise) -> list[str]:
    wrong: list[str] = []
    try:
        found = _read(kstore.LogStore(*_directories(root)), promise, wrong) if _directories(root) else {}
        if not any(found.items() <= _shape(topics).items() for topics in promise.topics):
            wrong.append(f"a reader sees the topics {found}")
        with opened(root) as store:
            found = _read(store, promise, wrong)
            if found not in [_shape(topics) for topics in promise.topics]:
                wrong.append(f"the topics are {found}")
            if not store.health().ok:
                wrong.append(f"not healthy: {store.health()}")
            store.create_topic("goes.on", 2)
            for name, (numbers, _) in found.items():
                for number in numbers:
                    store.log(name, number).append(b"more")
        again = kstore.LogStore(*_directories(root))
        if not again.closed_cleanly or again.others:
            wrong.append(f"closed, and not clean, or {again.others} are left")
        if again.topics != {"goes.on": [0, 1], **{name: numbers for name, (numbers, _) in found.items()}}:
            wrong.append(f"opened again, the topics are {again.topics}")
    except (kstore.KstoreError, OSError, ValueError, LookupError, Warning) as e:
        wrong.append(f"{type(e).__name__}: {e}")
    return wrong


def _directories(root: Path) -> list[Path]:
    return [path for path in (root / "one", root / "two") if path.is_dir()]


def _shape(topics: Topics) -> dict[str, tuple[list[int], dict[str, object]]]:
    return {name: (list(range(topic.count)), topic.options) for name, topic in topics.items()}


def _read(
    store: Any, promise: StorePromise, wrong: list[str]
) -> dict[str, tuple[list[int], dict[str, object]]]:
    """The topics that it shows; what its partitions hold is compared."""
    shown = {}
    for name, numbers in store.topics.items():
        shown[name] = (numbers, dict(store.describe(name).options))
        births = {topics[name].birth for topics in promise.topics if name in topics}
        for number in numbers:
            log = store.log(name, number) if store._is_writing else store.open(name, number)
            values = [record.value for record in log]
            for place in [(birth, number) for birth in births]:
                written, least = promise.written.get(place, 0), promise.durable.get(place, 0)
                if values != [value_of(place, i) for i in range(len(values))] or len(values) > written:
                    wrong.append(f"{name}-{number} shows {values}, of {place} {written} were written")
                if len(values) < least:
                    wrong.append(f"{name}-{number} has {len(values)} records, {least} are durable")
                position = log.cursors().get(GROUP)
                offset = position.offset if position else None
                if offset not in promise.committed.get(place, (None,)):
                    wrong.append(f"committed of {name}-{number} is {offset}")
    return shown
