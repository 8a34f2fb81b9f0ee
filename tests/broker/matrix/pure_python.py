"""kafka-python."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.broker.matrix.client import LIMIT, ClientError, Row, Sent, decoded, encoded

_CONVERTED = {"true": True, "false": False, "none": None}


def in_python(config: Mapping[str, str]) -> dict[str, Any]:
    """The options of kafka-python and aiokafka: Python's values."""
    reset = {} if "auto_offset_reset" not in config else {"auto_offset_reset": config["auto_offset_reset"]}
    return {
        name: int(value) if value.isdigit() else _CONVERTED.get(value, value)
        for name, value in config.items()
    } | reset


def _called(call: Any, *arguments: Any, **more: Any) -> Any:
    try:
        return call(*arguments, **more)
    except (KafkaError, ValueError) as error:
        raise ClientError(type(error).__name__) from error


class KafkaPython:
    def __init__(self, address: str) -> None:
        self._address = address

    def producer(self, **config: str) -> "_Producer":
        return _Producer(KafkaProducer(bootstrap_servers=self._address, **in_python(config)))

    def consumer(self, **config: str) -> "_Consumer":
        return _Consumer(KafkaConsumer(bootstrap_servers=self._address, **in_python(config)))

    def admin(self) -> "_Admin":
        return _Admin(KafkaAdminClient(bootstrap_servers=self._address))

    def close(self) -> None: ...


class _Producer:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Sent]) -> list[int | str]:
        def sent(each: Sent) -> Any:
            headers = [(name, value.encode()) for name, value in each.headers]
            return _called(
                self._producer.send,
                topic,
                encoded(each.value),
                encoded(each.key),
                headers,
                each.partition,
                each.timestamp,
            )

        def offset(future: Any) -> int | str:
            try:
                return int(_called(future.get, LIMIT).offset)
            except ClientError as error:
                return f"error: {error}"

        futures = [sent(each) for each in records]
        return [offset(future) for future in futures]

    def init(self) -> None:
        _called(self._producer.init_transactions)

    def begin(self) -> None:
        _called(self._producer.begin_transaction)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        position = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        _called(self._producer.send_offsets_to_transaction, position, group)

    def commit(self) -> None:
        _called(self._producer.commit_transaction)

    def abort(self) -> None:
        _called(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(LIMIT)


class _Consumer:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def assign(self, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, offset)

    def poll(self, seconds: float) -> list[Row]:
        found = _called(self._consumer.poll, int(seconds * 1000))
        return [row(each) for records in found.values() for each in records]

    def assignment(self) -> list[int]:
        return sorted(place.partition for place in self._consumer.assignment())

    def commit(self) -> None:
        _called(self._consumer.commit)

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = _called(self._consumer.committed, TopicPartition(topic, partition))
        return found

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        consumer = self._consumer
        return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = _called(self._consumer.offsets_for_times, {place: timestamp})[place]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


def row(record: Any) -> Row:
    """A record of kafka-python or aiokafka."""
    headers = tuple((name, value.decode()) for name, value in record.headers)
    place = (record.partition, record.offset, record.timestamp)
    return Row(*place, decoded(record.key), decoded(record.value), headers)


class _Admin:
    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        made = NewTopic(topic, partitions, replicas, topic_configs=dict(config))
        _called(self._admin.create_topics, [made])

    def delete(self, topic: str) -> None:
        _called(self._admin.delete_topics, [topic])

    def extend(self, topic: str, partitions: int) -> None:
        _called(self._admin.create_partitions, {topic: partitions})

    def alter(self, topic: str, option: str, value: str) -> None:
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {option: (AlterConfigOp.SET, value)})
        answer = _called(self._admin.alter_configs, [changed])
        (said,) = (each for topics in answer.values() for each in topics.values())
        if said != "OK":
            raise ClientError(said.split(":")[0])  # a text of the server follows

    def describe(self, topic: str, options: Sequence[str]) -> dict[str, str]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        answer = _called(self._admin.describe_configs, [asked], config_filter="all")
        (found,) = (each for topics in answer.values() for each in topics.values())
        return {name: found[name]["value"] for name in options if name in found}

    def topics(self) -> list[str]:
        return sorted(self._admin.list_topics())

    def close(self) -> None:
        self._admin.close()
