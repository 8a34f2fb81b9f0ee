from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, final

__pyx_capi__: dict[str, object]  # what other extension modules cimport
CODECS: Final[tuple[str, ...]]

def encode_batch(
    records: Iterable[
        tuple[
            int | datetime,
            bytes | None,
            bytes | None,
            Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None,
        ]
    ],
    *,
    base_offset: int = 0,
    codec: str = "none",
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | datetime | None = None,
    offset_deltas: Iterable[int] | None = None,
    last_offset_delta: int | None = None,
    delete_horizon: int | datetime | None = None,
) -> bytes:
    """Encodes (timestamp, key, value, headers) records as one batch, byte for byte as Kafka's producer does.

    Offsets increase by one from `base_offset`, or are `base_offset` plus `offset_deltas`. `last_offset_delta`
    may be above the last one, as after compaction. codec is "none", "gzip", "snappy", "lz4" or "zstd"; level
    None is Kafka's default. `log_append_time` makes a batch with that time for all records. `delete_horizon`
    is the time after which compaction may remove tombstones. Timestamps are milliseconds since 1970, -1 for
    none, or datetimes with a time zone.

    TypeError for an argument of a wrong type, ValueError for one that is out of range or does not match the
    others, OverflowError if it does not fit into a batch."""

@final
class BatchBuilder:
    """A buffer of encoded batches that grows; the last one may be open. For one thread at a time.

    `begin` opens a batch, `add` (or `put`, if the record's size is known) adds records, `finish` closes it.
    Statuses are 0, or one of BUILD_NO_MEMORY, BUILD_TOO_LARGE and BUILD_HEADERS."""
