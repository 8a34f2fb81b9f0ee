"""Requests to coordinators as values: each, and its answer, is encoded and decoded as on a socket."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kstore.messages.reader import Reader
from kstore.serving.protocol.apis import APIS

_BY_NAME = {api.name: api for api in APIS.values()}


class Connection(NamedTuple):
    """What a handler asks of a connection."""

    client_id: str | None = "client"
    host: str = "127.0.0.1"
    is_closed: bool = False


def call(
    handler: Callable[[dict[str, Any], int, Any], dict[str, Any]], version: int | None = None, **values: Any
) -> dict[str, Any]:
    """The answer of a handler, which is named after its API, to a request; its version is the highest that is
    offered, unless another is given."""
    words = handler.__name__.replace("producer_id", "producerId").split("_")
    api = _BY_NAME["".join(word[0].upper() + word[1:] for word in words)]
    version = api.highest if version is None else version
    encoded = api.request.write_version(values, version)
    answer = handler(api.request.read_version(Reader(encoded), version), version, Connection())
    encoded = api.response.write_version(answer, version)
    return dict(api.response.read_version(Reader(encoded), version))  # type: ignore[arg-type]
