"""Libraries of others, imported when they are first needed.

Not every library can be imported again if its import was broken off, by Ctrl-C or by an exception of a signal
handler: numpy refuses to be loaded twice in a process. So a thread of its own imports, in which no signal
handler runs. Whoever waits for it may be interrupted, and the thread still ends its work.
"""

import _thread
import os
import sys
from importlib import import_module
from time import monotonic, sleep
from types import ModuleType
from typing import Any

from kstore.errors import LibraryError

_PATIENCE = 1.0  # s: then the caller imports, too, which ends when the thread has, or by Python's own look for deadlocks
_FORK_PATIENCE = 10.0  # s
_LEAST_STACK = 1 << 18  # bytes: new threads have less only if the program says so, and imports need some
_importing: dict[int, str] = {}  # by thread


def library(name: str) -> Any:
    """The module of a library of others, imported if it is not yet. LibraryError."""
    try:
        return _imported(name)
    except LibraryError:
        raise
    except ModuleNotFoundError as e:
        package = name.partition(".")[0]
        if e.name is None or e.name.partition(".")[0] != package:
            raise LibraryError(f"{name} cannot be imported: {e}", name=name) from e
        raise LibraryError(f"{package} is not installed: pip install {package}", name=name) from e
    except ImportError as e:
        first = str(e).strip().partition("\n")[0]
        cure = "Start the program again, if an earlier import of it was broken off; else install it again"
        raise LibraryError(f"{name} cannot be imported: {first}. {cure}", name=name) from e


def _imported(name: str) -> ModuleType:
    """A module, imported in another thread if it is not yet. What the import raises; LibraryError if this
    thread is importing it just now, further up."""
    known = sys.modules.get(name)
    if known is not None and not _is_half_done(known):
        return known
    result: list[Any] = [None, None]
    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        me = _thread.get_ident()
        try:
            _importing[me] = name
            result[0] = import_module(name)
        except BaseException as e:  # noqa: BLE001 - it is raised where somebody waits
            result[1] = e
        finally:
            _importing.pop(me, None)
            done.release()

    has_room = not 0 < _thread.stack_size() < _LEAST_STACK
    if has_room and not sys.is_finalizing() and _thread.get_ident() not in _importing:
        try:
            _thread.start_new_thread(work, ())
        except RuntimeError:  # there can be no more threads, or the interpreter is about to end
            pass
        else:
            done.acquire(timeout=_PATIENCE)
            if result[1] is not None:
                raise result[1]
    module = import_module(name)  # at once, if the thread has done it
    if _is_half_done(module):
        raise LibraryError(
            f"{name} is being imported by the code that called kstore, which cannot use it yet", name=name
        )
    return module


def _is_half_done(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _before_fork() -> None:
    """A child that is forked while a thread imports would wait for ever for what only that thread can end."""
    until = monotonic() + _FORK_PATIENCE
    me = _thread.get_ident()
    while any(thread != me for thread in list(_importing)) and monotonic() < until:
        sleep(0.001)


os.register_at_fork(before=_before_fork, after_in_child=_importing.clear)
