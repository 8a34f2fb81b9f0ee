"""kstore.open, open_async and get_include."""

from __future__ import annotations

import os
import time
from os import fspath

from kstore.arguments import (
    INDEX_INTERVAL_BYTES,
    MAX_DECOMPRESSED_BYTES,
    checked_url,
    choice,
    is_url,
    number,
    path_text,
    warn,
)
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, overload
from kstore.log.files.lock import once_free, pauses
from kstore.log.later import later
from kstore.log.options import names_of, refuse_others
from kstore.log.partition import PartitionLog
from kstore.log.recovery.presence import doubt_about, require_free, require_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from typing import Any, Literal, Unpack
    from uuid import UUID

    from kstore.config import LogConfig, changed
    from kstore.log.write.opening import KeptConfig
    from kstore.log.writer import LogWriter
    from kstore.remote.remote_log import RemoteLog
    from kstore.remote.tiered_log import RemotePart, TieredLog
    from kstore.typed import ConfigOptions, StrPath
else:
    later(
        globals(),
        {
            "kstore.config": "LogConfig changed",
            "kstore.log.write.opening": "KeptConfig",
            "kstore.log.writer": "LogWriter",
            "kstore.remote.remote_log": "RemoteLog",
            "kstore.remote.tiered_log": "RemotePart TieredLog",
        },
    )


@overload
def open(
    path: str | PathLike[str],
    mode: Literal["r"] = "r",
    *,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    recover: bool = True,
    wait: float = 0,
    remote: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PartitionLog: ...


@overload
def open(
    path: str | PathLike[str],
    mode: Literal["a", "r+"],
    *,
    config: LogConfig | None = None,
    durability: Literal["none", "group", "each"] = "none",
    keep_cut: bool = False,
    leader_epoch: int | None = None,
    topic_id: UUID | None = None,
    clock: Callable[[], int] | None = None,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    producer_id_expiration_ms: int = 86_400_000,
    shared: bool = False,
    wait: float = 0,
    **options: Unpack[ConfigOptions],
) -> LogWriter: ...


def open(path: str | PathLike[str], mode: str = "r", **options: Any) -> PartitionLog:
    """Open a partition: a directory with the records of one partition of a topic, such as data/orders-0.

    Modes:
        mode "r": reads, and writes and locks nothing. Another process, or a broker, may be writing the log;
            the file system may be read-only. Returns a PartitionLog with the records of this moment;
            refresh() adds later ones, follow() waits for them. `path` may also be a single .log or .cut file;
            bytes after its last whole batch are a finding in `recovery`, with a DataLossWarning. It may be a
            URL, such as s3://bucket/logs/orders-0, if fsspec and its library for the protocol are installed.
            The log of a URL cannot be followed, refreshed or read with a cursor.
        mode "a": writes, and creates the directory if it does not exist. Returns a LogWriter. Close it, or
            use `with`. A UserWarning is issued if brokers and stores would ignore the name of a new
            directory: it ends in a dash and a number, and the rest is no topic name of Kafka (1 to 249 of
            a-z, A-Z, 0-9, dot, underscore and dash).
        mode "r+": writes as "a" does, but the directory must exist.

    A log has one writer at a time, or several with `shared`. If the log was not closed cleanly, opening it
    for writing recovers it first, as Kafka does; opening it for reading leaves out what that recovery would
    remove. `log.recovery` is the report. Unlike Kafka, opening for writing also removes bytes after the last
    whole batch of a log that was closed cleanly; Kafka appends after them.

    Options for reading:
        recover: False does not leave out what recovery would remove. Default True.
        index_interval_bytes: the topic's index.interval.bytes, for an index that is missing or damaged and is
            rebuilt in memory. Default 4096.
        remote: the URL to which kstore.ship() has uploaded this log. Segments that the directory no longer
            has are read from there. Default: none.
        storage_options: for a URL, a mapping of fsspec's options for its protocol, such as credentials.
            Default: those that fsspec finds.
        wait: how many seconds to wait for a log that does not exist yet. Default 0. open_async waits in an
            event loop.

    Options for writing:
        config: a LogConfig. Each of its options may also be passed by name, such as segment_bytes=1 << 20,
            which has precedence. Options that are set are saved in the directory and apply at every opening
            until they are changed; None restores the default. If the partition is in the directory of a
            LogStore that has the topic, nothing is saved, and the topic's saved options apply.
        durability: when append() returns. "none" (default): when the operating system has the record, which
            survives a power cut after flush() or close(). "group", or its alias "each": when the record
            survives a power cut; one sync serves all threads that wait for it.
        keep_cut: True keeps all bytes that recovery removes, in .cut files. Default False: only those that
            contain undamaged batches or had been flushed are kept, with a DataLossWarning.
        leader_epoch: an int, at least the newest leader epoch of the log; begins this leader epoch. Default:
            the newest one, or 0.
        wait: how many seconds to wait while another writer has the log open. Default 0.
        shared: True lets other processes that pass it, too, write the log at the same time. Each sees in its
            next call what the others wrote. A child of fork opens the log itself. KstoreError on a network
            file system. Default False.
        topic_id: a uuid.UUID for partition.metadata.
        clock: a function that returns the time in milliseconds since 1970, for tests.
        producer_id_expiration_ms: the log expires a producer whose newest record is older than this, by the
            timestamps of records (section 6.7 of docs/spec.md). Default 86,400,000, a day.

    Options for both:
        max_decompressed_bytes: the largest size of a decompressed batch, in reading and in appending. Default
            256 MiB.
        clean, recovery_point, log_start_offset: replace the values of the checkpoint files: whether the log
            was closed cleanly, the offset below which it needs no recovery, and the first offset that can be
            read. These files are in the log directory around the partition, or in the partition if there is
            none. Not with `shared`.

    Raises:
        LogNotFoundError: there is no such directory, or no partition in it; for reading, also after `wait`.
            Mode "a" creates a partition, but not in a directory with partitions or other files. An empty
            directory with a partition's name, such as orders-0, is a log without records.
        LogLockedError: another writer has the log open, also after `wait`.
        InvalidConfigError: an option of the configuration is unknown, or its value is not allowed.
        CorruptFileError: a single file has no undamaged batch. The message names the kind of the file:
            compressed, text, zeros and so on.
        CorruptCheckpointError: the file with the saved options is damaged. Put it back, or move it away and
            pass the options again.
        TypeError, ValueError: another argument is wrong. Arguments are checked before anything is created.
        OSError: a file cannot be read or written.

    A UserWarning is issued if a new partition has a name or number that the store around it will not use.
    """
    choice("mode", mode, ("r", "a", "r+"))
    if not path_text("path", path):
        raise ValueError("open needs the path of a partition, not an empty one: '.' is the current directory")
    wait = number("wait", options.pop("wait", 0), 0)
    if is_url(path):
        if mode != "r":
            raise ValueError(f"{path} is remote, and can only be read: mode is r, not {mode}")
        if "remote" in options:
            raise TypeError("remote is for a directory, and path is a URL")
        return RemoteLog(fspath(path), **options)
    remote, storage_options = options.pop("remote", None), options.pop("storage_options", None)
    if remote is not None:
        if mode != "r":
            raise ValueError(f"a log with a remote part can only be read: mode is r, not {mode}")
        part = RemotePart(checked_url("remote", remote), storage_options)
        refuse_others("read", options)
        return once_free(lambda: TieredLog(path, part, **options), wait, LogNotFoundError)
    if storage_options is not None:
        raise TypeError("storage_options are those of a URL, and there is none")
    if mode == "r":
        refuse_others("read", options)
        return once_free(lambda: PartitionLog(path, **options), wait, LogNotFoundError)
    if "recover" in options:
        raise TypeError("recover is an option for reading: opening for writing always recovers")
    own = {name: options.pop(name) for name in names_of("write") if name in options}
    config = options.pop("config", None)
    if not (config is None or isinstance(config, LogConfig)):  # before its options are read
        raise TypeError(f"config must be a kstore.LogConfig, not {config!r}")
    changes = (config.given_options() if config is not None else {}) | options
    if mode == "a" and not os.path.exists(path) and (doubt := doubt_about(path)):
        warn(doubt)
    return open_writer(path, KeptConfig(changes, keeps=True), create=mode == "a", wait=wait, **own)


def open_writer(
    path: str | PathLike[str], kept: KeptConfig, *, create: bool, wait: float, **own: Any
) -> LogWriter:
    """Open a partition for writing, with its saved options and changes of them."""
    changed(LogConfig(), kept.changes)  # checks the options before any change
    _check_directory(path, create=create)
    return once_free(lambda: LogWriter(path, create=create, kept=kept, **own), wait)


async def open_async(path: str | PathLike[str], *, wait: float = 0, **options: Any) -> PartitionLog:
    """Open a partition for reading in another thread, without blocking the event loop.

    wait: how many seconds to wait for a log that does not exist yet. Default 0. The other options are those
    of open() for reading.
    """
    import asyncio

    until = time.monotonic() + number("wait", wait, 0)
    for pause in pauses():
        try:
            return await asyncio.to_thread(lambda: open(path, **options))
        except LogNotFoundError:
            left = until - time.monotonic()
            if left <= 0:
                raise
        await asyncio.sleep(min(pause, left))
    raise AssertionError


def _check_directory(path: StrPath, *, create: bool) -> None:
    """Raise LogNotFoundError if the directory is not a partition and, with `create`, cannot become one."""
    try:
        require_partition(path)
    except LogNotFoundError as e:
        if not create or e.is_log_directory:
            raise
        require_free(path)


def get_include() -> str:
    """The directory with the C headers (kstore/*.h) and their Cython declarations (libkstore/*.pxd).

    Pass it to a compiler as an include directory, and to Cython as include_path.
    """
    package = os.path.dirname(os.path.realpath(__file__))
    installed = f"{package}/include"
    return installed if os.path.isdir(installed) else f"{os.path.dirname(package)}/include"
