"""A topic as a table: the last value of every key. Its offset is in a .keys file, or in memory; values stay
in the logs."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, ValuesView

from kstore.engine.io.synchronization import Mutex
from kstore.errors import LogChangedError, OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.position import Position, are_of_one_topic, diverged_at, position_in
from kstore.log.partition import PartitionLog
from kstore.log.read.key_index import index_of
from kstore.store.topic_catalog import Current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from kstore.engine.record.batch import Record
    from kstore.log.files.layout import TopicPartition
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.topic import Topic

    _T = TypeVar("_T")

_TURNS = 5  # attempts to read a log that is changed meanwhile


class _Part:
    """The keys of one partition."""

    def __init__(self) -> None:
        self.reader: PartitionLog | None = None  # of a store that only reads
        self._looked: tuple[object, ...] = ()  # which segments were looked at for their files of keys
        self._has_files = False
        self.forget()

    def forget(self) -> None:
        """Nothing is known."""
        self.offsets: dict[bytes, int] = {}  # of the last record of each key; ~offset if that has no value
        self._start = 0  # of the log that was read
        self._position = Position(0, -1, 0)
        self._origin: object = None  # of the segments that were read first

    def catch_up(self, log: PartitionLog) -> None:
        """Takes in what was committed since. An interrupt loses nothing: those records are read again.
        LogChangedError."""
        view = log.view()
        now = view.snapshot
        if diverged_at(now, self._position, "read_committed") >= 0:
            self.forget()
        if not self._position.offset:
            self._origin = now.origin
        start, end = now.log_start_offset, view.last_stable_offset()
        if end > self._position.offset:
            self._take(view, end)
            self._position = position_in(now, end)
        if start > self._start:
            self.offsets = {
                key: offset for key, offset in self.offsets.items() if max(offset, ~offset) >= start
            }
            self._start = start

    def _take(self, log: PartitionLog, end: int) -> None:
        for batch in log.scan(
            ["offset", "key", "value"], start=self._position.offset, stop=end, isolation="read_committed"
        ):
            keys, offsets = batch.column("key").to_list(), batch.column("offset").values.tolist()
            valued = batch.column("value").validity
            if valued is not None:
                offsets = [at if has else ~at for at, has in zip(offsets, valued.tolist(), strict=True)]
            self.offsets.update(zip(keys, offsets, strict=True))
        self.offsets.pop(None, None)  # type: ignore[call-overload]  # of records without a key

    def _is_indexed(self, log: PartitionLog) -> bool:
        """Whether its sealed segments have .keys files. The newest may still lack it."""
        now = log.snapshot
        sealed = now.segments[:-1]
        if not sealed:
            return False
        looked = (now.origin, sealed[0].base_offset, sealed[-1].base_offset)
        if looked != self._looked:
            lacking = [segment for segment in sealed if not index_of(segment).has_file(segment)]
            self._has_files = len(lacking) < len(sealed) and all(each is sealed[-1] for each in lacking)
            self._looked = looked
        return self._has_files

    def keys(self, log: PartitionLog) -> dict[bytes, int]:
        """The offsets of all keys. LogChangedError if segments were replaced since they were read: an erasure
        may have taken the last record of any key, and cannot be told from a compaction."""
        self.catch_up(log)
        if log.snapshot.origin is not self._origin:
            raise LogChangedError(log.path, -1, -1, -1, "segments were replaced")
        return self.offsets

    @staticmethod
    def keys_at_once(log: PartitionLog) -> dict[bytes, int]:
        """The offsets of all keys of a log whose segments are replaced all the time, from one view.
        LogChangedError."""
        origin, end = None, 0
        # As long as segments are replaced in between: records below the end may have gone for some above it.
        while origin is not (now := log.snapshot).origin:
            origin, end = now.origin, log.last_stable_offset()
        part = _Part()
        if end:
            part._take(log.view(now), end)
        return part.offsets

    def record(self, log: PartitionLog, key: bytes) -> Record | None:
        """The last record of a key. LogChangedError if it is another one now."""
        if not self._position.offset and self._is_indexed(log):
            return log.last(key, isolation="read_committed")
        origin = log.snapshot.origin
        self.catch_up(log)
        offset = self.offsets.get(key)
        if offset is None:
            # Its record may have gone for the sake of one above the end that was seen.
            if log.snapshot.origin is not origin:
                raise LogChangedError(log.path, -1, -1, -1, "segments were replaced")
            return None
        record = log.get(max(offset, ~offset))
        if record.key != key or (record.value is None) != (offset < 0):
            raise LogChangedError(log.path, record.offset, -1, -1, "batches were replaced")
        return record


class Table(Mapping[bytes, bytes]):
    """A topic as a read-only mapping from each key to its last value. store.table() creates one.

    It follows its topic: each call includes what was committed before. A key whose last record has no value
    was deleted, and is not in the mapping. Keys and values are bytes; `record` returns the whole record.
    Threads may share it.

    If the sealed segments of a partition have .keys files, which the option key_files makes, a lookup reads
    those. Otherwise the first lookup reads all keys, and the table has them in memory. Iterating and len()
    always need all keys, and read them again after a compaction. `dict(table.items())` works while others
    write; `dict(table)` raises KeyError if a key is deleted meanwhile. If a key is in several partitions, its
    value is that in the partition which `append` selects now.
    """

    def __init__(self, logs: OpenPartitions, topic: str) -> None:
        self._logs = logs
        self._current = Current(logs.catalog)
        self._topic = topic
        self._parts: dict[int, _Part] = {}
        self._topic_id = ""  # of the topic whose keys the parts have
        self._guard = Mutex()
        self._topic_now()

    def record(self, key: bytes) -> Record | None:
        """Return the last record of a key, with its offset, timestamp and headers; None if there is none, or
        the key was deleted.

        TypeError if `key` is not bytes. LogNotFoundError if the topic was deleted, LogClosedError if the
        store is closed, CorruptRecordError if a log is damaged, OSError.
        """
        if not isinstance(key, bytes):
            raise TypeError(f"key is bytes, not {key!r}")
        with self._guard:
            found = self._topic_now()
            own = found.partition_for(key, None).partition
            for number in (own, *(each for each in found.numbers if each != own)):
                record = self._record_of(found, number, key)
                if record is not None and record.value is not None:
                    return record
                # deleted; in another partition that says nothing of the rest
                if record is not None and number == own:
                    return None
        return None

    def _retried(self, found: Topic, number: int, look: Callable[[PartitionLog, _Part], _T]) -> _T:
        """What `look` finds in a partition; tried again if its log is compacted, cut off or deleted from
        meanwhile."""
        for turn in range(_TURNS):
            part = self._parts.setdefault(number, _Part())
            try:
                log = self._log(found.partition(number), part)
                return look(log, part)
            except OffsetOutOfRangeError:
                part.forget()
                if turn == _TURNS - 1:
                    raise
        raise AssertionError

    def _log(self, tp: TopicPartition, part: _Part) -> PartitionLog:
        catalog = self._current.known
        if catalog.is_writing:
            return self._logs.get(tp)
        path = catalog.partitions[tp].path_of(tp)
        if part.reader is None or part.reader.path != path:
            part.forget()
            part.reader = catalog.partitions[tp].open_to_read(tp)
            part.reader.traffic = self._logs.traffic_of(self._topic)
        part.reader.refresh()
        return part.reader

    def _topic_now(self) -> Topic:
        self._logs.check_open()
        catalog = self._current.catalog()
        found = catalog.topic(self._topic)
        catalog.require_all(found, "read as a table")
        topic_id = self._current.topic_id(self._topic)
        if not are_of_one_topic(self._topic_id, topic_id):
            self._parts = {}
        self._topic_id = topic_id or self._topic_id
        return found

    def _keys(self) -> set[bytes]:
        with self._guard:
            found = self._topic_now()
            known = {number: self._keys_of(found, number) for number in found.numbers}
            live: set[bytes] = set()
            deleted: set[bytes] = set()
            for offsets in known.values():
                live.update(key for key, offset in offsets.items() if offset >= 0)
                deleted.update(key for key, offset in offsets.items() if offset < 0)
            for key in live & deleted:  # it is in several partitions
                if known[found.partition_for(key, None).partition].get(key, 0) < 0:
                    live.discard(key)
            return live

    def _record_of(self, found: Topic, number: int, key: bytes) -> Record | None:
        try:
            return self._retried(found, number, lambda log, part: part.record(log, key))
        except LogChangedError:  # it is compacted all the time
            return self._retried(found, number, lambda log, _: log.last(key, isolation="read_committed"))

    def _keys_of(self, found: Topic, number: int) -> dict[bytes, int]:
        try:
            return self._retried(found, number, lambda log, part: part.keys(log))
        except LogChangedError:
            return self._retried(found, number, lambda log, _: _Part.keys_at_once(log))

    def __getitem__(self, key: bytes) -> bytes:
        record = self.record(key)
        if record is None or record.value is None:
            raise KeyError(key)
        return record.value

    def __contains__(self, key: object) -> bool:
        return self.record(key) is not None  # type: ignore[arg-type]  # it checks it

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def items(self) -> ItemsView[bytes, bytes]:
        """The keys and their values, as they are when each is given."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """The values, as they are when each is given."""
        return _Values(self)

    def __repr__(self) -> str:
        return f"<Table of {self._topic}>"


class _Items(ItemsView[bytes, bytes]):
    _mapping: Table

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        for key in self._mapping:
            value = self._mapping.get(key)
            if value is not None:  # else it was deleted meanwhile
                yield key, value


class _Values(ValuesView[bytes]):
    _mapping: Table

    def __iter__(self) -> Iterator[bytes]:
        for _, value in self._mapping.items():  # noqa: PERF102 - values() is this
            yield value
