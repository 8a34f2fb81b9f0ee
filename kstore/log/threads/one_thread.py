"""An iteration that two threads do not make at once."""

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Generic, Self, TypeVar
from weakref import ref

_T = TypeVar("_T")

BUSY = "this iterator is being read already; each thread needs one of its own"


class Iterated:
    """What is iterated, by one thread at a time: who begins anew goes on from where the one before was."""

    _iteration: "ref[OneThread[Any]] | None" = None  # the last one, unless it has ended
    _busy = 0  # the number of the thread that is inside: one that was interrupted gets in again; 0 for none


class OneThread(Generic[_T]):
    """What a generator gives. RuntimeError while another thread is inside it, or has another iteration of the
    same that has not ended: both would read on from one position. One that was broken off is garbage, and
    has.

    It is asked once for many records. Between the look whether somebody is inside and the mark that somebody
    is, which begins a `try`, CPython neither switches threads nor runs signal handlers.
    """

    def __init__(self, of: Iterated, make: Callable[[], Iterator[_T]]) -> None:
        self._of = of
        self._make = make
        self._items: Iterator[_T] | None = None
        self._thread = 0
        self._ref = ref(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        of, me, mine = self._of, get_ident(), self._ref
        last = of._iteration
        other = None if last is None or last is mine else last()
        elsewhere = of._busy not in (0, me) or (other is not None and other._thread != me)
        if elsewhere or of._iteration is not last:
            raise RuntimeError(BUSY)
        try:
            of._busy = me
            of._iteration = mine
            self._thread = me  # another one may go on with it
            if self._items is None:
                self._items = self._make()
            return next(self._items)
        except BaseException:
            of._iteration = None
            raise
        finally:
            of._busy = 0
