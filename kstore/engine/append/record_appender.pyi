from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kstore.engine.append.log_appender import LogAppender
from kstore.engine.record.batch import RecordBatch

ROLL_REASONS: Final[tuple[str, ...]]

_BytesLike: TypeAlias = bytes | bytearray | memoryview
_Headers: TypeAlias = Iterable[tuple[str, _BytesLike | None]] | Mapping[str, _BytesLike | None]

class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    batch_count: int
    duplicate: bool = False

class RecordAppender(LogAppender):
    def append(
        self,
        value: _BytesLike | None,
        key: _BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: _Headers | None = None,
    ) -> int: ...
    def extend(
        self,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        headers: Any = None,
        *,
        batch_bytes: int = 16384,
    ) -> range: ...
    def append_batches(
        self,
        encoded: _BytesLike,
        *,
        keep_offsets: bool = False,
        leader_epoch: int | None = None,
        origin: Literal["client", "coordinator"] = "client",
        transaction_version: int = -1,
    ) -> Appended: ...
    def _validate(self, encoded: bytes, now: int, origin: str) -> bytes: ...
    def _analyze(
        self, batches: list[RecordBatch], origin: str, transaction_version: int
    ) -> Appended | None: ...
    def _account(self, batches: list[RecordBatch]) -> None: ...
    def _forget_analysis(self) -> None: ...
