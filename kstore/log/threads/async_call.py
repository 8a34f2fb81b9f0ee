"""A call that a task of asyncio has made in another thread, and whose outcome it knows in any case."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


async def in_thread(work: Callable[[], None]) -> None:
    """Calls `work` in another thread. If the task is cancelled, it waits for the end nevertheless, unless the
    call has not begun, which then it never does: so what it does is done or not done when the task goes on.
    """
    import asyncio

    runs: dict[str, bool] = {}  # empty, until the call begins or is withdrawn: one step

    def run() -> None:
        if runs.setdefault("", True):
            work()

    call = asyncio.ensure_future(asyncio.to_thread(run))
    cancelled: Any = None
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError as e:
            if not runs.setdefault("", False):
                raise
            cancelled = e
    if cancelled is not None:
        raise cancelled from call.exception()
    call.result()
