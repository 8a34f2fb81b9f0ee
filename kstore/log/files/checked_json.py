"""JSON files of kstore's own. The first line holds a checksum of the rest; remove it to edit such a file."""

from __future__ import annotations

from kstore.engine.record.batch import crc32c
from kstore.errors import CorruptCheckpointError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kstore.typed import StrPath

_DEEPEST = 100  # levels of brackets; what kstore writes has 4
_CRC = rb'\{\n "crc32c": (\d{1,10}),\n'  # of what follows


def encode(content: Mapping[str, object]) -> bytes:
    """Encode the content of a file."""
    import json  # imported here: most logs have no such file

    rest = json.dumps(content, indent=1).encode().removeprefix(b"{\n") + b"\n"
    return b'{\n "crc32c": %d,\n' % crc32c(rest) + rest


def has_checksum(path: StrPath, data: bytes, what: str) -> bool:
    """Whether a file has a checksum, which is checked. CorruptCheckpointError."""
    import re  # imported here, because few processes read such a file

    crc = re.match(_CRC, data)
    if crc is not None and int(crc[1]) != (found := crc32c(data[crc.end() :])):
        raise corrupt(path, what, f"CRC-32C {int(crc[1])}, or no line with one", found)
    return crc is not None


def decode(path: StrPath, data: bytes, what: str) -> Any:
    """Decode the content of a file. CorruptCheckpointError, ValueError; RecursionError if the caller has used
    up the stack."""
    has_checksum(path, data, what)
    import json

    try:
        return json.loads(data)
    except RecursionError:
        if _depth(data) > _DEEPEST:
            raise corrupt(path, what, f"at most {_DEEPEST} levels", "more") from None
        raise


def _depth(data: bytes) -> int:
    """The largest depth of brackets in a text."""
    depth = deepest = 0
    for byte in data:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def corrupt(path: StrPath, what: str, expected: str, found: object) -> CorruptCheckpointError:
    """The error for a damaged file."""
    return CorruptCheckpointError(what, file=str(path), expected=expected, found=found)
