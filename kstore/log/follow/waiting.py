"""Waiting for several readers at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from time import monotonic
from typing import TypeVar

from kstore.arguments import each_of, number
from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.readable import wait_readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import HasFileno


class Waitable(ABC):
    """A reader that `wait` takes: a follower or a cursor."""

    @abstractmethod
    def looks(self) -> Iterator[float]:
        """Look for a record again and again, for `kstore.wait`. Yields for how many seconds to wait at most
        for one of `signals()` before the next look, and ends when iterating the reader would not wait."""

    @abstractmethod
    def signals(self) -> tuple[HasFileno | None, ...]:
        """What becomes readable when the next look is worth it, for `kstore.wait`."""


Reader = TypeVar("Reader", bound=Waitable)


def wait(readers: Iterable[Reader], timeout: float | None = None) -> list[Reader]:
    """Wait until one of several readers has a record, and return those that have, in the given order.

    readers: followers, cursors and share groups of logs and of stores, with follow=True or without.
    timeout: the largest number of seconds to wait. Default: for ever. The list is empty if no reader has a
        record then; 0 does not wait.

    Nothing is read: the next iteration, `take()` or `batch()` of a reader yields the record. The list also
    has readers whose iteration would end or raise an error. A reader belongs to one thread at a time, also
    while wait() uses it.
    """
    if isinstance(readers, Waitable):  # iterating it would read its records
        raise TypeError(
            f"readers are several followers and cursors: give a list, [reader], not {readers!r:.80}"
        )
    listed = []
    for reader in each_of("readers are followers and cursors", readers):
        if not isinstance(reader, Waitable):
            raise TypeError(f"readers are followers and cursors, not {reader!r:.80}")
        listed.append(reader)
    left = math.inf if timeout is None else number("timeout", timeout, 0)
    until = monotonic() + left
    looks = [reader.looks() for reader in listed]
    while True:
        pauses = [next(look, None) for look in looks]
        ready = [reader for reader, pause in zip(listed, pauses, strict=True) if pause is None]
        left = until - monotonic()
        if ready or left <= 0 or not listed:
            return ready
        signals = [signal for reader in listed for signal in reader.signals()]
        wait_readable(signals, min(left, *(pause for pause in pauses if pause is not None)))
