"""What each client of the matrix can do, in Kafka's words; keys and values are text."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

LIMIT = 60  # seconds for an answer that must come


class ClientError(Exception):
    """What a client reports; the text is its own name of the error."""


class Sent(NamedTuple):
    """A record to send."""

    value: str | None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timestamp: int | None = None
    partition: int = 0


class Row(NamedTuple):
    """A record as a consumer gives it."""

    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]


class Producer(Protocol):
    def send(self, topic: str, records: Sequence[Sent]) -> list[int | str]:
        """Sends and waits: for each record its offset, or the name of the error."""

    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """The position of a group in partition 0, as a part of the transaction."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Consumer(Protocol):
    def subscribe(self, topic: str) -> None: ...
    def assign(self, topic: str, partition: int, offset: int) -> None: ...
    def poll(self, seconds: float) -> list[Row]: ...
    def assignment(self) -> list[int]:
        """The numbers of the partitions that it has, sorted."""

    def commit(self) -> None: ...
    def committed(self, topic: str, partition: int) -> int | None: ...
    def bounds(self, topic: str, partition: int) -> tuple[int, int]: ...
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The offset of the first record with this timestamp or a later one."""

    def close(self) -> None: ...


class Admin(Protocol):
    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None: ...
    def delete(self, topic: str) -> None: ...
    def extend(self, topic: str, partitions: int) -> None: ...
    def alter(self, topic: str, option: str, value: str) -> None: ...
    def describe(self, topic: str, options: Sequence[str]) -> dict[str, str]: ...
    def topics(self) -> list[str]: ...
    def close(self) -> None: ...


class Client(Protocol):
    """Makes producers, consumers and an admin of one server, with Kafka's names of the options."""

    def producer(self, **config: str) -> Producer: ...
    def consumer(self, **config: str) -> Consumer: ...
    def admin(self) -> Admin: ...
    def close(self) -> None: ...


def dotted(config: Mapping[str, str]) -> dict[str, str]:
    """Kafka's names from those of Python's keywords."""
    return {name.replace("_", "."): value for name, value in config.items()}


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
