"""A partition in an object store or a remote file system."""

from __future__ import annotations

import os

from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.partition import PartitionLog
from kstore.remote.urls import readable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn, Unpack

    from kstore.typed import ReaderOptions


class RemoteLog(PartitionLog):
    """A partition under a URL, as it was when it was opened. It reads ranges of files, as far as they are
    needed, and keeps them in a local directory until the process ends. `url` is the URL; `path` is that
    directory.

    It has the methods of PartitionLog, except those that wait for records or save positions: they raise
    KstoreError, as refresh() does.
    """

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, **options: Unpack[ReaderOptions]
    ) -> None:
        path = readable(url, storage_options)
        if not any(name.endswith(".log") for name in os.listdir(path)):
            raise LogNotFoundError(f"no partition at {url}: there is no .log file")
        self.url = url.rstrip("/")
        super().__init__(path, **options)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise KstoreError(f"{self.url} is remote: it is read as it was when it was opened; open it again")

    follow = refresh = cursor = share_group = cursors = share_groups = _refuse
