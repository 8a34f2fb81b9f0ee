"""confluent-kafka, that is librdkafka."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.broker.matrix.client import LIMIT, ClientError, Row, Sent, decoded, dotted, encoded

_NAMES = {"max.request.size": "message.max.bytes"}


def _called(call: Any, *arguments: Any, **more: Any) -> Any:
    try:
        return call(*arguments, **more)
    except KafkaException as error:
        raise ClientError(error.args[0].name()) from error


class Librdkafka:
    def __init__(self, address: str) -> None:
        self._address = address

    def _config(self, config: Mapping[str, str]) -> dict[str, Any]:
        given = {_NAMES.get(name, name): value for name, value in dotted(config).items()}
        if given.get("auto.offset.reset") == "none":
            given["auto.offset.reset"] = "error"
        own = {"bootstrap.servers": self._address, "log_level": 0}
        return own | given

    def producer(self, **config: str) -> "_Producer":
        return _Producer(self._config(config))

    def consumer(self, **config: str) -> "_Consumer":
        fetch = {} if "fetch_max_bytes" not in config else {"message_max_bytes": config["fetch_max_bytes"]}
        count = int(config.pop("max_poll_records", 500))
        return _Consumer(self._config({"group_id": "unused"} | config | fetch), count)

    def admin(self) -> "_Admin":
        return _Admin(self._config({}))

    def close(self) -> None: ...


class _Producer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._address = config["bootstrap.servers"]
        self._producer = Producer(config)

    def send(self, topic: str, records: Sequence[Sent]) -> list[int | str]:
        found: dict[int, int | str] = {}
        for number, each in enumerate(records):

            def keep(error: Any, message: Any, number: int = number) -> None:
                found[number] = f"error: {error.name()}" if error else message.offset()

            timed = {} if each.timestamp is None else {"timestamp": each.timestamp}
            headers = [(name, value.encode()) for name, value in each.headers]
            try:
                self._producer.produce(
                    topic,
                    encoded(each.value),
                    encoded(each.key),
                    each.partition,
                    keep,
                    headers=headers,
                    **timed,
                )
            except KafkaException as error:
                found[number] = f"error: {error.args[0].name()}"
        assert self._producer.flush(LIMIT) == 0
        return [found[number] for number in range(len(records))]

    def init(self) -> None:
        _called(self._producer.init_transactions, LIMIT)

    def begin(self) -> None:
        _called(self._producer.begin_transaction)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        member = Consumer({"bootstrap.servers": self._address, "group.id": group})
        place = TopicPartition(topic, 0, offset)
        _called(self._producer.send_offsets_to_transaction, [place], member.consumer_group_metadata(), LIMIT)
        member.close()

    def commit(self) -> None:
        _called(self._producer.commit_transaction, LIMIT)

    def abort(self) -> None:
        _called(self._producer.abort_transaction, LIMIT)

    def close(self) -> None:
        with suppress(KafkaException):  # one that was fenced
            self._producer.flush(LIMIT)


class _Consumer:
    def __init__(self, config: dict[str, Any], count: int) -> None:
        self._consumer = Consumer(config)
        self._count = count

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def poll(self, seconds: float) -> list[Row]:
        rows = []
        for message in _called(self._consumer.consume, self._count, seconds):
            if message.error() is not None:
                raise ClientError(message.error().name())
            headers = tuple((name, value.decode()) for name, value in message.headers() or ())
            row = (message.partition(), message.offset(), message.timestamp()[1])
            rows.append(Row(*row, decoded(message.key()), decoded(message.value()), headers))
        return rows

    def assignment(self) -> list[int]:
        return sorted(place.partition for place in self._consumer.assignment())

    def commit(self) -> None:
        _called(self._consumer.commit, asynchronous=False)

    def committed(self, topic: str, partition: int) -> int | None:
        (place,) = _called(self._consumer.committed, [TopicPartition(topic, partition)], LIMIT)
        return place.offset if place.offset >= 0 else None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = _called(self._consumer.get_watermark_offsets, TopicPartition(topic, partition), LIMIT)
        return first, end

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        (place,) = _called(
            self._consumer.offsets_for_times, [TopicPartition(topic, partition, timestamp)], LIMIT
        )
        return place.offset if place.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()


class _Admin:
    def __init__(self, config: dict[str, Any]) -> None:
        self._admin = AdminClient(config)

    def _wait(self, futures: Mapping[Any, Any]) -> Any:
        (future,) = futures.values()
        return _called(future.result, LIMIT)

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        self._wait(self._admin.create_topics([NewTopic(topic, partitions, replicas, config=dict(config))]))

    def delete(self, topic: str) -> None:
        self._wait(self._admin.delete_topics([topic]))

    def extend(self, topic: str, partitions: int) -> None:
        self._wait(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def alter(self, topic: str, option: str, value: str) -> None:
        entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._wait(self._admin.incremental_alter_configs([resource]))

    def describe(self, topic: str, options: Sequence[str]) -> dict[str, str]:
        found = self._wait(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: found[name].value for name in options}

    def topics(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=LIMIT).topics)

    def close(self) -> None: ...
