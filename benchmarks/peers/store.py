"""What a Python user would take instead of a log, behind one interface; a file each beside this one."""

import shutil
import struct
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers import SELF_CHECKED, InProcess, Missing

KEY = struct.Struct(">Q")  # big-endian: the order of keys is that of offsets
Row = tuple[int, int, bytes, bytes]  # offset, timestamp, key, value

APPEND, EXTEND, SCAN, COLUMNS, GET, FIND = "append", "extend", "scan", "columns", "get", "find"


class Store:
    """Rows in a directory. A subject that it has no method for is one that it sits out."""

    package: ClassVar[str]
    subjects: ClassVar[frozenset[str]]
    codec: ClassVar[int] = 0  # Kafka's number, for a store that packs as Kafka does
    durable: ClassVar[bool] = False  # what was committed is on the disk

    def __init__(self, path: Path) -> None: ...

    @staticmethod
    def load(rows: Sequence[Row]) -> Any:
        """Rows as this store takes them; not counted."""
        return rows

    def append(self, loaded: Any) -> None:
        """Each row written by itself, committed before the next; no sync unless `durable`."""
        raise NotImplementedError

    def extend(self, loaded: Any) -> None:
        """All rows, written when it returns; no sync."""
        raise NotImplementedError

    def index_times(self, rows: Sequence[Row]) -> None:
        """Makes what find() needs, if it needs anything; not counted."""

    def reopen(self) -> None:
        """After writing, before reading; not counted."""

    def scan(self, stop: int) -> tuple[int, int]:
        """The first rows, up to offset `stop`, each as Python objects: how many, and the last offset."""
        raise NotImplementedError

    def columns(self) -> tuple[int, int]:
        """All rows as columns, everything looked at: how many, and the sum of their offsets."""
        raise NotImplementedError

    def get(self, offset: int) -> bytes:
        """The value at an offset."""
        raise NotImplementedError

    def find(self, timestamp: int) -> int:
        """The first offset with at least that timestamp."""
        raise NotImplementedError

    def count(self) -> int:
        raise NotImplementedError

    def close(self) -> None: ...


MODULES = {  # as they are named in the report: (module here, its class)
    "aiokafka": ("aiokafka", "Aiokafka"),
    "lmdb": ("lmdb", "Lmdb"),
    "rocksdict": ("rocksdict", "Rocks"),
    "sqlite3": ("sqlite", "Sqlite"),
    "Arrow IPC": ("arrow_ipc", "ArrowIpc"),
    "Parquet": ("parquet", "Parquet"),
}
NAMES = tuple(MODULES)


def open_class(name: str) -> type[Store] | Missing:
    module, store = MODULES[name]
    try:
        found: type[Store] = getattr(import_module(f"benchmarks.peers.{module}"), store)
    except ImportError as e:
        return Missing(name, str(e))
    return found


def about(name: str) -> str:
    found = open_class(name)
    if isinstance(found, Missing):
        return f"missing: {found.reason}"
    if found.package == "sqlite3":
        import sqlite3

        return sqlite3.sqlite_version
    return metadata.version(found.package)


def that_do(subject: str) -> list[tuple[str, type[Store] | Missing]]:
    """The stores that have this subject; a missing one is assumed to."""
    every = [(name, open_class(name)) for name in NAMES]
    return [(name, s) for name, s in every if isinstance(s, Missing) or subject in s.subjects]


def writing(
    subject: str,
    work: Path,
    load: Callable[[], Sequence[Row]],
    only: Sequence[str] = NAMES,
    *,
    codec: int = 0,
    durable: bool = False,
) -> list[InProcess[Any] | Missing]:
    """Contestants that write what `load` gives to a new store each turn; opening and closing are not
    counted."""
    made: list[InProcess[Any] | Missing] = []
    for name, store in that_do(subject):
        if name not in only:
            continue
        if isinstance(store, Missing):
            made.append(store)
        else:
            set_up = type(store.__name__, (store,), {"codec": codec, "durable": durable})
            made.append(_writer(name, set_up, subject, work, load))
    return made


def _writer(
    name: str, kind: type[Store], subject: str, work: Path, load: Callable[[], Sequence[Row]]
) -> InProcess[Any]:
    def prepare(*args: int) -> tuple[Store, Any, int]:
        rows = load()
        return kind(fresh(work, name)), kind.load(rows), len(rows)

    def timed(given: tuple[Store, Any, int]) -> tuple[int, int]:
        store, loaded, count = given
        getattr(store, subject)(loaded)
        return count, SELF_CHECKED

    def clear(given: tuple[Store, Any, int]) -> None:
        store, _, count = given
        store.reopen()
        if store.count() != count:
            raise AssertionError(f"{name} holds {store.count()} rows, not {count}")
        store.close()
        remove(work, name)

    return InProcess(name, prepare, timed, clear=clear)


def fresh(work: Path, name: str) -> Path:
    remove(work, name)
    path = work / name.replace(" ", "-")
    path.mkdir(parents=True)
    return path


def remove(work: Path, name: str) -> None:
    shutil.rmtree(work / name.replace(" ", "-"), ignore_errors=True)
