"""What the matrix asks of a server through a client. Each case returns what a user of the client sees. It uses
a name of its own for the topic, the group and the transactions."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from tests.broker.matrix.client import LIMIT, Client, ClientError, Consumer, Row, Sent, dotted

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = [
    Sent(
        None if number % 10 == 8 else f"value {number} " * (number % 7),
        None if number % 4 == 3 else f"key {number % 5}",
        (("n", str(number)), ("n", "again")) if number % 3 == 0 else (),
        1_700_000_000_000 + number,
    )
    for number in range(100)
]
EARLIEST = {"auto_offset_reset": "earliest", "enable_auto_commit": "false"}


def named(call: Callable[[], Any]) -> Any:
    """What a call returns, or the name of its error."""
    try:
        return call()
    except ClientError as error:
        return f"error: {error}"


def create(client: Client, topic: str, partitions: int = 1, **config: str) -> None:
    """A topic that keeps records of any time."""
    with closing(client.admin()) as admin:
        admin.create(topic, partitions, 1, {"retention.ms": "-1"} | dotted(config))


def values(count: int, first: int = 0) -> list[Sent]:
    return [Sent(f"v{number}") for number in range(first, first + count)]


def send(client: Client, topic: str, records: Sequence[Sent], **config: str) -> list[int | str]:
    with closing(client.producer(**config)) as producer:
        return producer.send(topic, records)


def read(
    client: Client, topic: str, count: int, partition: int = 0, offset: int = 0, **config: str
) -> list[Row]:
    """`count` records from an offset, and those that come with them."""
    with closing(client.consumer(**EARLIEST | config)) as consumer:
        consumer.assign(topic, partition, offset)
        return take(consumer, count)


def take(consumer: Consumer, count: int) -> list[Row]:
    rows: list[Row] = []
    until = time.monotonic() + LIMIT
    while len(rows) < count:
        assert time.monotonic() < until, f"{len(rows)} of {count} records came"
        rows += consumer.poll(0.5)
    return rows


def settle(consumers: Sequence[Consumer], *shares: int) -> list[Row]:
    """Polls in turns until each has as many partitions as it should have. The records that came."""
    rows: list[Row] = []
    until = time.monotonic() + LIMIT
    while True:
        for consumer in consumers:
            rows += consumer.poll(0.2)
        found = sorted(len(consumer.assignment()) for consumer in consumers)
        if found == sorted(shares):
            return rows
        assert time.monotonic() < until, f"the members have {found} partitions"


def _codec(codec: str) -> Callable[[Client, str], Any]:
    def case(client: Client, topic: str) -> Any:
        create(client, topic)
        sent = send(client, topic, RECORDS, compression_type=codec, linger_ms="50")
        return sent, read(client, topic, len(RECORDS))

    return case


def idempotence(client: Client, topic: str) -> Any:
    create(client, topic)
    with closing(client.producer(enable_idempotence="true", acks="all")) as producer:
        sent = [producer.send(topic, values(20, first)) for first in range(0, 60, 20)]
    with closing(client.producer(enable_idempotence="true", acks="all")) as producer:
        sent.append(producer.send(topic, values(5, 60)))
    return sent, [row[:2] + row[4:] for row in read(client, topic, 65)]


def assign(client: Client, topic: str) -> Any:
    create(client, topic, 2)
    send(client, topic, RECORDS[:20])
    send(client, topic, [each._replace(partition=1) for each in RECORDS[20:23]])
    with closing(client.consumer(**EARLIEST)) as consumer:
        bounds = [consumer.bounds(topic, number) for number in range(2)]

    def outside() -> list[Row]:
        return read(client, topic, 1, 0, 999, auto_offset_reset="none")

    return (
        bounds,
        read(client, topic, 20),
        read(client, topic, 5, 0, 15),
        read(client, topic, 3, 1),
        read(client, topic, 20, 0, 999)[0],  # reset to the earliest
        named(outside),
    )


def rebalance(client: Client, topic: str) -> Any:
    """A second member joins, and leaves: the partitions are shared, and each record comes to somebody."""
    create(client, topic, 4)
    config = EARLIEST | {"group_id": topic, "session_timeout_ms": "10000"}
    with ExitStack() as stack:
        first = stack.enter_context(closing(client.consumer(**config)))
        first.subscribe(topic)
        settle([first], 4)
        alone = first.assignment()
        second = client.consumer(**config)
        second.subscribe(topic)
        settle([first, second], 2, 2)
        shared = [first.assignment(), second.assignment()]
        for number in range(4):
            send(client, topic, [Sent(f"{number}/{n}", partition=number) for n in range(5)])
        rows = take_both([first, second], 20)
        first.commit()
        second.commit()
        positions = [first.committed(topic, number) for number in range(4)]
        second.close()
        settle([first], 4)
        return alone, sorted(map(sorted, shared)), sorted(row[:2] + row[4:] for row in rows), positions


def take_both(consumers: Sequence[Consumer], count: int) -> list[Row]:
    rows: list[Row] = []
    until = time.monotonic() + LIMIT
    while len(rows) < count:
        assert time.monotonic() < until, f"{len(rows)} of {count} records came"
        rows += [row for consumer in consumers for row in consumer.poll(0.2)]
    return rows


def static_members(client: Client, topic: str) -> Any:
    """A member that comes back has its partitions again."""
    create(client, topic, 2)
    config = EARLIEST | {"group_id": topic, "session_timeout_ms": "20000"}
    with ExitStack() as stack:
        first = client.consumer(**config, group_instance_id="one")
        first.subscribe(topic)
        settle([first], 2)
        second = stack.enter_context(closing(client.consumer(**config, group_instance_id="two")))
        second.subscribe(topic)
        settle([first, second], 1, 1)
        before = [first.assignment(), second.assignment()]
        first.close()
        again = stack.enter_context(closing(client.consumer(**config, group_instance_id="one")))
        again.subscribe(topic)
        settle([again, second], 1, 1)
        return before == [again.assignment(), second.assignment()]


def static_fencing(client: Client, topic: str) -> Any:
    """A static member whose name another one takes is fenced."""
    create(client, topic)
    config = EARLIEST | {"group_id": topic, "session_timeout_ms": "20000"}
    with ExitStack() as stack:
        first = stack.enter_context(closing(client.consumer(**config, group_instance_id="one")))
        first.subscribe(topic)
        settle([first], 1)
        same = stack.enter_context(closing(client.consumer(**config, group_instance_id="one")))
        same.subscribe(topic)
        return _first_error(first, [same])


def _first_error(consumer: Consumer, others: Sequence[Consumer]) -> str:
    """What a consumer reports at last, while others are polled, too."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        for other in others:
            other.poll(0.2)
        try:
            consumer.poll(0.2)
        except ClientError as error:
            return str(error)
    return "nothing"


def resume(client: Client, topic: str) -> Any:
    create(client, topic)
    send(client, topic, values(10))
    config = EARLIEST | {"group_id": topic, "max_poll_records": "5"}
    seen: list[Any] = []
    for count in (5, 5):
        with closing(client.consumer(**config)) as consumer:
            seen.append(consumer.committed(topic, 0))
            consumer.subscribe(topic)
            rows = take(consumer, count)
            consumer.commit()
            seen += [consumer.committed(topic, 0), [row.value for row in rows]]
    return seen


def transactions(client: Client, topic: str) -> Any:
    create(client, topic)
    with closing(client.producer(transactional_id=topic, enable_idempotence="true", acks="all")) as producer:
        producer.init()
        sent = []
        for number in range(4):
            producer.begin()
            sent.append(producer.send(topic, values(3, number * 3)))
            producer.send_offset(topic, topic, number + 1)
            producer.commit() if number % 2 == 0 else producer.abort()
    with closing(client.consumer(**EARLIEST, group_id=topic)) as consumer:
        position = consumer.committed(topic, 0)
    committed = read(client, topic, 6, isolation_level="read_committed")
    everything = read(client, topic, 12, isolation_level="read_uncommitted")
    return sent, position, [row[:2] + row[4:] for row in committed], [row[:2] + row[4:] for row in everything]


def fencing(client: Client, topic: str) -> Any:
    """A second producer of the same transactional id takes the first one's place."""
    create(client, topic)
    config = {"transactional_id": topic, "enable_idempotence": "true", "acks": "all"}
    with closing(client.producer(**config)) as first, closing(client.producer(**config)) as second:
        first.init()
        first.begin()
        sent = first.send(topic, values(1))
        second.init()
        fenced = named(first.commit)
        second.begin()
        sent += second.send(topic, values(1, 1))
        second.commit()
        return sent, fenced, [row[:2] for row in read(client, topic, 1, isolation_level="read_committed")]


def admin(client: Client, topic: str) -> Any:
    shown = ("retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "segment.bytes")
    with closing(client.admin()) as admin:
        seen = {
            "create": named(lambda: admin.create(topic, 2, 1, {"retention.ms": "123456"})),
            "again": named(lambda: admin.create(topic, 2, 1, {})),
            "bad name": named(lambda: admin.create("no/name", 1, 1, {})),
            "three replicas": named(lambda: admin.create(f"{topic}-three", 1, 3, {})),
            "unknown option": named(lambda: admin.create(f"{topic}-other", 1, 1, {"no.option": "1"})),
            "bad value": named(lambda: admin.create(f"{topic}-other", 1, 1, {"retention.ms": "soon"})),
            "described": named(lambda: admin.describe(topic, shown)),
            "altered": named(lambda: admin.alter(topic, "retention.ms", "654321")),
            "badly altered": named(lambda: admin.alter(topic, "cleanup.policy", "burn")),
            "unknown altered": named(lambda: admin.alter("nowhere", "retention.ms", "1")),
            "described again": named(lambda: admin.describe(topic, shown)),
            "unknown described": named(lambda: admin.describe("nowhere", shown)),
            "extended": named(lambda: admin.extend(topic, 5)),
            "not reduced": named(lambda: admin.extend(topic, 3)),
            "unknown extended": named(lambda: admin.extend("nowhere", 3)),
            "topics": topic in admin.topics(),
        }
        sent = send(client, topic, [Sent("x", partition=4)])
        seen |= {
            "sent": sent,
            "deleted": named(lambda: admin.delete(topic)),
            "deleted again": named(lambda: admin.delete(topic)),
            "topics at last": topic in admin.topics(),
        }
        return seen


def seek_by_time(client: Client, topic: str) -> Any:
    create(client, topic)
    start = 1_700_000_000_000
    send(client, topic, [Sent(f"v{n}", timestamp=start + n * 1000) for n in range(50)])
    with closing(client.consumer(**EARLIEST)) as consumer:
        asked = (0, start, start + 1, start + 7000, start + 48_999, start + 49_000, start + 49_001)
        found = [consumer.offset_at(topic, 0, each) for each in asked]
        consumer.assign(topic, 0, found[3] or 0)
        return found, take(consumer, 43)


def large_records(client: Client, topic: str) -> Any:
    """Larger than the limits of a fetch; one is larger than the topic allows."""
    create(client, topic, max_message_bytes="4000000")
    config = {"max_request_size": "20000000", "acks": "all"}
    sizes = (3_000_000, 10, 3_900_000)
    sent = [send(client, topic, [Sent("x" * size, timestamp=size)], **config) for size in (*sizes, 4_100_000)]
    limits = {"max_partition_fetch_bytes": "100000", "fetch_max_bytes": "200000"}
    rows = read(client, topic, len(sizes), **limits)
    return sent, [(*row[:3], len(row.value or "")) for row in rows]


CASES: dict[str, Callable[[Client, str], Any]] = {
    **{f"produce with {codec}": _codec(codec) for codec in CODECS},
    "idempotence": idempotence,
    "assign": assign,
    "rebalance": rebalance,
    "static members": static_members,
    "static member fenced": static_fencing,
    "commit and resume": resume,
    "transactions": transactions,
    "fencing": fencing,
    "admin": admin,
    "seek by time": seek_by_time,
    "large records": large_records,
}
