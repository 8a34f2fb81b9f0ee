"""aiokafka, on an event loop of its own thread."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.broker.matrix.client import LIMIT, ClientError, Row, Sent, encoded
from tests.broker.matrix.pure_python import in_python, row


class Aiokafka:
    def __init__(self, address: str) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        """Waits for a coroutine on the loop."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT)
        except (KafkaError, ValueError) as error:
            raise ClientError(type(error).__name__) from error

    def _made(self, kind: Any, config: Mapping[str, str]) -> Any:
        async def make() -> Any:
            made = kind(bootstrap_servers=self._address, **in_python(config))
            await made.start()
            return made

        return self.run(make())

    def producer(self, **config: str) -> "_Producer":
        return _Producer(self, config)

    def consumer(self, **config: str) -> "_Consumer":
        return _Consumer(self, self._made(AIOKafkaConsumer, config))

    def admin(self) -> "_Admin":
        return _Admin(self, self._made(AIOKafkaAdminClient, {}))

    def make_producer(self, config: Mapping[str, str]) -> Any:
        return self._made(AIOKafkaProducer, config)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Producer:
    """A producer of transactions starts when it is initialized, another one at once."""

    def __init__(self, client: Aiokafka, config: Mapping[str, str]) -> None:
        self._client = client
        self._config = config
        self._producer = None if "transactional_id" in config else client.make_producer(config)

    def send(self, topic: str, records: Sequence[Sent]) -> list[int | str]:
        async def done(future: Any) -> int | str:
            try:
                return int((await future).offset)
            except KafkaError as error:
                return f"error: {type(error).__name__}"

        async def all_of() -> list[int | str]:
            futures: list[Any] = []
            for each in records:
                try:
                    futures.append(await self._send(topic, each))
                except KafkaError as error:
                    futures.append(f"error: {type(error).__name__}")
            return [each if isinstance(each, str) else await done(each) for each in futures]

        found: list[int | str] = self._client.run(all_of())
        return found

    async def _send(self, topic: str, each: Sent) -> Any:
        assert self._producer is not None
        headers = [(name, value.encode()) for name, value in each.headers]
        return await self._producer.send(
            topic, encoded(each.value), encoded(each.key), each.partition, each.timestamp, headers
        )

    def init(self) -> None:
        self._producer = self._client.make_producer(self._config)

    def begin(self) -> None:
        self._client.run(self._producer.begin_transaction())

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        positions = {TopicPartition(topic, 0): offset}
        self._client.run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._client.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._client.run(self._producer.abort_transaction())

    def close(self) -> None:
        if self._producer is not None:
            self._client.run(self._producer.stop())


class _Consumer:
    def __init__(self, client: Aiokafka, consumer: Any) -> None:
        self._run = client.run
        self._consumer = consumer

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def assign(self, topic: str, partition: int, offset: int) -> None:
        async def main() -> None:  # it makes futures of the loop
            place = TopicPartition(topic, partition)
            self._consumer.assign([place])
            self._consumer.seek(place, offset)

        self._run(main())

    def poll(self, seconds: float) -> list[Row]:
        found = self._run(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
        return [row(each) for records in found.values() for each in records]

    def assignment(self) -> list[int]:
        return sorted(place.partition for place in self._consumer.assignment())

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self._run(self._consumer.committed(TopicPartition(topic, partition)))
        return found

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        first = self._run(self._consumer.beginning_offsets([place]))[place]
        return first, self._run(self._consumer.end_offsets([place]))[place]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._run(self._consumer.offsets_for_times({place: timestamp}))[place]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._run(self._consumer.stop())


class _Admin:
    def __init__(self, client: Aiokafka, admin: Any) -> None:
        self._run = client.run
        self._admin = admin

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        made = NewTopic(topic, partitions, replicas, topic_configs=dict(config))
        _check(self._run(self._admin.create_topics([made])).topic_errors[0][1])

    def delete(self, topic: str) -> None:
        _check(self._run(self._admin.delete_topics([topic])).topic_error_codes[0][1])

    def extend(self, topic: str, partitions: int) -> None:
        answer = self._run(self._admin.create_partitions({topic: NewPartitions(partitions)}))
        _check(answer.topic_errors[0][1])

    def alter(self, topic: str, option: str, value: str) -> None:
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {option: value})
        (answer,) = self._run(self._admin.alter_configs([changed]))
        _check(answer.resources[0][0])

    def describe(self, topic: str, options: Sequence[str]) -> dict[str, str]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._run(self._admin.describe_configs([asked]))
        code, _, _, _, entries = answer.resources[0]
        _check(code)
        found = {entry[0]: entry[1] for entry in entries}
        return {name: found[name] for name in options}

    def topics(self) -> list[str]:
        found: list[str] = self._run(self._admin.list_topics())
        return sorted(found)

    def close(self) -> None:
        self._run(self._admin.close())


def _check(code: int) -> None:
    if code:
        raise ClientError(for_code(code).__name__)
