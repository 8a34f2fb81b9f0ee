"""A broker inside the test process, with a clock that the test moves and faults that it asks for."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.arguments import choice, integer, number
from kstore.serving.connection import Connection, Disconnect, Limits
from kstore.serving.error_codes import ErrorCode
from kstore.serving.protocol.apis import APIS
from kstore.serving.server import Server
from kstore.serving.service import KEYS, Service
from kstore.store import LogStore

if TYPE_CHECKING:
    from kstore.serving.connection import Handler

_COORDINATED = {
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
}


class Clock:
    """The clock of a Broker: the time of the system, plus what the test has added. Calling it gives
    milliseconds since 1970."""

    def __init__(self) -> None:
        self._added_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._added_ms

    def add(self, seconds: float) -> None:
        """Move the clock forward."""
        self._added_ms += round(seconds * 1000)


class _Fault(NamedTuple):
    """What happens to a request instead of the right answer, or before or after it."""

    code: int | None = None
    delay: float = 0.0
    drops: bool = False
    is_after: bool = False


class Broker:
    """A broker for tests. kstore.testing.broker() makes one.

    `bootstrap_servers`: its address, for any Kafka client. `store`: the LogStore that it serves, for
    assertions and for records that the test adds. `clock`: what its timestamps and the timeouts of groups go
    by.
    """

    def __init__(self, directory: str, topics: Iterable[str] | Mapping[str, int], **options: Any) -> None:
        self.clock = Clock()
        self._create_topics = options.pop("create_topics")
        self._options = {"background": False, **options, "mode": "a", "clock": self.clock}
        self._directory = directory
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)
        self._has_moved = False
        self._lock = threading.Lock()
        self._open(0)
        with ExitStack() as undo:
            undo.callback(self.close)
            for name in topics:
                self.store.create_topic(name, topics[name] if isinstance(topics, Mapping) else 1)
            undo.pop_all()

    def _open(self, port: int) -> None:
        self.store = LogStore(self._directory, **self._options)
        self._service = Service(
            self.store, create_topics=self._create_topics, clock=self.clock, state_partitions=1
        )
        handlers = {
            key: self._with_faults(APIS[key].name, handler) for key, handler in self._service.handlers.items()
        }
        self._server = Server("127.0.0.1", port, handlers, Limits(), self._service.close)

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker."""
        return self._server.bootstrap_servers

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and do what is due then: sessions of group members end, and so on."""
        self.clock.add(number("seconds", seconds, 0))
        self._service.tick()

    def fail(self, api: str, error: str | int, times: int = 1) -> None:
        """Answer the next requests with an error, and do nothing of what they ask for.

        api: Kafka's name of the request: "Produce", "Fetch", "OffsetCommit" and so on. error: Kafka's name or
        code of the error, such as "NOT_ENOUGH_REPLICAS". times: for how many requests. ValueError for an
        unknown name.
        """
        _check_api(api)
        code = (
            ErrorCode[choice("error", error, tuple(ErrorCode.__members__))]
            if isinstance(error, str)
            else error
        )
        _failed(api, {"topics": [], "topicData": [], "v3AndBelowTopics": []}, code)  # ValueError
        self._add(api, times, _Fault(code=code))

    def delay(self, api: str, seconds: float, times: int = 1) -> None:
        """Answer the next requests so much later, by the system's clock. The arguments are those of
        `fail`."""
        self._add(api, times, _Fault(delay=number("seconds", seconds, 0)))

    def drop(self, api: str, times: int = 1, *, after: bool = False) -> None:
        """Close the connection instead of answering the next requests. after: True does what they ask for
        first, so that only the answer is lost. Default: False. The others are those of `fail`."""
        self._add(api, times, _Fault(drops=True, is_after=after))

    def move_coordinator(self) -> None:
        """Answer requests about groups and transactions with NOT_COORDINATOR, until a client looks for the
        coordinator again."""
        self._has_moved = True

    def disconnect(self) -> None:
        """Close all connections. Clients may connect again."""
        self._server.disconnect()

    def restart(self, *, clean: bool = True) -> None:
        """Stop the broker and start it again at the same port. clean: False stops it as a crash does.
        Default: True. `store` is another object then."""
        port = self._server.port
        self._server.close()
        self.store.close() if clean else self.store.abandon()
        self._open(port)

    def _add(self, api: str, times: int, fault: _Fault) -> None:
        _check_api(api)
        self._faults[api].extend([fault] * integer("times", times, 1))

    def _with_faults(self, api: str, handler: Handler) -> Handler:
        def answer(values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any] | None:
            if api == "FindCoordinator":
                self._has_moved = False
            elif self._has_moved and api in _COORDINATED:
                return _failed(api, values, ErrorCode.NOT_COORDINATOR)
            with self._lock:
                waiting = self._faults[api]
                fault = waiting.popleft() if waiting else _Fault()
            time.sleep(fault.delay)
            if fault.drops and not fault.is_after:
                raise Disconnect
            found = (
                handler(values, version, connection)
                if fault.code is None
                else _failed(api, values, fault.code)
            )
            if fault.drops:
                raise Disconnect
            connection.quiet_seconds = 0.0  # the next request comes here, too
            return found

        return answer

    def close(self) -> None:
        """Stop the broker."""
        self._server.close()
        self.store.close()


def _check_api(api: str) -> None:
    """ValueError unless it is the name of a request."""
    if api not in KEYS:
        near = get_close_matches(str(api), KEYS, 1)
        raise ValueError(
            f"api must be the name of a request, such as {near[0] if near else 'Produce'}, not {api!r}"
        )


def _failed(api: str, values: dict[str, Any], code: int) -> dict[str, Any]:
    """The answer of an API with an error. ValueError if its answers have none."""

    def each(
        topics: str, name: str, partitions: str, number: str, answer: str, field: str
    ) -> list[dict[str, Any]]:
        return [
            {
                name: topic[name],
                answer: [
                    {number: part if isinstance(part, int) else part[number], field: code}
                    for part in topic[partitions]
                ],
            }
            for topic in values[topics]
        ]

    if api == "Produce":
        return {
            "responses": each(
                "topicData", "name", "partitionData", "index", "partitionResponses", "errorCode"
            )
        }
    if api == "Fetch":
        topics = each("topics", "topic", "partitions", "partition", "partitions", "errorCode")
        for topic in topics:
            for part in topic["partitions"]:
                part |= {
                    "partitionIndex": part.pop("partition"),
                    "highWatermark": -1,
                    "abortedTransactions": None,
                }
        return {"responses": topics}
    if api in ("ListOffsets", "OffsetCommit", "TxnOffsetCommit", "DeleteRecords"):
        return {"topics": each("topics", "name", "partitions", "partitionIndex", "partitions", "errorCode")}
    if api == "AddPartitionsToTxn":
        topics = each(
            "v3AndBelowTopics",
            "name",
            "partitions",
            "partitionIndex",
            "resultsByPartition",
            "partitionErrorCode",
        )
        return {"resultsByTopicV3AndBelow": topics}
    if api in KEYS and any(field.name == "errorCode" for field in APIS[KEYS[api]].response.fields):
        return {"errorCode": code}
    raise ValueError(f"api must be the name of a request whose answers have one error, not {api!r}")


@contextmanager
def broker(
    topics: Iterable[str] | Mapping[str, int] = (),
    *,
    create_topics: bool = True,
    directory: str | None = None,
    **options: Any,
) -> Iterator[Broker]:
    """Run a Broker in this process: `with broker(["orders"]) as running:`.

    topics: names of topics to create, each with one partition, or a mapping from names to numbers of
        partitions.
    create_topics: whether a topic is created if a client asks for one that does not exist. Default: True.
    directory: the log directory. Default: a temporary directory, which is deleted at the end.
    options: those of LogStore for writing, such as retention_ms or durability. But background is False by
        default: nothing is deleted or compacted unless the test calls store.retain() and so on.
    """
    with tempfile.TemporaryDirectory(prefix="kstore-broker-") as temporary:
        running = Broker(directory or temporary, topics, create_topics=create_topics, **options)
        try:
            yield running
        finally:
            running.close()
