"""The APIs that can be served, with the versions that are offered, and the headers of their messages."""

import struct
from typing import Any, Final, NamedTuple

from kstore.messages.errors import DecodeError
from kstore.messages.reader import Reader
from kstore.messages.schema import Message, Table
from kstore.messages.writer import Writer
from kstore.serving.protocol import single_fetch
from kstore.serving.protocol.tables import APIS as _TEXT

PRODUCE: Final = 0
FETCH: Final = 1
API_VERSIONS: Final = 18
_HEADER: Final = struct.Struct(">hhih")  # up to the size of the client id


class Api(NamedTuple):
    """An API: its key, the lowest and the highest version that are offered, its request and its response."""

    key: int
    lowest: int
    highest: int
    request: Message
    response: Message

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.request.name.removesuffix("Request")


class Header(NamedTuple):
    """The header of a request."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None


# key: the lowest and the highest version. Fetch and the APIs of groups end where versions with topic ids, or
# with another protocol of groups and transactions, begin.
_OFFERED: Final = {
    0: (3, 9),  # Produce
    1: (4, 11),  # Fetch
    2: (1, 7),  # ListOffsets
    3: (1, 12),  # Metadata
    8: (2, 8),  # OffsetCommit
    9: (1, 7),  # OffsetFetch
    10: (0, 4),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 5),  # DescribeGroups
    16: (0, 5),  # ListGroups
    18: (0, 3),  # ApiVersions
    19: (2, 7),  # CreateTopics
    20: (1, 6),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 4),  # InitProducerId
    23: (2, 4),  # OffsetForLeaderEpoch
    24: (0, 3),  # AddPartitionsToTxn
    25: (0, 3),  # AddOffsetsToTxn
    26: (0, 3),  # EndTxn
    28: (0, 3),  # TxnOffsetCommit
    32: (1, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    35: (1, 4),  # DescribeLogDirs
    37: (0, 3),  # CreatePartitions
    42: (0, 2),  # DeleteGroups
    44: (0, 1),  # IncrementalAlterConfigs
    47: (0, 0),  # OffsetDelete
    60: (0, 1),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    65: (0, 0),  # DescribeTransactions
    66: (0, 1),  # ListTransactions
}


def _apis() -> dict[int, Api]:
    found = {}
    for key, (request, response) in Table(_TEXT).records.items():
        assert request is not None
        lowest, highest = _OFFERED[key]
        assert highest <= request.highest
        found[key] = Api(key, lowest, highest, request, response)
    return found


APIS: Final = _apis()


def read_header(source: Reader) -> Header:
    """Read the header of a request, up to the tagged fields of a flexible version. DecodeError."""
    key, version, correlation_id, size = source.unpack(_HEADER)  # the size in every version without a varint
    try:
        client_id = None if size < 0 else source.array(size).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"the client id is not UTF-8: {error}") from None
    return Header(key, version, correlation_id, client_id)


def read_request(api: Api, version: int, source: Reader) -> dict[str, Any]:
    """The values of a request, from behind `read_header` on. As in Kafka, bytes after the last field are
    ignored: librdkafka sends some. DecodeError."""
    if api.key == FETCH and version == single_fetch.VERSION:
        values = single_fetch.read(source)
        if values is not None:
            return values
    if version >= api.request.flexible:
        for _ in range(source.varint()):
            source.varint()
            source.array(source.varint())
    return api.request.read_version(source, version)


def write_response(api: Api, version: int, correlation_id: int, values: dict[str, Any]) -> list[Any]:
    """A response as it is sent: bytes, and the attachments between them. EncodeError."""
    if api.key == FETCH and version == single_fetch.VERSION:
        pieces = single_fetch.write(correlation_id, values)
        if pieces is not None:
            return pieces
    target = Writer()
    target.number(correlation_id, 4, True, "correlation id")
    # A client that asks for its versions cannot know yet whether the server knows flexible headers.
    if version >= api.response.flexible and api.key != API_VERSIONS:
        target.varint(0)
    api.response.write_to(target, values, version)
    return target.pieces()
