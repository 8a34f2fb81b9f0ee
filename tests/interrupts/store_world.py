"""A store in the hands of a test: which topics it may have, what was acknowledged, and what must hold of it."""

import contextlib
import gc
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.children import in_another_process
from tests.interrupts.world import (
    Broken,
    close_twice,
    count_descriptors,
    free_locks_of_python,
    require,
    require_descriptors,
    require_no_threads,
)

GROUP = "g"
Place = tuple[str, int]  # topic and partition
Topics = dict[str, int]  # how many partitions
OPTIONS = {
    "durability": "each",
    "internal_segment_bytes": 1000,
    "segment_index_bytes": 128,
    "index_interval_bytes": 100,
    "file_delete_delay_ms": 0,
    "retention_ms": -1,
}


class StoreWorld:
    """A store of two log directories, with what its user knows of it.

    `shapes`: the topics that it may have. `acked`: values whose append has returned, by partition and offset. `tried`:
    values whose append has not returned. `starts`: where a partition may begin. `committed`: what the group may have
    committed, None for nothing.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.root = directory
        self.directories = (directory / "one", directory / "two")
        self.options: dict[str, Any] = dict(OPTIONS)
        self.background = False
        self.store: Any = None
        self.shapes: list[Topics] = [{}]
        self.acked: dict[Place, dict[int, bytes]] = {}
        self.tried: dict[Place, list[bytes]] = {}
        self.starts: dict[Place, set[int]] = {}
        self.committed: dict[Place, set[int | None]] = {}
        self.settings: dict[str, set[int | None]] = {}  # the values that a topic's retention_bytes may have
        self.number = 0
        self.held: list[Any] = []
        self.ends_log = False
        self.complaints: list[str] = []
        self.descriptors = count_descriptors()
        self.may_lose_threads = False

    # ---- what is done with it ---------------------------------------------------------------------------------

    def open(self) -> Any:
        self.store = kstore.LogStore(*self.directories, mode="a", background=self.background, **self.options)
        return self.store

    def values(self, count: int) -> list[bytes]:
        """Values that were never used before."""
        self.number += count
        return [b"%05d" % i + b"." * 200 for i in range(self.number - count, self.number)]

    def ack(self, first: tuple[Place, int], values: Iterable[bytes]) -> None:
        """Their append has returned."""
        place, offset = first
        acked, tried = self.acked.setdefault(place, {}), self.tried.get(place, [])
        for i, value in enumerate(values):
            require(offset + i not in acked, f"offset {offset + i} of {place} was given out twice")
            acked[offset + i] = value
            if value in tried:
                tried.remove(value)

    def changes(self, after: Topics) -> None:
        """A change of topics begins: before or after it."""
        self.shapes = [*self.shapes, after]

    def changed(self) -> None:
        """It has returned."""
        self.shapes = self.shapes[-1:]

    # ---- what must hold ---------------------------------------------------------------------------------------

    def look(
        self, store: Any, what: str, *, whole: bool = True, may_refuse: bool = False
    ) -> dict[Place, list[tuple[int, bytes]]]:
        """Everything in the store; Broken where that is not what may be there. `whole`: nothing is half done. `may_refuse`:
        partitions may be out of use."""
        shape = {name: len(numbers) for name, numbers in store.topics.items()}
        fits = shape in self.shapes if whole else any(shape.items() <= each.items() for each in self.shapes)
        require(fits, f"{what}: the topics are {shape}, not one of {self.shapes}")
        there = {}
        for name, count in shape.items():
            require(
                store.topics[name] == list(range(count)), f"{what}: the partitions are {store.topics[name]}"
            )
            if name in self.settings:
                found = store.describe(name).options.get("retention_bytes")
                require(found in self.settings[name], f"{what}: {name} has retention_bytes {found}")
            for number in range(count):
                try:
                    there[name, number] = self._look_at((name, number), store, what)
                except (kstore.KstoreError, OSError) as e:
                    require(may_refuse and str(e), f"{what}: {name}-{number}: {type(e).__name__}: {e}")
        return there

    def _look_at(self, place: Place, store: Any, what: str) -> list[tuple[int, bytes]]:
        log = store.log(*place)
        acked, tried = self.acked.get(place, {}), self.tried.get(place, [])
        records = [(record.offset, bytes(record.value)) for record in log]
        say = f"{what}: {place} has {[o for o, _ in records]} from {log.log_start_offset}"
        starts = self.starts.get(place, {0})
        require(log.log_start_offset in starts, f"{say}, not from one of {starts}")
        there = dict(records)
        gone = [o for o in acked if o not in there and o >= log.log_start_offset]
        require(not gone, f"{say}: acknowledged, and gone: {gone}")
        other = [o for o, value in records if acked.get(o, value) != value]
        require(not other, f"{say}: other values at {other}")
        new = [value for o, value in records if o not in acked]
        require(new == tried[: len(new)], f"{say}: nobody appended {[value[:5] for value in new]}")
        found = log.cursors().get(GROUP)
        offset = None if found is None else found.offset
        allowed = self.committed.get(place, {None})
        require(offset in allowed, f"{what}: committed of {place} is {offset}, not one of {allowed}")
        return records

    # ---- afterwards -------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Appends, reads, closes, opens again, and looks each time: after an interruption everything must be sound."""
        free_locks_of_python()
        if self.store is not None:
            if not self.store.is_closed:
                self.look(self.store, "after the interruption", whole=False, may_refuse=True)
            else:
                require(self.ends_log, "the store says that it is closed")
            self._try_to_append()
            close_twice(self.store)
            self.store = None
        self.held.clear()
        require_no_threads(self.may_lose_threads)
        if any(path.is_dir() for path in self.directories):
            self.look(self._read(), "opened for reading", whole=False)
        self._open_again()

    def _read(self) -> Any:
        return kstore.LogStore(*[path for path in self.directories if path.is_dir()])

    def _try_to_append(self) -> None:
        """To each topic that may be there; where it is refused, there must be a reason."""
        for topic in sorted({name for shape in self.shapes for name in shape}):
            value, key = self.values(1)[0], b"%d" % self.number
            try:
                partition, offset = self.store.append(topic, value, key)
            except (kstore.KstoreError, OSError) as e:
                require(str(e), f"{type(e).__name__} without a word")
                continue
            place = (topic, partition)
            self.tried.pop(place, None)  # what the log has of it now, it keeps
            self.acked.setdefault(place, {})
            records = {record.offset: bytes(record.value) for record in self.store.log(*place)}
            require(records.get(offset) == value, f"what was appended at {offset} of {place} is not there")
            start = self.store.log(*place).log_start_offset
            kept = {o: v for o, v in self.acked[place].items() if o >= start}
            require(kept.items() <= records.items(), f"{place} has lost what was acknowledged")
            self.acked[place] = records
            self.shapes = [shape for shape in self.shapes if shape.get(topic, 0) > partition]

    def _open_again(self) -> None:
        try:
            store = self.open()
        except kstore.LogLockedError as e:
            gc.collect()
            raise Broken(f"the lock was not given up: {e}") from e
        there = self.look(store, "opened for writing")
        require(store.health().ok, f"not healthy: {store.health()}")
        for place, records in there.items():
            value = self.values(1)[0]
            offset = store.log(*place).append(value)
            self.acked[place] = {**dict(records), offset: value}
            self.starts[place] = {store.log(*place).log_start_offset}
        self.shapes, self.tried = [{name: len(numbers) for name, numbers in store.topics.items()}], {}
        store.flush()
        there = self.look(store, "after more appends")
        store.close()
        self.store = store = None
        gc.collect()
        require_descriptors(self.descriptors)
        self._open_elsewhere(there)

    def _open_elsewhere(self, expected: object) -> None:
        in_another_process(partial(self.open_as_another, expected))

    def open_as_another(self, expected: object) -> None:
        """Another process opens it for writing."""
        read = self._read()
        require(read.closed_cleanly, "closed, and not clean")
        require(not read.others, f"{read.others} are left")
        with contextlib.closing(self.open()) as store:
            require(self.look(store, "in another process") == expected, "it reads another store")
            store.create_topic("another", 1)
            store.append("another", b"the end")

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs of it."""
        return self.__dict__ | {"store": None, "held": []}
