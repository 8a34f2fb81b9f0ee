"""Every message of every version that is offered is the same for kio, in both directions."""

import io
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from kstore.messages.errors import DecodeError
from kstore.messages.reader import Reader
from kstore.messages.schema import Message
from kstore.serving.protocol import single_fetch
from kstore.serving.protocol.apis import APIS, FETCH, read_header, read_request, write_response
from tests.helpers.effort import times
from tests.messages.values import values_of
from tests.serving.kio_messages import ERROR_CODES, entity, in_order, plain, read, write

_MILLISECONDS = st.integers(0, 2**31 - 1)
SPECIAL = {  # what kio has other types for
    "rrorCode": st.sampled_from(ERROR_CODES),
    "Ms": _MILLISECONDS,
    "imestamp": _MILLISECONDS,
}
MESSAGES = [
    pytest.param(message, version, id=f"{message.name}-{version}")
    for api in APIS.values()
    for message in (api.request, api.response)
    for version in range(api.lowest, api.highest + 1)
]


@pytest.mark.parametrize(("message", "version"), MESSAGES)
def test_messages(message: Message, version: int) -> None:
    kind = entity(message.name, version)

    @settings(max_examples=times(3))
    @given(values_of(message, version, SPECIAL))
    def check(values: dict[str, object]) -> None:
        data = message.write_version(values, version)
        theirs = read(kind, data)
        assert plain(theirs) == in_order(message, values, version)
        assert write(theirs) == data
        source = Reader(data)
        assert message.read_version(source, version) == values
        assert source.remaining == 0

    check()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_headers(api: object) -> None:
    """The headers have the versions that Kafka uses for each version of an API."""
    for version in range(api.lowest, api.highest + 1):
        kind = entity(api.request.name, version)
        header = kind.__header_schema__
        made = header(request_api_key=api.key, request_api_version=version, correlation_id=7, client_id="me")
        target = io.BytesIO()
        entity_writer(header)(target, made)
        target.write(api.request.write_version({}, version))
        source = Reader(target.getvalue())
        assert read_header(source) == (api.key, version, 7, "me")
        assert read_request(api, version, source) == api.request.default()
        (answer,) = write_response(api, version, 7, {})
        response_header = entity(api.response.name, version).__header_schema__
        target = io.BytesIO()
        entity_writer(response_header)(target, response_header(correlation_id=7))
        assert bytes(answer) == target.getvalue() + api.response.write_version({}, version)


def test_wrong_requests() -> None:
    with pytest.raises(DecodeError, match="non-nullable field key"):
        read_request(APIS[10], 0, Reader(struct.pack(">h", -1)))
    with pytest.raises(DecodeError, match="not UTF-8"):
        read_header(Reader(struct.pack(">hhih", 3, 1, 7, 1) + b"\xff"))


FETCHES = APIS[FETCH]


@settings(max_examples=times(100))
@given(values_of(FETCHES.request, single_fetch.VERSION, {}), st.data())
def test_fetch_requests_of_one_partition(values: dict[str, Any], data: st.DataObject) -> None:
    """They are read as by the table, whole and cut off anywhere."""
    values["topics"] = [{**topic, "partitions": topic["partitions"][:1]} for topic in values["topics"][:1]]
    whole = FETCHES.request.write_version(values, single_fetch.VERSION)
    is_single = any(topic["partitions"] for topic in values["topics"]) and not values["forgottenTopicsData"]
    assert (single_fetch.read(Reader(whole)) is not None) == is_single
    for size in (len(whole), data.draw(st.integers(0, len(whole)))):
        found: list[object] = []
        for read_one in (FETCHES.request.read_version, lambda *args: read_request(FETCHES, *reversed(args))):
            try:
                found.append(read_one(Reader(whole[:size]), single_fetch.VERSION))
            except DecodeError as error:
                found.append(str(error))
        assert found[0] == found[1]


@settings(max_examples=times(100))
@given(values_of(FETCHES.response, single_fetch.VERSION, {}), st.booleans())
def test_fetch_answers_of_one_partition(values: dict[str, Any], is_plain: bool) -> None:
    """They are written as by the table."""
    values["responses"] = [{**each, "partitions": each["partitions"][:1]} for each in values["responses"][:1]]
    if is_plain:
        values = {"responses": values["responses"]}
        for topic in values["responses"]:
            for each in topic["partitions"]:
                each["abortedTransactions"] = each["abortedTransactions"] and []
    (written,) = write_response(FETCHES, single_fetch.VERSION, 7, values)
    assert written == struct.pack(">i", 7) + FETCHES.response.write_version(values, single_fetch.VERSION)
