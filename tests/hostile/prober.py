"""Run as `python prober.py`, in an empty directory: makes objects of kstore's compiled classes in wrong ways,
and tries all that can be done with each.

The classes are those of objects that public calls return, and of what the garbage collector finds within such
objects. Each class has a forked process of its own, in each way. What is printed is one line for each that
did not survive, or in which C code broke the rules of Python (SystemError), and last how many classes there
were.
"""

import copy
import ctypes
import gc
import operator
import os
import pickle
import random
import signal
import sys
import tempfile
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.effort import some

TP_CLEAR = 192  # where a type of 64-bit CPython has the function by which the collector empties an object
HEAP_TYPE, HAVE_GC = 1 << 9, 1 << 14  # flags of a type: made by Python code; known to the collector
SECONDS = 60  # for one class
ENOUGH = 5  # objects of one class
INTS = (-1, 0, 1, 7, 1 << 31, (1 << 63) - 1, 1 << 64)
ARGUMENTS: list[tuple[Any, ...]] = [
    *[(None,) * n for n in range(9)], *[(number,) * n for number in INTS for n in (1, 2, 3)],
    (b"",), (b"x" * 80,), ("",), ("x", "x"), (1.5,), (True, None), ([],), ((),), ((None,),), ((1, 2),), ({},),
    (0, None), (0, b"x" * 24), (object(), object()),
]  # fmt: skip
PLAIN = (bool, int, float, str, bytes, type(None))
OPERATORS: list[Callable[[Any], object]] = [
    repr, str, hash, len, bool, bytes, memoryview, list, int, float, operator.index, abs, operator.neg, next,
    dir, vars, copy.copy, copy.deepcopy, reversed, gc.get_referents, sys.getsizeof, os.fspath,
    operator.length_hint,
    lambda x: x == x, lambda x: x < x, lambda x: x != 1, lambda x: x + x, lambda x: x in x,  # noqa: PLR0124
    lambda x: x[0], lambda x: x[0:1], lambda x: x(), lambda x: [next(iter(x)) for _ in range(3)],
    lambda x: {x: x}, lambda x: x @ x,
    *[lambda x, n=n: pickle.dumps(x, n) for n in range(6)],
]  # fmt: skip


class Step:
    """What is being tried, in a file that the parent reads when the child has died."""

    def __init__(self) -> None:
        self.fd = os.open("step", os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def begins(self, what: str) -> None:
        os.pwrite(self.fd, what.encode()[:500].ljust(500), 0)

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


def shown(arguments: tuple[object, ...]) -> str:
    parts = (f"{each!r:.30}" if type(each) in PLAIN else type(each).__name__ for each in arguments)
    return f"({', '.join(parts)})"


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
    step.ordinary(f"with {name}", lambda: thing.__enter__())
    step.ordinary(f"{name}.itself", lambda: setattr(thing, "itself", thing))


# ---- shapes ------------------------------------------------------------------------------------------------


def raw(step: Step, kind: type) -> None:
    """Objects whose __init__ never ran, or ran with what it was not made for."""
    tried = 0
    for arguments in ARGUMENTS:
        for how, make in (
            (".__new__", lambda a=arguments: kind.__new__(kind, *a)),
            ("", lambda a=arguments: kind(*a)),
        ):
            name = f"{kind.__name__}{how}{shown(arguments)}"
            made = step.ordinary(name, make)
            if isinstance(made, kind) and tried < ENOUGH:
                poke(step, name, made)
                tried += how == ""
            del made
            step.ordinary(f"{name} goes", gc.collect)


def derived(step: Step, kind: type) -> None:
    """Objects of Python classes that forget super().__init__(), that add attributes, and that come back when
    freed."""
    resurrected: list[object] = []
    body = {"__init__": lambda self, *_: None, "extra": None}
    for more in ({"__slots__": ("own",)}, {"__del__": lambda self: resurrected.append(self)}):
        name = f"Child({kind.__name__})"
        child = step.ordinary(f"class {name}", lambda m=more: type("Child", (kind,), {**body, **m}))
        if child is None:  # it is final
            return
        for arguments in ((), (None,), ((),), (kstore.LogWriter.__new__(kstore.LogWriter),)):
            made = step.ordinary(f"{name}{shown(arguments)}", lambda c=child, a=arguments: c(*a))
            if made is not None:
                poke(step, f"{name}{shown(arguments)}", made)
            del made
            step.ordinary(f"{name}{shown(arguments)} goes", gc.collect)
            for each in resurrected[:2]:
                poke(step, f"{name} come back", each)
            resurrected.clear()


def whole(step: Step, kind: type) -> None:
    """Objects as they should be, with wrong arguments, and __init__ called again."""
    made = specimens().get(kind.__name__)
    if made is not None:
        poke(step, f"whole {kind.__name__}", made)


def cleared(step: Step, kind: type) -> None:
    """Objects that the collector has emptied, as it does before it frees what is in a cycle."""
    made = specimens().get(kind.__name__)
    at = ctypes.c_void_p.from_address(id(kind) + TP_CLEAR).value
    if made is None or at is None or not kind.__flags__ & HAVE_GC:
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
        # A collection puts what it reaches after what it was reached by: so the order is that of the holders.
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


SHAPES = (raw, derived, whole, cleared, cyclic)


# ---- objects and classes -----------------------------------------------------------------------------------


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


def classes() -> list[type]:
    """The compiled classes of the specimens, and those that they, and public classes, derive from."""
    given = [type(each) for each in specimens().values()] + [getattr(kstore, name) for name in kstore.__all__]
    kinds = {base for kind in given if isinstance(kind, type) for base in kind.__mro__ if is_compiled(base)}
    return sorted(kinds, key=lambda kind: (kind.__module__, kind.__name__))


def main() -> None:
    kinds = classes()
    for shape, kind in some([(shape, kind) for shape in SHAPES for kind in kinds], 50, "shapes"):
        where = Path(f"{shape.__name__} {kind.__module__}.{kind.__name__}")
        where.mkdir()
        child = os.fork()
        if child == 0:
            os.chdir(where)
            signal.alarm(SECONDS)
            gc.freeze()  # or every collection would traverse all that was imported
            null = os.open(os.devnull, os.O_RDWR)  # what File.send sends to descriptors that it guesses
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 2)
            shape(Step(), kind)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            how = signal.Signals(-status).name if status < 0 else f"exit {status}"
            print(f"{shape.__name__}: {how}: {(where / 'step').read_text().strip()}", flush=True)
            print((where / "said").read_text(errors="replace")[-4000:], file=sys.stderr)
    print(f"{len(kinds)} classes")


if __name__ == "__main__":
    main()
