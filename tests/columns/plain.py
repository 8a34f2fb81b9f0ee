"""What a scan must give, said the plain way: Record objects and a filter."""

from collections.abc import Callable, Iterable
from typing import Any

import kstore

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")  # those of a scan by default
Row = tuple[Any, ...]


def row_of(record: kstore.Record, columns: Iterable[str] = COLUMNS) -> Row:
    return tuple(getattr(record, name) for name in columns)


def has_header(record: kstore.Record, header: Any) -> bool:
    if isinstance(header, str):
        return any(name == header for name, _ in record.headers)
    pairs = header.items() if isinstance(header, dict) else [header]
    return all(pair in record.headers for pair in pairs)


def matches(record: kstore.Record, wanted: dict[str, Any]) -> bool:
    key, prefix, header = (wanted.get(name) for name in ("key", "key_prefix", "header"))
    since, until = wanted.get("since"), wanted.get("until")
    return (
        (since is None or record.timestamp >= since)
        and (until is None or record.timestamp < until)
        and (key is None or record.key == key)
        and (prefix is None or (record.key is not None and record.key.startswith(prefix)))
        and (header is None or has_header(record, header))
    )


def expected(
    log: kstore.PartitionLog, wanted: dict[str, Any], columns: Iterable[str] = COLUMNS
) -> tuple[list[Row], str | None]:
    """The rows, and the error that ends them, if one does."""
    records = log.records(
        wanted.get("start"), wanted.get("stop"), isolation=wanted.get("isolation", "read_uncommitted")
    )
    return gathered(lambda: (row_of(r, columns) for r in records if matches(r, wanted)))


def scanned(log: kstore.PartitionLog, **options: Any) -> tuple[list[Row], str | None]:
    return gathered(lambda: (row for batch in log.scan(**options) for row in batch.rows()))


def gathered(rows: Callable[[], Iterable[Row]]) -> tuple[list[Row], str | None]:
    found = []
    try:
        for row in rows():
            found.append(row)  # noqa: PERF402 - what came before an error counts
    except (kstore.KstoreError, OSError) as e:
        return found, str(e)
    return found, None
