"""What arguments may be, in the words of type checkers. When the program runs, the arguments are checked by
themselves."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, Protocol, SupportsIndex, TypeAlias


class ArrowArray(Protocol):
    """One array that Arrow's PyCapsule interface exports."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


class ArrowStream(Protocol):
    """A stream of them, such as a chunked array or a column of a data frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


BytesLike: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Iterable[tuple[str, BytesLike | None]] | Mapping[str, BytesLike | None]
# columns of extend(); arrays of numpy are iterables of anything
Cells: TypeAlias = Iterable[BytesLike | None] | ArrowArray | ArrowStream
Times: TypeAlias = SupportsIndex | datetime | Iterable[SupportsIndex | datetime] | ArrowArray | ArrowStream
HeaderLists: TypeAlias = Headers | Iterable[Headers | None]
Column: TypeAlias = Literal[
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "base_offset",
    "last_offset",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
    "records_count",
    "attributes",
    "codec",
    "magic",
    "crc",
    "size",
    "position",
]
StoreColumn: TypeAlias = Column | Literal["partition"]
