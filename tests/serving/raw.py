"""A client that sends single requests, in any version."""

import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

import kstore
from kstore.messages.reader import Reader
from kstore.messages.writer import Writer
from kstore.serving.protocol.apis import API_VERSIONS, APIS


def encoded(*values: bytes, timestamp: int | None = None, **options: Any) -> bytes:
    """A batch as a producer sends it, of records without keys."""
    now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    return kstore.encode_batch([(now, None, value, ()) for value in values], **options)


KEYS = {api.name: key for key, api in APIS.items()}


class RawClient:
    """A connection. `ask` sends a request and returns the values of its response."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=30)
        self._number = 0

    def send(self, name: str, version: int, values: dict[str, Any]) -> None:
        self.sock.sendall(self.encoded(name, version, values))

    def encoded(self, name: str, version: int, values: dict[str, Any]) -> bytes:
        """The next request as it is sent."""
        api = APIS[KEYS[name]]
        self._number += 1
        header = Writer()
        for number, size in ((api.key, 2), (version, 2), (self._number, 4)):
            header.number(number, size, True, "header")
        header.raw(struct.pack(">h", 3) + b"raw")
        if version >= api.request.flexible:
            header.varint(0)
        body = header.getvalue() + api.request.write_version(values, version)
        return struct.pack(">i", len(body)) + body

    def receive(self, name: str, version: int) -> dict[str, Any]:
        api = APIS[KEYS[name]]
        source = Reader(self.frame())
        assert source.number(4) == self._number
        if version >= api.response.flexible and api.key != API_VERSIONS:
            assert source.varint() == 0
        values = api.response.read_version(source, version)
        assert source.remaining == 0
        return values

    def ask(self, name: str, version: int, values: dict[str, Any]) -> dict[str, Any]:
        self.send(name, version, values)
        return self.receive(name, version)

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self.sock.recv(size - len(found))
            if not data:
                raise ConnectionResetError("the server closed the connection")
            found += data
        return found

    def fetch(self, *wanted: tuple[str, int, int], version: int = 11, **options: Any) -> list[dict[str, Any]]:
        """The answers for (topic, partition, offset)."""
        self.send_fetch(*wanted, version=version, **options)
        return self.receive_fetch(version)

    def send_fetch(self, *wanted: tuple[str, int, int], version: int = 11, **options: Any) -> None:
        most = options.pop("partition_max_bytes", 1 << 20)
        epoch = options.pop("epoch", -1)
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": number,
                        "fetchOffset": offset,
                        "partitionMaxBytes": most,
                        "currentLeaderEpoch": epoch,
                    }
                ],
            }
            for topic, number, offset in wanted
        ]
        self.send("Fetch", version, {"maxWaitMs": 0, "minBytes": 1, "topics": topics, **options})

    def receive_fetch(self, version: int = 11) -> list[dict[str, Any]]:
        answer = self.receive("Fetch", version)
        found = [each for topic in answer["responses"] for each in topic["partitions"]]
        for each in found:
            each["records"] = bytes(each["records"])
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()
