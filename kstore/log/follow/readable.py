"""Waiting until one of several sources has something to read, in a thread or in an event loop."""

from __future__ import annotations

import select

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import HasFileno


def wait_readable(sources: Iterable[HasFileno | None], seconds: float) -> bool:
    """Whether one of the sources can be read within that time. None is passed over. OSError."""
    poll = select.poll()  # not epoll: gevent takes that away, and makes this one let other greenlets run
    for source in sources:
        if source is not None:
            poll.register(source, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


async def wait_readable_async(sources: Iterable[HasFileno | None], seconds: float) -> bool:
    """Whether one of the sources can be read within that time; other tasks run meanwhile."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()

    def end(is_readable: bool) -> None:
        if not ready.done():
            ready.set_result(is_readable)

    # The sources are held until they are removed: else another task could drop one, and its number be that of
    # another file.
    watched = [source for source in sources if source is not None]
    for source in watched:
        loop.add_reader(source, end, True)
    timer = loop.call_later(seconds, end, False)
    try:
        return await ready
    finally:
        timer.cancel()
        for source in watched:
            loop.remove_reader(source)
