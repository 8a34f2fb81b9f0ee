"""Where the files of a log directory are on this machine. Needs no Spark."""

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from kstore.log.files.layout import TopicPartition
from kstore.remote.mirrors import discard
from kstore.remote.remote_log import RemoteLog
from kstore.spark.paths import is_remote, mapped_root
from kstore.store import LogStore


def opened_store(root: str) -> LogStore:
    """The store of a log directory or a URL. What shows a remote one here is removed with the store.
    LogNotFoundError, LibraryError, OSError."""
    store = LogStore(root)
    if is_remote(root):
        weakref.finalize(store, discard, os.fspath(store.path))
    return store


@contextmanager
def partition_directory(root: str, tp: TopicPartition) -> Iterator[str]:
    """The path of a partition; below a URL, of a directory that shows it as it is now, in the block.
    LogNotFoundError, LibraryError, OSError."""
    if not is_remote(root):
        yield f"{mapped_root(root)}/{tp}"
        return
    log = RemoteLog(f"{root}/{tp}", clean=True)
    try:
        yield os.fspath(log.path)
    finally:
        log.close()
        discard(log.path)
