from typing import Any

def split_by_partition(
    values: Any, keys: Any, timestamps: Any, count: int, keyless: int
) -> list[tuple[int, Any, Any, Any]]: ...
