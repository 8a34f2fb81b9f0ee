from typing import Any

def split_by_partition(
    values: Any, keys: Any, timestamps: Any, count: int, keyless: int
) -> tuple[tuple[Any, Any, Any], list[tuple[int, Any, Any, Any]]]: ...
