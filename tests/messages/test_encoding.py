"""Messages are encoded to the bytes that Kafka writes, and read back; wrong values are refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.messages.errors import EncodeError
from kstore.messages.reader import Reader
from kstore.messages.schema import Message, Table
from kstore.messages.tables import CONTROL, METADATA, OFFSETS, REMOTE, SHARES, TRANSACTIONS
from tests.decoders.samples import FRAMED, Sample, samples
from tests.helpers.effort import times
from tests.messages.values import values_of

TABLES = {
    "offsets": Table(OFFSETS),
    "transaction-log": Table(TRANSACTIONS),
    "share-group-state": Table(SHARES),
    "cluster-metadata": Table(METADATA),
    "remote-log-metadata": Table(REMOTE),
    "control": Table(CONTROL),
}
MESSAGES = [
    pytest.param(message, id=f"{name}-{message.name}")
    for name, table in TABLES.items()
    for message in table.messages.values()
]


def parts(sample: Sample) -> list[tuple[Message, int, bytes]]:
    """The messages of a sample: its key and its value, with their versions."""
    decoder, _, control_type = sample.decoder.partition("-")
    if decoder == "control":
        _, message = TABLES["control"].records[int(control_type)]
        version = int(sample.what.split("/")[1]) if sample.what else 0
        return [(message, version, sample.value or b"")]
    table = TABLES[sample.decoder]
    if sample.decoder in FRAMED:
        _, kind, version = sample.value[:3]
        return [(table.records[kind][1], version, sample.value[3:])]
    key, message = table.records[int.from_bytes(sample.key[:2], "big")]
    found = [(key, 0, sample.key[2:])]
    if sample.value is not None:
        found.append((message, int.from_bytes(sample.value[:2], "big"), sample.value[2:]))
    return found


def has_unknown_tags(value: object) -> bool:
    if isinstance(value, dict):
        return "" in value or any(map(has_unknown_tags, value.values()))
    return isinstance(value, list) and any(map(has_unknown_tags, value))


@pytest.mark.parametrize("name", ["broker", "generated"])
def test_bytes_of_kafka(name: str) -> None:
    compared = 0
    for sample in samples(name):
        for message, version, data in parts(sample):
            source = Reader(data)
            values = message.read_version(source, version)
            if source.remaining or has_unknown_tags(values):
                continue  # what Kafka's tool ignores
            assert message.write_version(values, version) == data, sample.what
            compared += 1
    assert compared > {"broker": 50, "generated": 300}[name]


@pytest.mark.parametrize("message", MESSAGES)
def test_values_are_read_back(message: Message) -> None:
    @settings(max_examples=times(5))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(0, message.highest))
        values = data.draw(values_of(message, version))
        source = Reader(message.write_version(values, version))
        assert message.read_version(source, version) == values
        assert source.remaining == 0

    check()


GROUP = TABLES["offsets"].messages["GroupMetadata"]
MEMBER = {"memberId": "m", "clientId": "c", "clientHost": "h"}


@pytest.mark.parametrize(
    ("values", "version", "message"),
    [
        ({"generation": 2**31}, 3, "field generation does not fit into 4 byte"),
        ({"generation": True}, 3, "field generation is not an integer: True"),
        ({"generation": "1"}, 4, "field generation is not an integer: '1'"),
        ({"protocolType": None}, 3, "field protocolType may not be null"),
        ({"protocolType": None}, 4, "field protocolType may not be null"),
        ({"protocolType": b"consumer"}, 4, "field protocolType is not a str"),
        ({"protocolType": "x" * 2**15}, 4, "field protocolType has 32768 bytes, more than 32767"),
        ({"members": ()}, 4, "field members is not a list"),
        ({"members": [None]}, 4, "field members element is not a dict"),
        ({"members": [{**MEMBER, "subscription": "text"}]}, 4, "field subscription is not bytes"),
        ({"members": [{**MEMBER, "role": 1}]}, 4, "members element has no field 'role'"),
        ({"term": 1}, 4, "GroupMetadata has no field 'term'"),
        ({}, 5, "GroupMetadata has no version 5, the highest is 4"),
        ({}, -1, "GroupMetadata has no version -1"),
    ],
)
def test_wrong_values(values: dict[str, object], version: int, message: str) -> None:
    with pytest.raises(EncodeError, match=message.replace("(", "\\(")):
        GROUP.write_version(values, version)


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 20 + "+A", 5])
def test_wrong_ids(text: object) -> None:
    record = TABLES["cluster-metadata"].messages["TOPIC_RECORD"]
    with pytest.raises(EncodeError, match="field topicId is not a UUID"):
        record.write_version({"name": "t", "topicId": text}, 0)


def test_absent_fields_have_their_defaults() -> None:
    assert GROUP.read_version(Reader(GROUP.write_version({}, 3)), 3) == GROUP.default()
