from collections.abc import Mapping
from typing import final

@final
class Predicate:
    """start <= offset < stop, since <= timestamp < until, a key, how it begins, headers: all that are given.

    `header` is a name, a pair of a name and its value, or a mapping of such pairs that must all be there."""

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
