from collections.abc import Mapping
from typing import final

@final
class Predicate:
    def __new__(
        cls,
        start: int,
        stop: int,
        since: int | None = None,
        until: int | None = None,
        key: bytes | None = None,
        key_prefix: bytes | None = None,
        header: str | tuple[str, bytes | None] | Mapping[str, bytes | None] | None = None,
    ) -> Predicate: ...
