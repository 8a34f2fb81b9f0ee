"""kstore.check."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kstore.arguments import checked_url, is_url, path_text
from kstore.checking import directory as directories
from kstore.checking.assigned import Assigned
from kstore.checking.both_parts import with_remote
from kstore.checking.codes import found
from kstore.checking.copies import check_copy
from kstore.checking.finding import Report, worst_first
from kstore.checking.open_transactions import coordinated, transactions_open
from kstore.checking.partition import Checked, PartitionCheck
from kstore.checking.readers import positions_beyond
from kstore.checking.segment_facts import read_segment
from kstore.errors import KstoreError, LogChangedError, LogNotFoundError, shown
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.log_dir_state import directory_of, name_of
from kstore.log.recovery.presence import is_partition, require_partition
from kstore.remote.remote_files import mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from typing import Any

    from kstore.broker.transaction_state import CoordinatedTransaction
    from kstore.checking.segment_facts import SegmentFacts
    from kstore.engine.segment.segment import Segment
    from kstore.log.files.layout import TopicPartition
    from kstore.typed import StrPath

_MOST_TRIES = 4  # of checking a log that another process changes meanwhile
_MOST_WAITING = 256  # partitions that are loaded and not judged yet


def check(
    path: StrPath,
    *others: StrPath,
    manifest: StrPath | None = None,
    remote: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Check partitions, .log files, or the log directories of a store or a broker, and return the findings as
    a Report.

    path, others: a partition, a file, or all log directories of one store; or their URLs.
    manifest: the kstore-copy.jsonl that kstore.copy() has written in a copy; all files of `path` are compared
        with it.
    remote: the URL to which kstore.ship() has uploaded `path`: its segments are checked, too, and that both
        are one log.
    storage_options: a mapping of fsspec's options for `remote` and for paths that are URLs.

    Every byte of the .log files is read, by as many threads as there are processors. Nothing is written or
    locked. Processes may be writing the logs; what they append meanwhile is not checked. A file that cannot
    be read is a finding.

    LogNotFoundError if a path does not exist, or is neither a partition nor a log directory.
    """
    return check_parts(
        [path, *others],
        None if manifest is None else str(manifest),
        None if remote is None else checked_url("remote", remote),
        storage_options,
    )


def check_parts(
    given: Sequence[StrPath],
    manifest: str | None = None,
    url: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    read: Callable[[Segment], SegmentFacts] = read_segment,
    listed: Callable[[list[str]], object] = lambda _: None,
) -> Report:
    """Check paths or URLs, and what was shipped of the first one to a URL. read: reads a segment, in any
    thread. listed: called with the paths of all partitions. ValueError if `url` is given for several
    paths."""
    paths = [_local(each, storage_options) for each in given]
    if url is not None and len(paths) > 1:
        raise ValueError("the URL of a remote part is that of one directory, and several are given")
    checked = partial(check_paths, read=read, listed=listed)
    report = checked(paths, manifest=manifest)
    return report if url is None else with_remote(report, paths[0], checked, url, storage_options)


def _local(path: StrPath, storage_options: Mapping[str, Any] | None) -> str:
    """A path, or that of a local directory or .log file that shows what is at a URL."""
    text = path_text("path", path)
    if not is_url(text):
        return text
    directory, _, name = text.rpartition("/")
    options = storage_options or {}
    if name.endswith(".log"):
        return f"{mirrored(directory, options, is_whole=False)}/{name}"
    return mirrored(text, options, is_whole=False)


def check_paths(
    paths: list[str],
    *,
    read: Callable[[Segment], SegmentFacts] = read_segment,
    listed: Callable[[list[str]], object] = lambda _: None,
    threads: int = 0,
    manifest: str | None = None,
) -> Report:
    """Check paths. read: reads a segment, in any thread. listed: called with the paths of all partitions.
    threads: 0 for as many as there are processors."""
    begun = time.monotonic()
    wanted, around = _wanted(paths)
    listed([path for path, _ in wanted])
    done = list(_checked(wanted, read, threads))
    findings = [finding for each in done for finding in each.findings]
    findings += directories.check_names(around)
    assigned = Assigned.read([each.path for each in around])
    for each in around:
        findings += directories.check_files(each)
        findings += directories.check_checkpoints(each, _ends(done, each.path), assigned)
    if around:
        findings += assigned.missing()
        findings += assigned.other_ids((f"{each.path}/{tp}", tp) for each in around for tp in each.partitions)
        findings += directories.check_table([each.path for each in around])
    by_name = {name_of(each.path): each for each in done if os.path.isdir(each.path)}
    findings += positions_beyond(by_name, [each.path for each in around])
    if manifest is not None:
        findings += check_copy(paths[0], manifest)
    if opened := [each for each in done if each.open_transactions]:
        with_state = dict.fromkeys(
            [*(directory_of(each.path) for each in opened), *(each.path for each in around)]
        )
        findings += transactions_open(opened, *coordinated_in(list(with_state)))
    return Report(
        shown(paths[0]),
        worst_first([each._replace(file=shown(each.file)) for each in findings]),
        len(done),
        sum(each.segments for each in done),
        sum(each.bytes for each in done),
        time.monotonic() - begun,
    )


def coordinated_in(directories: list[str]) -> tuple[Mapping[int, CoordinatedTransaction] | None, str]:
    """The transactions of coordinators in log directories of one store or broker, by producer id, or None,
    and why they are not known as a whole, or "". Every byte of their state is read."""
    return coordinated(
        directories,
        lambda paths: (
            finding
            for each in _checked([(path, False) for path in paths], read_segment, 0)
            for finding in each.findings
            if finding.severity != "note"
        ),
    )


def _ends(done: list[Checked], directory: str) -> dict[TopicPartition, tuple[int, int]]:
    """The bounds of the partitions whose checkpoints are in a log directory, except those that are being
    written."""
    around = os.path.abspath(directory)
    return {
        name_of(each.path): (each.start, each.end)
        for each in done
        if each.start is not None and each.end is not None and not each.is_live
        if directory_of(each.path) == around
    }


def _wanted(paths: list[str]) -> tuple[list[tuple[str, bool]], list[directories.LogDirectoryNames]]:
    """The partitions to check, each with whether it is in a log directory that is checked, and these
    directories. LogNotFoundError."""
    wanted: list[tuple[str, bool]] = []
    around = []
    for path in paths:
        if not os.path.lexists(path):
            raise LogNotFoundError(f"nothing is at {shown(path)}")
        if not (os.path.isdir(path) or os.path.isfile(path)):
            is_nowhere = os.path.islink(path) and not os.path.exists(path)
            what = "a link that leads nowhere" if is_nowhere else "neither a directory nor a regular file"
            raise LogNotFoundError(f"{shown(path)} is {what}")
        if is_partition(path):
            wanted.append((path.rstrip("/") or path, False))
            continue
        names = directories.read_names(path)
        if not (names.partitions or names.set_aside or names.logs or names.links or names.is_a_brokers):
            require_partition(path)  # raises, with what the directory has
            raise LogNotFoundError(f"{shown(path)} is neither a partition nor a log directory that holds any")
        around.append(names)
        wanted += [(os.path.join(path, str(tp)), True) for tp in names.partitions]
        wanted += [(os.path.join(path, name), True) for name in names.set_aside]
        wanted += [(os.path.join(path, name), False) for name in names.logs]
    return wanted, around


def _checked(
    wanted: Iterable[tuple[str, bool]], read: Callable[[Segment], SegmentFacts], threads: int
) -> Iterator[Checked]:
    """Check partitions, in order. Their segments are read by several threads."""
    waiting: deque[tuple[PartitionCheck | None, list[Future[SegmentFacts | Exception]], str, bool]] = deque()

    def guarded(segment: Segment) -> SegmentFacts | Exception:
        try:
            return read(segment)
        except (KstoreError, OSError) as e:
            return e.with_traceback(None)

    def begin(path: str, of_directory: bool) -> None:
        partition = None
        with contextlib.suppress(LogChangedError):
            partition = PartitionCheck(path, of_directory=of_directory)
        segments = () if partition is None else partition.segments
        waiting.append((partition, [pool.submit(guarded, each) for each in segments], path, of_directory))

    def first() -> Checked:
        partition, reads, path, of_directory = waiting.popleft()
        checked = Checked(path, [found("log_changed", path)], 0, 0)
        for _ in range(_MOST_TRIES):
            try:
                if partition is not None:
                    checked = partition.finish([each.result() for each in reads])
                    # beside a writer a problem counts if it is found again: files may come and go together
                    if not (checked.is_live and any(each.severity != "note" for each in checked.findings)):
                        break
            except (LogChangedError, FileNotFoundError):  # another process has replaced or removed files
                pass
            begin(path, of_directory)
            partition, reads, path, of_directory = waiting.pop()
        if of_directory and not os.path.lexists(path):
            # deleted: the check of the directory knows whether it should be there
            return Checked(path, [], 0, 0)
        return checked

    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, "kstore-check")
    try:
        for path, of_directory in wanted:
            begin(path, of_directory)
            if len(waiting) > _MOST_WAITING:
                yield first()
        while waiting:
            yield first()
    finally:
        pool.shutdown(cancel_futures=True)
