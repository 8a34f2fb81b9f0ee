"""Run as `python prober.py SHAPE`, in an empty directory: makes objects of every class of kstore.engine in ways that
nobody should, and tries all that can be done with each.

Every class has a forked process of its own. What is printed is one line a class that did not survive, or in which C code
broke the rules of Python (SystemError), and last how many classes there were.
"""

import copy
import ctypes
import gc
import importlib
import operator
import os
import pickle
import pkgutil
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kstore
import kstore.engine
from kstore.engine.append.record_accumulator import RecordAccumulator
from kstore.engine.append.record_appender import RecordAppender
from kstore.engine.io import buffer_pool as buffers
from kstore.engine.io import mapped_file as mapping
from kstore.engine.io import notification
from kstore.engine.io.file import File
from kstore.engine.scan import batch_reader as reader
from kstore.engine.scan import column_builder as rows
from kstore.engine.scan import column_scanner as scanner
from kstore.engine.scan import predicate
from kstore.engine.segment.index import AbortedTxn, TransactionIndex
from kstore.log.write.append_limits import limits_of

TP_CLEAR = 192  # where a type of CPython on a 64-bit machine has the function by which the collector empties an object
SECONDS = 60  # for one class
ENOUGH = 5  # objects of one class
INTS = (-1, 0, 1, 7, 1 << 31, (1 << 63) - 1, 1 << 64)
ARGUMENTS: list[tuple[Any, ...]] = [
    (),
    *[(None,) * n for n in range(1, 9)],
    *[(number,) * n for number in INTS for n in (1, 2, 3)],
    (b"",),
    (b"x" * 80,),
    ("",),
    ("x", "x"),
    (1.5,),
    (True, None),
    ([],),
    ((),),
    ((None,),),
    ((1, 2),),
    ({},),
    (0, None),
    (0, b"x" * 24),
    (object(), object()),
]
PLAIN = (bool, int, float, str, bytes, type(None))
OPERATORS: list[Callable[[Any], object]] = [
    repr, str, hash, len, bool, bytes, memoryview, list, int, float, operator.index, abs, operator.neg, next, dir, vars,
    copy.copy, copy.deepcopy, reversed, gc.get_referents, sys.getsizeof, os.fspath, operator.length_hint,
    lambda x: x == x, lambda x: x < x, lambda x: x != 1, lambda x: x + x, lambda x: x in x, lambda x: x[0],  # noqa: PLR0124
    lambda x: x[0:1], lambda x: x(), lambda x: [next(iter(x)) for _ in range(3)], lambda x: {x: x}, lambda x: x @ x,
    *[lambda x, n=n: pickle.dumps(x, n) for n in range(6)],
]  # fmt: skip


def classes() -> Iterator[type]:
    """All classes that modules of kstore.engine define, whatever comes later too."""
    for module in pkgutil.walk_packages(kstore.engine.__path__, "kstore.engine."):
        found = vars(importlib.import_module(module.name))
        for each in found.values():
            if isinstance(each, type) and each.__module__ == module.name:
                yield each


def shown(arguments: tuple[object, ...]) -> str:
    return f"({', '.join(f'{each!r:.30}' if type(each) in PLAIN else type(each).__name__ for each in arguments)})"


class Step:
    """What is being tried, in a file that the parent reads when the child has died."""

    def __init__(self) -> None:
        self.fd = os.open("step", os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def begins(self, what: str) -> None:
        raw = what.encode()[:500]
        os.pwrite(self.fd, raw + b" " * (500 - len(raw)), 0)

    def ordinary(self, what: str, call: Callable[[], object]) -> Any:
        """What the call returns; None where it raises as Python code may."""
        self.begins(what)
        try:
            return call()
        except SystemError as e:
            traceback.print_exc()
            self.begins(f"{what}: SystemError: {e}")
            os._exit(1)
        except Exception:  # noqa: BLE001 - which one it is does not matter
            return None


def poke(step: Step, name: str, thing: Any) -> None:
    """Everything that can be done with an object."""
    for i, act in enumerate(OPERATORS):
        step.ordinary(f"{name}: {getattr(act, '__name__', act)} ({i})", lambda act=act: act(thing))
    for attribute in dir(type(thing)):
        if getattr(type(thing), attribute, None) is getattr(object, attribute, Step):
            continue  # what every object has was tried above
        if attribute in ("__class__", "__init_subclass__", "__subclasshook__", "__new__"):
            continue
        found = step.ordinary(f"{name}.{attribute}", lambda a=attribute: getattr(thing, a))
        step.ordinary(f"del {name}.{attribute}", lambda a=attribute: delattr(thing, a))
        step.ordinary(f"{name}.{attribute} = None", lambda a=attribute: setattr(thing, a, None))
        if callable(found):
            for arguments in (*ARGUMENTS, (thing,), (thing, thing)):
                step.ordinary(f"{name}.{attribute}{shown(arguments)}", lambda f=found, a=arguments: f(*a))
    step.ordinary(f"with {name}", lambda: enter(thing))
    step.ordinary(f"{name}.itself", lambda: setattr(thing, "itself", thing))


def enter(thing: Any) -> None:
    with thing:
        pass


# ---- shapes ---------------------------------------------------------------------------------------------------------


def raw(step: Step, kind: type) -> None:
    """Objects whose __init__ never ran, or ran with what it was not made for."""
    tried = 0
    for arguments in ARGUMENTS:
        made = step.ordinary(
            f"{kind.__name__}.__new__{shown(arguments)}", lambda a=arguments: kind.__new__(kind, *a)
        )
        if isinstance(made, kind) and tried < ENOUGH:
            poke(step, f"{kind.__name__}.__new__{shown(arguments)}", made)
        made = step.ordinary(f"{kind.__name__}{shown(arguments)}", lambda a=arguments: kind(*a))
        if isinstance(made, kind) and tried < ENOUGH:
            poke(step, f"{kind.__name__}{shown(arguments)}", made)
            tried += 1
        del made
        step.ordinary(f"{kind.__name__}{shown(arguments)} goes", gc.collect)


def derived(step: Step, kind: type) -> None:
    """Objects of Python classes that forget super().__init__(), and that add attributes."""
    body = {"__init__": lambda self, *_: None, "extra": None}
    resurrected: list[object] = []
    for more in ({}, {"__slots__": ("own",)}, {"__del__": lambda self: resurrected.append(self)}):
        child = step.ordinary(
            f"class Child({kind.__name__})", lambda m=more: type("Child", (kind,), {**body, **m})
        )
        if child is None:  # it is final
            return
        for arguments in ((), (None,), ((),), (kstore.LogWriter.__new__(kstore.LogWriter),)):
            made = step.ordinary(
                f"Child({kind.__name__}){shown(arguments)}", lambda c=child, a=arguments: c(*a)
            )
            if made is not None:
                poke(step, f"Child({kind.__name__}){shown(arguments)}", made)
            del made
            step.ordinary(f"Child({kind.__name__}){shown(arguments)} goes", gc.collect)
            for each in resurrected[:2]:
                poke(step, f"Child({kind.__name__}) come back", each)
            resurrected.clear()


def whole(step: Step, kind: type) -> None:
    """Objects as they should be, with arguments that nobody should give, and __init__ called again."""
    made = specimens().get(kind.__name__)
    if made is not None:
        poke(step, f"whole {kind.__name__}", made)


def cleared(step: Step, kind: type) -> None:
    """Objects that the collector has emptied, as it does before it frees what is in a cycle."""
    made = specimens().get(kind.__name__)
    at = ctypes.c_void_p.from_address(id(kind) + TP_CLEAR).value
    if made is None or at is None or not kind.__flags__ & 1 << 14:
        return
    step.begins(f"{kind.__name__} is cleared")
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(at)(made)
    poke(step, f"cleared {kind.__name__}", made)


def cyclic(step: Step, kind: type) -> None:
    """Objects in a cycle with all others, collected in many orders."""
    chance = random.Random(kind.__name__)
    for turn in range(10):
        step.begins(f"{kind.__name__} is made for turn {turn}")
        things = [specimens()]
        if kind.__name__ not in things[0]:
            return
        # A collection puts what it reaches behind that by which it was reached: so the order is that of the holders.
        holders = [[each] for each in things.pop().values()]
        chance.shuffle(holders)
        holders.sort(key=lambda holder: type(holder[0]) is not kind)  # this one is emptied first
        step.begins(f"{kind.__name__} is kept in turn {turn}")
        gc.collect()
        gc.collect()
        last: dict[str, object] = {}  # younger than all, so it is emptied when they are
        last["all"] = last, [each for holder in holders for each in holder]
        step.begins(f"{kind.__name__} is collected in turn {turn}")
        del holders, last
        gc.collect()
        step.begins(f"memory is used after {kind.__name__} in turn {turn}")
        assert [bytes(size) for size in range(1, 3000, 7)]


def specimens() -> dict[str, Any]:
    """An object of each class of which one can be had."""

    log = kstore.open(tempfile.mkdtemp(dir="."), "a", config=kstore.LogConfig(index_interval_bytes=100))
    for n in range(20):
        log.append(b"value %d" % n, key=b"key", headers=[("name", b"value"), ("other", None)])
    segment = log.active.view()[0]
    columns = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    scans = []
    for _ in range(2):
        scan = scanner.ColumnScanner((segment,))
        scans.append(
            scan.configure(rows.ColumnBuilder(columns, 7, 1 << 20, False), predicate.Predicate(0, 1 << 62))
        )
    batch = next(scans[0])
    found = list(reader.BatchReader((segment,)))
    transactions = TransactionIndex(0)
    transactions.append(AbortedTxn(1, 2, 3, 4))
    resumed = reader.RecordReader((segment,))
    next(resumed)
    things = [
        log.active, segment, segment.offset_index, segment.time_index, segment.file(), transactions, resumed,
        reader.BatchReader((segment,)), scans[1], rows.ColumnBuilder(columns, 7, 1 << 20, True),
        predicate.Predicate(0, 9, header={"a": b"b"}), batch, batch.columns[3], batch.values.field,
        batch.columns[3].buffers[1], found[0], found[0].records()[0], mapping.MappedFile(File("mapped", "w"), 1 << 16),
        notification.Inotify(), buffers.POOL, RecordAccumulator(log), log._held(),
    ]  # fmt: skip
    made = {type(each).__name__: each for each in things}
    made["RecordAppender"] = made["LogAppender"] = opened_bare(log.active)
    return made


def opened_bare(active: Any) -> object:
    """What appends, without the Python class that usually derives from it."""

    class Bare(RecordAppender):
        __slots__ = ()

    bare = Bare()
    bare._apply_limits(limits_of(kstore.LogConfig(), "none"))
    bare._begin(active, 20, 20)
    return bare


STEP = int(os.environ.get("KSTORE_CLASS_STEP", "1"))  # only each STEPth class, others for each shape
SHAPES = {shape.__name__: shape for shape in (raw, derived, whole, cleared, cyclic)}


def main() -> None:
    kinds = sorted(set(classes()), key=lambda kind: (kind.__module__, kind.__name__))
    for kind in kinds[list(SHAPES).index(sys.argv[1]) % STEP :: STEP]:
        where = Path(f"{kind.__module__}.{kind.__name__}")
        where.mkdir()
        child = os.fork()
        if child == 0:
            os.chdir(where)
            signal.alarm(SECONDS)
            gc.freeze()  # or every collection would look at all that was imported
            null = os.open(os.devnull, os.O_RDWR)  # what File.send sends to descriptors that it guesses
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 2)
            SHAPES[sys.argv[1]](Step(), kind)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            how = signal.Signals(-status).name if status < 0 else f"exit {status}"
            print(f"{how}: {(where / 'step').read_text().strip()}", flush=True)
            print((where / "said").read_text(errors="replace")[-4000:], file=sys.stderr)
    print(f"{len(kinds)} classes")


if __name__ == "__main__":
    main()
