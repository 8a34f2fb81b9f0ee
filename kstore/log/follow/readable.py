"""Waiting until a descriptor has something to read, in a thread or in an event loop."""

import select
from collections.abc import Iterable


def wait_readable(descriptors: Iterable[int], seconds: float) -> bool:
    """Whether one of the descriptors can be read within that time. OSError."""
    poll = select.poll()  # not epoll: gevent takes that away, and makes this one let other greenlets run
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


async def wait_readable_async(descriptors: Iterable[int], seconds: float) -> bool:
    """Whether one of the descriptors can be read within that time; other tasks run meanwhile."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()

    def end(is_readable: bool) -> None:
        if not ready.done():
            ready.set_result(is_readable)

    watched = list(descriptors)
    for descriptor in watched:
        loop.add_reader(descriptor, end, True)
    timer = loop.call_later(seconds, end, False)
    try:
        return await ready
    finally:
        timer.cancel()
        for descriptor in watched:
            loop.remove_reader(descriptor)
