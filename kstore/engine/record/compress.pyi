from typing_extensions import Buffer

__pyx_capi__: dict[str, object]  # what other extension modules cimport

def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The payload of a batch of this codec (1 gzip, 2 snappy, 3 lz4, 4 zstd) whose records are `data`, any buffer.

    `level` is as in Kafka's configuration; without one it is Kafka's default. ValueError for a level or a codec that
    there is not."""
