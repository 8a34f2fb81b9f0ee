"""Arrow arrays made by hand with ctypes, sound and hostile, that count how often they are released."""

import ctypes
import struct
from collections.abc import Iterator
from typing import Any


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


class Stream(ctypes.Structure):
    pass


def callback(kind: type[ctypes.Structure], *more: Any, result: Any = None) -> Any:
    return ctypes.CFUNCTYPE(result, ctypes.POINTER(kind), *more)


ReleaseSchema, ReleaseArray, ReleaseStream = callback(Schema), callback(Array), callback(Stream)
GetSchema = callback(Stream, ctypes.POINTER(Schema), result=ctypes.c_int)
GetNext = callback(Stream, ctypes.POINTER(Array), result=ctypes.c_int)
GetLastError = callback(Stream, result=ctypes.c_void_p)

Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ReleaseArray),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", GetSchema),
    ("get_next", GetNext),
    ("get_last_error", GetLastError),
    ("release", ReleaseStream),
    ("private_data", ctypes.c_void_p),
]

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# capsules keep pointers to them
SCHEMA, ARRAY, STREAM = (b"arrow_schema", b"arrow_array", b"arrow_array_stream")


def capsule(pointer: ctypes.Structure, name: bytes) -> Any:
    return new_capsule(ctypes.addressof(pointer), name, None)


class Source:
    """An exporter of one array. Its memory lives as long as it does: keep it while the cells are read."""

    def __init__(
        self,
        format: bytes | None,
        length: int,
        buffers: list[bytes | None] | None,
        *,
        null_count: int = -1,
        offset: int = 0,
        n_buffers: int | None = None,
        dictionary: "Source | None" = None,
    ) -> None:
        self.released: list[str] = []
        self.kept = [
            None if b is None else ctypes.create_string_buffer(b, max(len(b), 1)) for b in buffers or []
        ]
        self.pointers = (ctypes.c_void_p * max(len(self.kept), 1))(
            *(None if k is None else ctypes.addressof(k) for k in self.kept)
        )
        self.schema = Schema(format=format, flags=2, release=ReleaseSchema(self.release_schema))
        self.array = Array(
            length=length,
            null_count=null_count,
            offset=offset,
            n_buffers=len(self.kept) if n_buffers is None else n_buffers,
            release=ReleaseArray(self.release_array),
        )
        if buffers is not None:
            self.array.buffers = ctypes.cast(self.pointers, ctypes.POINTER(ctypes.c_void_p))
        if dictionary is not None:
            self.dictionary = dictionary
            self.schema.dictionary = ctypes.pointer(dictionary.schema)
            self.array.dictionary = ctypes.pointer(dictionary.array)

    def release_schema(self, schema: Any) -> None:
        self.released.append("schema")
        schema.contents.release = ReleaseSchema(0)

    def release_array(self, array: Any) -> None:
        self.released.append("array")
        array.contents.release = ReleaseArray(0)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return capsule(self.schema, SCHEMA), capsule(self.array, ARRAY)


class Streaming:
    """An exporter of a stream of arrays of sources; its `fails_at`th step fails with `reason`."""

    def __init__(
        self, schema: Source, sources: list[Source], *, fails_at: int = -1, reason: bytes | None = None
    ) -> None:
        self.first = schema
        self.left: Iterator[Source] = iter(sources)
        self.steps = -1
        self.fails_at = fails_at
        self.reason = None if reason is None else ctypes.create_string_buffer(reason)
        self.released: list[str] = []
        self.stream = Stream(
            GetSchema(self.get_schema), GetNext(self.get_next), GetLastError(self.get_last_error),
            ReleaseStream(self.release),
        )  # fmt: skip

    def step(self) -> int:
        self.steps += 1
        return 5 if self.steps == self.fails_at else 0

    def get_schema(self, stream: Any, out: Any) -> int:
        status = self.step()
        if status == 0:
            ctypes.memmove(out, ctypes.addressof(self.first.schema), ctypes.sizeof(Schema))
        return status

    def get_next(self, stream: Any, out: Any) -> int:
        status = self.step()
        if status == 0:
            source = next(self.left, None)
            if source is None:
                out.contents.release = ReleaseArray(0)
            else:
                ctypes.memmove(out, ctypes.addressof(source.array), ctypes.sizeof(Array))
        return status

    def get_last_error(self, stream: Any) -> int | None:
        return None if self.reason is None else ctypes.addressof(self.reason)

    def release(self, stream: Any) -> None:
        self.released.append("stream")
        stream.contents.release = ReleaseStream(0)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return capsule(self.stream, STREAM)


def i32(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}i", *numbers)


def i64(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}q", *numbers)


def view(size: int, buffer: int = 0, start: int = 0) -> bytes:
    return struct.pack("=i4sii", size, b"", buffer, start)
