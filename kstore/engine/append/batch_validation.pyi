from collections.abc import Iterable
from typing import Final

from kstore.engine.record.batch import Record, RecordBatch

NO_KEY: str
REASONS: Final[dict[int, str]]

__pyx_capi__: dict[str, object]

def refuse_records(
    batch: RecordBatch,
    records: Iterable[Record],
    keys_required: bool,
    log_append_time: bool,
    before_max_ms: int,
    after_max_ms: int,
    now: int,
    at: int,
) -> None: ...
def with_timestamps(data: bytes, largest: int, stamped: bool) -> bytes: ...
