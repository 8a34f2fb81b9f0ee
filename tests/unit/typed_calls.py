"""What type checkers take and refuse. It is not run: `make check` has mypy check it, which also reports an
ignore that ignores nothing."""

from datetime import UTC, datetime

import numpy

import kstore

now = datetime.now(UTC)


def taken(log: kstore.LogWriter, store: kstore.LogStore, text: str) -> None:
    kstore.LogStore("x", mode="a", retention_ms=1, durability="group", compression_type="zstd", wait=1.5)
    kstore.LogStore("x", "y", max_open_partitions=3)
    store.create_topic("t", 3, retention_ms=1, cleanup_policy=("compact", "delete"), segment_bytes=None)
    store.alter_topic("t", cleanup_policy="compact,delete", retention_ms=None)
    log.configure(retention_ms=86_400_000, key_files=True)
    kstore.LogConfig().replace(flush_ms=5)
    for value in (b"v", bytearray(b"v"), memoryview(b"v"), None):
        log.append(value, key=value, timestamp=now, headers=[("a", b"b"), ("c", None)])
        store.append("t", value, value, 5, {"a": b"b"})
    log.extend(
        [b"a", None], keys=numpy.array([b"a", b"b"]), timestamps=[1, now], headers=[[("a", None)], None]
    )
    log.extend((b"%d" % i for i in range(3)), timestamps=numpy.array([1, 2, 3]), headers={"a": b"b"})
    store.extend("t", [b"a"], [b"k"], now, [{"a": b"b"}])
    store.create_topic("t", exist_ok=True, retention_ms=1)
    kstore.LogStore("x", wait=5)
    for follower in kstore.wait([log.follow(), log.follow(5)], timeout=1):
        follower.take()
    log.extend(next(iter(log.scan(["value"]))).column("value"))
    log.scan(["offset", "value", "crc"])
    log.scan(("key",), since=now)
    store.scan("t", ["partition", "key"], since=5)
    log.cursor("g").scan(["key"])


async def taken_later(log: kstore.LogWriter, store: kstore.LogStore) -> None:
    await log.append_async(b"v", b"k", now)
    await log.extend_async([b"v"], [None])
    await store.append_async("t", b"v", headers={"a": None})
    await store.extend_async("t", [b"v"])


def refused(log: kstore.LogWriter, store: kstore.LogStore, names: list[str]) -> None:
    kstore.LogStore("x", mode="a", retention_mss=1)  # type: ignore[call-arg]
    kstore.LogStore("x", mode="a", retention_ms="1")  # type: ignore[arg-type]
    kstore.LogStore("x", mode="w")  # type: ignore[arg-type]
    kstore.LogStore("x", mode="a", durability="groups")  # type: ignore[arg-type]
    store.create_topic("t", retention_mss=1)  # type: ignore[call-arg]
    store.create_topic("t", compression_type="zip")  # type: ignore[arg-type]
    store.alter_topic("t", segment_byte=1)  # type: ignore[call-arg]
    log.configure(flush=1)  # type: ignore[call-arg]
    kstore.LogConfig().replace(flush=1)  # type: ignore[call-arg]
    log.append("str")  # type: ignore[arg-type]
    log.append(b"v", key="str")  # type: ignore[arg-type]
    log.append(b"v", timestamp="now")  # type: ignore[arg-type]
    log.append(b"v", headers=[("a", "str")])  # type: ignore[list-item]
    store.append("t", "str")  # type: ignore[arg-type]
    store.append("t", b"v", 5)  # type: ignore[arg-type]
    log.extend("abc")  # type: ignore[arg-type]
    log.extend(b"abc")  # type: ignore[arg-type]
    log.extend(["str"])  # type: ignore[list-item]
    log.extend([b"v"], keys="abc")  # type: ignore[arg-type]
    log.extend([b"v"], timestamps="now")  # type: ignore[arg-type]
    store.extend("t", [b"v"], keys="abc")  # type: ignore[arg-type]
    log.scan(["nope"])  # type: ignore[list-item]
    log.scan(names)  # type: ignore[arg-type]
    log.scan("offset")  # type: ignore[arg-type]
    log.scan(["partition"])  # type: ignore[list-item]
    store.scan("t", ["nope"])  # type: ignore[list-item]
    log.cursor("g").scan(["nope"])  # type: ignore[list-item]


async def refused_later(log: kstore.LogWriter, store: kstore.LogStore) -> None:
    await log.append_async("str")  # type: ignore[arg-type]
    await log.extend_async("abc")  # type: ignore[arg-type]
    await store.append_async("t", "str")  # type: ignore[arg-type]
    await store.extend_async("t", [b"v"], keys="abc")  # type: ignore[arg-type]
