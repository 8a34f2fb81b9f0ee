"""Kafka's clients in Java, each version with the jars that Maven fetches for it."""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.broker.matrix.client import ClientError, Row, Sent, dotted
from tests.broker.node import JAVA
from tests.kafka.jvm import BUILD, fetch_jars, run_tool

HERE = Path(__file__).parent
OLD, NEW = "3.9.1", "4.3.1"


class Java:
    """A JVM with the clients of one version. KafkaMissingError."""

    def __init__(self, version: str, address: str) -> None:
        jars = BUILD / f"clients-{version}"
        fetch_jars(HERE / "pom.xml", jars, f"-Dkafka.version={version}")
        self._classes = tempfile.TemporaryDirectory()
        paths = f"{self._classes.name}:{jars}/*"
        run_tool("javac", "-nowarn", "-cp", paths, "-d", self._classes.name, str(HERE / "Client.java"))
        self._process = subprocess.Popen(
            [*JAVA, "-cp", paths, "Client", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, op: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **given}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["value"]

    def producer(self, **config: str) -> "_Producer":
        return _Producer(self, "producer", config)

    def consumer(self, **config: str) -> "_Consumer":
        return _Consumer(self, "consumer", config)

    def admin(self) -> "_Admin":
        return _Admin(self, "admin", {})

    def close(self) -> None:
        self._process.communicate(timeout=60)
        self._classes.cleanup()


class _Remote:
    """An object of the JVM."""

    def __init__(self, java: Java, kind: str, config: Mapping[str, str]) -> None:
        self._java = java
        self._number = java.ask(kind, config=dotted(config))

    def _ask(self, op: str, **given: Any) -> Any:
        return self._java.ask(op, on=self._number, **given)

    def commit(self) -> None:
        self._ask("commit")

    def close(self) -> None:
        self._ask("close")


class _Producer(_Remote):
    def send(self, topic: str, records: Sequence[Sent]) -> list[int | str]:
        found: list[int | str] = self._ask("send", topic=topic, records=records)
        return found

    def init(self) -> None:
        self._ask("init")

    def begin(self) -> None:
        self._ask("begin")

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._ask("send_offset", group=group, topic=topic, partition=0, offset=offset)

    def abort(self) -> None:
        self._ask("abort")


class _Consumer(_Remote):
    def subscribe(self, topic: str) -> None:
        self._ask("subscribe", topic=topic)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._ask("assign", topic=topic, partition=partition, offset=offset)

    def poll(self, seconds: float) -> list[Row]:
        rows = self._ask("poll", milliseconds=int(seconds * 1000))
        return [Row(*each[:5], tuple((name, value) for name, value in each[5])) for each in rows]

    def assignment(self) -> list[int]:
        found: list[int] = self._ask("assignment")
        return found

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self._ask("committed", topic=topic, partition=partition)
        return found

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = self._ask("bounds", topic=topic, partition=partition)
        return first, end

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        found: int | None = self._ask("offset_at", topic=topic, partition=partition, timestamp=timestamp)
        return found


class _Admin(_Remote):
    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        self._ask("create", topic=topic, partitions=partitions, replicas=replicas, options=dict(config))

    def delete(self, topic: str) -> None:
        self._ask("delete", topic=topic)

    def extend(self, topic: str, partitions: int) -> None:
        self._ask("extend", topic=topic, partitions=partitions)

    def alter(self, topic: str, option: str, value: str) -> None:
        self._ask("alter", topic=topic, option=option, value=value)

    def describe(self, topic: str, options: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = self._ask("describe", topic=topic, options=options)
        return found

    def topics(self) -> list[str]:
        found: list[str] = self._ask("topics")
        return found
