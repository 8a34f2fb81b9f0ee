"""Iterations by tasks of asyncio."""

from __future__ import annotations

from typing import Generic, TypeVar

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from typing import Self

TASK_TURN = 32  # records that one task takes before the others have a turn
T = TypeVar("T")


async def in_turns(iterate: Callable[[], Iterator[T]], turn: int) -> AsyncGenerator[T, None]:
    """Gives the items of an iterator that does not wait. After each `turn` of them other tasks run."""
    import asyncio

    for count, item in enumerate(iterate(), 1):
        yield item
        if count % turn == 0:
            await asyncio.sleep(0)


class Resumed(Generic[T]):
    """An async iterator of what `make` gives: whoever asks for one more after an error, or after a
    cancellation (asyncio.wait_for cancels), gets what comes next. An async generator alone would say that it
    is at its end, as if nothing more came.

    `make` makes a generator that goes on from where the one before it was."""

    def __init__(self, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        self._make = make
        self._items = make()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        items = self._items
        try:
            return await anext(items)
        except StopAsyncIteration:
            raise
        except BaseException:
            # else another task is in it, which this one may not be
            if not getattr(items, "ag_running", False):
                self._items = self._make()
            raise

    async def aclose(self) -> None:
        """Ends the iteration."""
        await self._items.aclose()
