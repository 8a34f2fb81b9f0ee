"""An iteration that two threads do not make at once."""

from __future__ import annotations

from threading import get_ident
from typing import Generic, TypeVar
from weakref import ref

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Self

_T = TypeVar("_T")

BUSY = "this iterator is being read already; each thread needs one of its own"


class Iterated:
    """What one thread at a time iterates: an iteration goes on from where the one before it was.

    `iteration` is the last one, unless it has ended; `busy` the number of the thread that is inside, 0 for
    none. A thread that was interrupted gets in again.
    """

    __slots__ = ("busy", "iteration")

    def __init__(self) -> None:
        self.iteration: ref[OneThread[Any]] | None = None
        self.busy = 0


class OneThread(Generic[_T]):
    """What a generator gives. RuntimeError while another thread is inside it, or has another iteration of the
    same object that has not ended: both would read on from one position. An iteration that was broken off is
    garbage, and has ended.

    It is asked once for many records. Between the look whether a thread is inside and the mark that one is,
    which begins a `try`, CPython neither switches threads nor runs signal handlers.
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
        last = of.iteration
        other = None if last is None or last is mine else last()
        elsewhere = of.busy not in (0, me) or (other is not None and other._thread != me)
        if elsewhere or of.iteration is not last:
            raise RuntimeError(BUSY)
        try:
            of.busy = me
            of.iteration = None  # if it ends now, or fails
            self._thread = me  # another one may go on with it
            if self._items is None:
                self._items = self._make()
            item = next(self._items)
            of.iteration = mine
            return item
        finally:
            of.busy = 0
