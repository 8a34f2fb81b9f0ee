"""Reading that waits, work in the background, and sending, under gevent's monkey patching and in uvloop's event loop."""

import asyncio
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python

PROGRAM = """
import sys, gevent.monkey
from pathlib import Path
if sys.argv[2] == "before":
    gevent.monkey.patch_all()
import kstore, gevent
path = Path(sys.argv[1])
if sys.argv[2] == "after":
    kstore.open(path / "warm-0", "a").close()
    gevent.monkey.patch_all()
with kstore.open(path / "t-0", "a") as log:
    log.extend([b"a"] * 10)
    ticks = []
    def tick():
        while len(ticks) < 5:
            ticks.append(1)
            gevent.sleep(0.01)
    ticking = gevent.spawn(tick)
    print(len(list(log.follow(0, timeout=0.5))), len(ticks))
    print(len(list(kstore.open(path / "t-0").follow(0, timeout=0.1))))
    with kstore.open(path / "t-0").cursor("g", follow=True, timeout=0.1) as cursor:
        print(len(list(cursor)))
    with kstore.open(path / "t-0").cursor("h") as cursor, cursor.batch(3, timeout=0.1) as records:
        print(len(records))
    print(len(list(kstore.LogStore(path).follow(["t"], "earliest", timeout=0.1))))
    print(max(greenlet.value for greenlet in gevent.joinall([gevent.spawn(log.append, b"g") for _ in range(20)])))
    with log.follow() as follower:
        gevent.spawn_later(0.05, log.append, b"g")
        print(kstore.wait([follower]) == [follower])
    with log.appender() as appender:
        ticket = appender.append(b"g")
    print(ticket.offset)
    print(sum(len(batch) for batch in log.scan(["value"], threads=2)))
with kstore.LogStore(path / "store", mode="a", log_flush_offset_checkpoint_interval_ms=10) as store:
    store.create_topic("t", flush_ms=1)
    store.append("t", b"g")
    while store.log("t").durable_offset == 0:  # a thread of the background flushes
        gevent.sleep(0.01)
print("closed")
"""


@pytest.mark.parametrize("patched", ["before", "after"])
def test_gevent(tmp_path: Path, patched: str) -> None:
    """Patched before kstore is imported, or after."""
    pytest.importorskip("gevent")
    done = run_python(PROGRAM, tmp_path, patched)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["10 5", "10", "10", "3", "10", "29", "True", "31", "32", "closed"]


def test_uvloop(tmp_path: Path) -> None:
    """A span goes to a StreamWriter, to its transport and to a socket; followers and cursors wait."""
    uvloop = pytest.importorskip("uvloop")

    async def main(log: kstore.LogWriter) -> None:
        await asyncio.gather(*(log.append_async(b"%d" % number) for number in range(20)))
        sent: list[object] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sent.append(await log.span(0).send_async(writer))
            sent.append(await log.span(0).send_async(writer.transport))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = await reader.read()
        writer.close()
        server.close()
        assert received == 2 * bytes(log.span(0))
        assert len(sent) == 2
        async with kstore.open(log.path).follow(0, timeout=0.1) as follower:
            assert len([record async for record in follower]) == 20
        async with kstore.open(log.path).cursor("g", follow=True, timeout=0.1) as cursor:
            assert len([record async for record in cursor]) == 20
            await cursor.commit_async()

    with kstore.open(tmp_path / "t-0", "a", durability="group") as log:
        uvloop.run(main(log))
