"""kstore.ship: the sealed segments of a partition, a store or a broker's log directory, copied to a URL."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from kstore.arguments import checked_url, integer, path_text
from kstore.config import LogConfig
from kstore.errors import CorruptFileError, LogChangedError, LogNotFoundError, PolicyViolationError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.partition import PartitionLog
from kstore.log.read.progress import check_progress
from kstore.log.recovery.presence import is_partition, require_partition
from kstore.log.write.retention import decide_for
from kstore.log.writer import LogWriter
from kstore.opening import open as open_log
from kstore.remote.storage import Storage
from kstore.shipping.partition_shipping import PartitionShipping, ShippedPartition
from kstore.store.log_store import LogStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike
    from typing import Any, TypeAlias

    from kstore.log.read.progress import ProgressCallback

    _Opened: TypeAlias = Callable[[], LogWriter]


_ATTEMPTS = 3


class ShipReport(NamedTuple):
    """The result of kstore.ship().

    `source` is a directory, `url` its destination. `partitions` maps the name of each shipped partition to a
    ShippedPartition. `left_out` maps directories that are not shipped, such as those of compacted topics, to
    the reason. `failed` maps partitions that are damaged, or differ from the shipped log, to the reason.
    """

    source: Path
    url: str
    partitions: dict[str, ShippedPartition]
    left_out: dict[str, str]
    failed: dict[str, str]

    @property
    def shipped_bytes(self) -> int:
        """Bytes of segments that this run has uploaded."""
        return sum(each.shipped_bytes for each in self.partitions.values())

    @property
    def gaps(self) -> list[str]:
        """What is missing there, as sentences."""
        return [gap for each in self.partitions.values() for gap in each.gaps]


def ship(
    source: str | PathLike[str] | LogWriter | LogStore,
    url: str,
    *,
    local_retention_ms: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: ProgressCallback | None = None,
) -> ShipReport:
    """Upload the sealed segments of a partition, a store or a broker's log directory to a URL, each once, and
    return a ShipReport.

    source: a directory, which may be written meanwhile, or a log or a store that this program has open for
        writing.
    url: a directory in an object store or another file system that fsspec can write, such as
        s3://bucket/logs.
    local_retention_ms: then deletes local segments whose newest record is older than this, 0 for all shipped
        ones, if their remote files equal the local ones. If `source` is a directory, no other process may
        have it open for writing. Default: delete nothing.
    storage_options: a mapping of fsspec's options for the protocol, such as credentials.
    progress: called as progress(done, total), in bytes.

    The URL gets the files of a partition, or a directory for each partition of a log directory, with Kafka's
    names and bytes. Each segment has a manifest, such as 00000000000000000000.shipped, which is written last,
    after the other files were read back and have the right SHA-256. kstore.open(url) has the segments with a
    manifest. The next run continues an interrupted one; several may run at once.

    The active segment is not shipped, nor segments with records of open transactions, nor compacted topics,
    whose sealed segments change. What erase() removes from a shipped segment stays at the URL.

    LogLockedError if segments are to be deleted and the log is in use. LogNotFoundError; OSError. If `source`
    is a partition: LogChangedError if the URL has another log, or this one was truncated since it was
    shipped; PolicyViolationError if it is compacted; CorruptFileError for damage.
    """
    if local_retention_ms is not None:
        integer("local_retention_ms", local_retention_ms)
    if progress is not None:
        check_progress(progress)
    url = checked_url("url", url)
    logs, left_out, place = _logs_of(source)
    total = sum(_sealed_bytes(path) for _, path, _ in logs)
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, max(total, done))

    partitions: dict[str, ShippedPartition] = {}
    failed: dict[str, str] = {}
    for name, path, opened in logs:
        storage = Storage(f"{url}/{name}" if name else url, storage_options or {})
        try:
            partitions[name or os.path.basename(path)] = _ship(
                path, opened, storage, advance, local_retention_ms
            )
        except (LogNotFoundError, PolicyViolationError) as e:
            if not name:
                raise
            left_out[name] = str(e)
        except (LogChangedError, CorruptFileError) as e:
            if not name:
                raise
            failed[name] = str(e)
    return ShipReport(place, url, partitions, left_out, failed)


def _ship(
    path: str, opened: _Opened | None, storage: Storage, advance: Callable[[int], None], age_ms: int | None
) -> ShippedPartition:
    """Ships one partition, and deletes what is older than `age_ms`."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with PartitionLog(path) if opened is None else opened().view() as log:
                shipping = PartitionShipping(log, storage, advance)
                shipped = shipping.ship()
                gone = 0 if age_ms is None else _delete(shipping, log, opened, age_ms)
                return shipped._replace(deleted_segments=gone)
        except LogChangedError:  # perhaps by another program that ships and deletes, or by retention
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


def _delete(shipping: PartitionShipping, log: PartitionLog, opened: _Opened | None, age_ms: int) -> int:
    """Deletes the local segments that are older and whose remote files are sound; how many."""
    config = LogConfig(cleanup_policy="delete", retention_ms=age_ms, retention_bytes=-1)
    decisions = decide_for(log.snapshot, config, time.time_ns() // 1_000_000)
    end = -1 if shipping.newest is None else shipping.newest.end
    offset = -1
    for segment, decision in zip(log.segments, decisions, strict=True):
        if not decision.delete or segment.end_offset > end:
            break
        if segment.end_offset > log.log_start_offset:  # else its records were deleted, and are not shipped
            shipping.verify(segment)
        offset = segment.end_offset
    if offset < 0:
        return 0
    with ExitStack() as stack:
        writer = stack.enter_context(open_log(log.path, "r+")) if opened is None else opened()
        shipping.check(writer.snapshot)  # it may have been truncated since
        return writer.maintenance.delete_below(offset)


def _logs_of(
    source: str | PathLike[str] | LogWriter | LogStore,
) -> tuple[list[tuple[str, str, _Opened | None]], dict[str, str], Path]:
    """The partitions: the name below the URL, "" for the URL itself; the path; and what returns the log that
    is open for writing. Then what is left out, and the place of all. LogNotFoundError, ValueError."""
    if isinstance(source, LogWriter):
        return [("", source.path, lambda: source)], {}, Path(source.path)
    if isinstance(source, LogStore):
        if source.mode == "r":
            raise ValueError("the store is open for reading: give its directory, or open it with mode='a'")
        return list(_of_store(source)), {}, source.path
    place = os.path.abspath(path_text("source", source))
    if is_partition(place):
        return [("", place, None)], {}, Path(place)
    if not os.path.isdir(place):
        raise LogNotFoundError(f"no directory at {place}")
    names = sorted(name for name in os.listdir(place) if os.path.isdir(f"{place}/{name}"))
    found = [name for name in names if layout.is_partition_name(name)]
    found = [name for name in found if name != f"{layout.CLUSTER_METADATA}-0"]  # KRaft's, with snapshots
    if not found:
        require_partition(place)  # raises, with what the directory has
    left_out = {name: "it is not a partition" for name in names if name not in found}
    return [(name, f"{place}/{name}", None) for name in found], left_out, Path(place)


def _of_store(store: LogStore) -> Iterator[tuple[str, str, _Opened | None]]:
    for topic in store.topics:
        for number, path in store.describe(topic).partitions.items():

            def opened(topic: str = topic, number: int = number) -> LogWriter:
                log = store.log(topic, number)
                assert isinstance(log, LogWriter)
                return log

            yield f"{topic}-{number}", str(path), opened


def _sealed_bytes(path: str) -> int:
    """The bytes of the segments but the last; others may delete some meanwhile."""
    try:
        with os.scandir(path) as entries:
            sizes = {e.name: e.stat().st_size for e in entries if layout.segment_offset(e.name) is not None}
    except FileNotFoundError:
        return 0
    return sum(sizes[name] for name in sorted(sizes)[:-1])
