from collections.abc import Mapping
from typing import Any, Final, Self, final

from kstore.engine.append.record_appender import RecordAppender
from kstore.engine.io.buffer_pool import POOL as POOL

MOST_PARTITIONS: Final[int]

@final
class DealtBatches:
    def __new__(
        cls, values: Any, keys: Any, timestamps: Any, count: int, keyless: int, threads: int = 0
    ) -> Self: ...
    @property
    def helpers(self) -> int: ...
    @property
    def partitions(self) -> list[int]: ...
    @property
    def columns(self) -> tuple[Any, Any, Any]: ...
    def encode(self, logs: Mapping[int, RecordAppender]) -> bool: ...
    def append_to(self, log: RecordAppender, number: int) -> range: ...
