"""An iteration by a task of asyncio that goes on after the task was cancelled in it."""

from collections.abc import AsyncGenerator, Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


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
