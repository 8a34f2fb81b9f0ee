"""Libraries of others, imported when they are first needed.

Not every library can be imported again if its import was broken off, by Ctrl-C or by an exception of a signal
handler: numpy refuses to be loaded twice in a process. So signals wait until an import has ended.
"""

from __future__ import annotations

import _thread
import os
import sys

from kstore.errors import LibraryError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_importing = _thread.RLock()  # a child that is forked in an import would wait for ever for its end


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
    """A module, imported if it is not yet. What the import raises; LibraryError if this thread is importing
    it just now, further up."""
    known = sys.modules.get(name)
    if known is not None and not _is_half_done(known):
        return known
    from importlib import import_module
    from signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals

    before = pthread_sigmask(SIG_BLOCK, ())
    try:
        pthread_sigmask(SIG_BLOCK, valid_signals())  # of which the handler of an earlier signal may raise
        with _importing:
            module = import_module(name)
    finally:
        pthread_sigmask(SIG_SETMASK, before)
    if _is_half_done(module):
        raise LibraryError(
            f"{name} is being imported by the code that called kstore, which cannot use it yet", name=name
        )
    return module


def _is_half_done(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


os.register_at_fork(
    before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
)
