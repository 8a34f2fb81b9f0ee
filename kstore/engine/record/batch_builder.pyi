from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

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
) -> bytes: ...

class BatchBuilder: ...
