"""A store as its directories are now, for what follows topics: a store that reads knows them as they were
when it was made."""

from pathlib import Path
from typing import Protocol

from kstore.store.store_directory import StoreDirectory
from kstore.store.topic_catalog import TopicCatalog


class Listed(Protocol):
    """What is asked of a store."""

    _is_writing: bool
    _catalog: TopicCatalog
    _directories: list[StoreDirectory]

    @property
    def paths(self) -> tuple[Path, ...]: ...


class Current:
    """The topics and partitions that there are now. The store of the program stays as it is: its `refresh` is
    for the program."""

    def __init__(self, store: Listed) -> None:
        self._store = store
        self._listed_at = [directory.listed_at for directory in store._directories]

    def catalog(self) -> TopicCatalog:
        """What there is. Its `places` are another object if the directories have changed. OSError,
        KstoreError."""
        store = self._store
        if not store._is_writing:  # else it always knows
            now = [path.stat().st_mtime_ns for path in store.paths if path.is_dir()]
            if now != self._listed_at:
                self.look_again()
        return self._store._catalog

    def known(self) -> TopicCatalog:
        """What was there when it was asked for last."""
        return self._store._catalog

    def look_again(self) -> None:
        """Lists the directories of a store that reads, whether or not they tell of a change. OSError,
        KstoreError."""
        if not self._store._is_writing:
            store = type(self._store)(*self._store.paths)
            self._store = store
            self._listed_at = [directory.listed_at for directory in store._directories]
