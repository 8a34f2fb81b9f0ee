"""Run as `python cycles.py DIRECTORY`, which is empty: objects of kstore's compiled classes in cycles, which
the garbage collector ends in many orders. A child process tries each class. Prints a line for each child that
died, and how many classes there are."""

import gc
import os
import random
import signal
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.effort import times

HEAP_TYPE = 1 << 9  # of a class's __flags__: it was made by Python code
SECONDS = 60


def is_compiled(kind: type) -> bool:
    """Whether a class of kstore's is written in C, by Cython."""
    return kind.__module__.startswith("kstore.") and not kind.__flags__ & HEAP_TYPE


def specimens() -> dict[str, Any]:
    """An object of each compiled class, by the name of the class."""
    log = kstore.open(Path(tempfile.mkdtemp(dir=".")) / "t-0", "a", index_interval_bytes=100)
    for n in range(20):
        log.append(b"value %d" % n, key=b"key", headers=[("name", b"value"), ("other", None)])
    segment, store = log.segments[0], kstore.LogStore(Path(log.path).parent)
    appender = log.appender(linger_ms=1000)
    columns = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    rows = next(iter(log.scan(columns, batch_rows=7)))
    found = [
        log, kstore.open(log.path), appender, appender.append(b"more"), log.cursor("g"),
        log.follow(0, timeout=0), log.read(0), log.span(0), segment.offset_index, segment.time_index,
        segment.transaction_index, segment.file(),
        log.last(b"key"), log.history(b"key"), log.get(0), rows, rows.column("key"), rows.column("key").data,
        rows.column("headers"), rows.column("offset").values,
    ]  # fmt: skip
    for reader in (
        log.records(), log.batches(), iter(log.scan(columns)), iter(log.scan(header={"a": b"b"})),
        iter(log.cursor("h").scan(columns)), iter(store.follow(["t"], "earliest", timeout=0)),
        iter(store.cursor("i", ["t"])),
    ):  # fmt: skip
        found += [reader, next(reader, None)]
    made: dict[str, Any] = {}
    seen = set()
    while found:
        each = found.pop()
        kind = type(each)
        is_holder = kind in (tuple, list, dict, types.GeneratorType, types.MethodType)
        if id(each) in seen or not (is_holder or kind.__module__.startswith("kstore.")):
            continue
        seen.add(id(each))
        if is_compiled(kind):
            made.setdefault(kind.__name__, each)
        found += gc.get_referents(each)
    return made


def collect(name: str, begins: Callable[[str], object]) -> None:
    """Objects in a cycle with all others, collected in many orders."""
    chance = random.Random(name)
    for turn in range(times(3)):
        begins(f"{name} is made for turn {turn}")
        things = [specimens()]
        if name not in things[0]:
            return
        # A collection puts what it reaches after what it was reached by: so the order is that of the holders.
        holders = [[each] for each in things.pop().values()]
        chance.shuffle(holders)
        holders.sort(key=lambda holder: type(holder[0]).__name__ != name)  # this one is emptied first
        begins(f"{name} is kept in turn {turn}")
        gc.collect()
        gc.collect()
        last: dict[str, object] = {}  # younger than all, so it is emptied when they are
        last["all"] = last, [each for holder in holders for each in holder]
        begins(f"{name} is collected in turn {turn}")
        del holders, last
        gc.collect()
        begins(f"memory is used after {name} in turn {turn}")
        assert [bytes(size) for size in range(1, 3000, 7)]


def main() -> None:
    os.chdir(sys.argv[1])
    names = sorted(specimens())
    for name in names:
        step = Path(f"{name}.step")
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            gc.freeze()  # or every collection would traverse all that was imported
            collect(name, step.write_text)
            os._exit(0)
        if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(f"{name}: {status}: {step.read_text()}", flush=True)
    print(f"{len(names)} classes")


if __name__ == "__main__":
    main()
