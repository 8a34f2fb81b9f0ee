"""A view of a log that is truncated gives what it held, or LogChangedError; never others, never fewer."""

import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.unit.logs import offsets

Rows = list[tuple[int, bytes | None]]
KEYS = (b"a", b"b", b"c")
ALL = 1 << 30


def rows_of(records: Any) -> Rows:
    return [(record.offset, record.value) for record in records]


def scanned(view: kstore.PartitionLog, threads: int) -> Rows:
    return [
        row
        for batch in view.scan(["offset", "value"], threads=threads, in_order=True)
        for row in batch.rows()
    ]


def last_of(view: kstore.PartitionLog, key: bytes) -> Rows:
    return rows_of(filter(None, [view.last(key)]))


def history_of(view: kstore.PartitionLog, key: bytes) -> Rows:
    return rows_of(view.history(key))


READS: dict[str, Callable[[kstore.PartitionLog], Rows]] = {
    "records": lambda view: rows_of(view.records()),
    "batches": lambda view: [row for batch in view.batches() for row in rows_of(batch.records())],
    "scan": lambda view: scanned(view, 1),
    "scan by threads": lambda view: scanned(view, 2),
    "get": lambda view: rows_of(view.get(o) for o in range(view.log_start_offset, view.log_end_offset)),
    "span": lambda view: rows_of(view.span(view.log_start_offset, ALL)),
}


class Case:
    """A writer that appends records whose values say which they are, and is told what to do in steps."""

    def __init__(self, path: str, delay: int) -> None:
        options: Any = {
            "cleanup_policy": "compact,delete",
            "min_cleanable_dirty_ratio": 0.0,
            "retention_ms": -1,
        }
        self.log = kstore.open(path, "a", file_delete_delay_ms=delay, **options)
        self.keys: dict[bytes | None, bytes] = {}  # by value
        self.truncated = False  # below the end that a view had

    def append(self, sizes: list[int], padding: str = "") -> None:
        """A batch of each size."""
        for size in sizes:
            new: list[bytes | None] = [f"{len(self.keys) + i:04}{padding}".encode() for i in range(size)]
            self.keys |= {value: KEYS[(len(self.keys) + i) % 3] for i, value in enumerate(new)}
            self.log.extend(new, [self.keys[value] for value in new])

    def do(self, step: tuple[str, int]) -> None:
        name, number = step
        start, end = self.log.log_start_offset, self.log.log_end_offset
        place = start + (end - start) * number // 8
        if name == "append":
            self.append([number + 1], "." * (number % 3 * 9))
        elif name == "roll":
            self.log.roll()
        elif name == "truncate":
            self.truncated |= self.log.truncate_to(place)
        elif name == "replace":  # up to where a segment or the log ended
            ends = [*(segment.base_offset for segment in self.log.segments), end]
            self.truncated |= self.log.truncate_to(place)
            missing = [until - self.log.log_end_offset for until in ends if until > self.log.log_end_offset]
            if missing:
                count = missing[number % len(missing)]
                self.append([1] * count if number % 2 else [count])
        elif name == "start again":
            self.truncated = True
            self.log.truncate_fully_and_start_at(place)
        elif name == "delete":
            self.log.delete_records(place)
            self.log.retain()
        else:
            self.log.compact()


STEP = st.tuples(st.sampled_from(["append", "append", "append", "roll"]), st.integers(0, 4))
CHANGE = st.tuples(
    st.sampled_from(
        ["truncate", "replace", "replace", "append", "append", "roll", "start again", "delete", "compact"]
    ),
    st.integers(0, 7),
)


@given(
    steps=st.lists(STEP, min_size=1, max_size=10),
    changes=st.lists(CHANGE, min_size=1, max_size=5),
    warm=st.sampled_from([None, *READS]),
    delay=st.sampled_from([0, 60_000]),
)
def test_every_read_gives_what_the_view_held_or_an_error(
    steps: list[tuple[str, int]], changes: list[tuple[str, int]], warm: str | None, delay: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        case = Case(f"{scratch}/t-0", delay)
        for step in steps:
            case.do(step)
        held = rows_of(case.log)
        views = {name: kstore.open(case.log.path) for name in READS}
        views |= {
            f"{name} {key!r}": kstore.open(case.log.path) for name in ("last", "history") for key in KEYS
        }
        for view in views.values():
            if warm is not None:
                READS[warm](view)  # its files are open from now on
        for change in changes:
            case.do(change)
        removed = {name for name, _ in changes} & {"delete", "compact"}
        left = set(held) & set(rows_of(case.log))

        def check(name: str, read: Callable[[kstore.PartitionLog], Rows], key: bytes | None = None) -> None:
            expected = [row for row in held if key in (None, case.keys[row[1]])]
            expected = expected[-1:] if name.startswith("last") else expected
            try:
                found = read(views[name])
            except kstore.LogChangedError:
                assert case.truncated or removed, name
            except kstore.OffsetOutOfRangeError:
                assert case.truncated or removed, name
                assert name in ("get", "span")
            except kstore.CorruptRecordError:
                assert case.truncated, name
            else:
                if (
                    name in ("get", "span") and case.truncated
                ):  # the next record, or bytes that may end behind the view
                    assert {value for _, value in found} <= case.keys.keys()
                    return
                # docs/reading.md: new records in the place of old ones, but no old ones behind new ones
                news = [row not in held for row in found]
                assert found == sorted(found), name
                assert news == sorted(news), name
                assert case.truncated or not any(news), name
                assert {value for _, value in found} <= case.keys.keys(), name
                if removed:  # an older record of a key may be gone, or the oldest records
                    assert set(found) >= left & set(expected), name
                elif key is None:
                    assert [offset for offset, _ in found] == [offset for offset, _ in expected], name
                else:
                    assert found == expected, name

        for name, read in READS.items():
            check(name, read)
        for key in KEYS:
            by_key = {"last": partial(last_of, key=key), "history": partial(history_of, key=key)}
            for name, lookup in by_key.items():
                check(f"{name} {key!r}", lookup, key)
        case.log.close()


# ---- changes that leave every file at least as long as it was -----------------------------------------


@pytest.mark.parametrize("then", [0, 3, 6])
def test_a_span_over_a_later_file_that_is_open_still(tmp_path: Path, then: int) -> None:
    """What was removed does not come behind what is new."""
    with kstore.open(tmp_path / "t-0", "a", file_delete_delay_ms=60_000) as log:
        view = two_segments(log)
        log.truncate_to(3)
        log.extend([b"new"] * then)
        with pytest.raises(kstore.LogChangedError):
            view.span(0)
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(kstore.LogChangedError):
            view.send(ours, 0)


def two_segments(log: kstore.LogWriter) -> kstore.PartitionLog:
    for i in range(15):
        if i == 10:
            log.roll()
        log.append(b"old", b"k%d" % i)
    return kstore.open(log.path)


# ---- what is no change -------------------------------------------------------------------------------


def test_a_compaction_or_retention_is_no_change(tmp_path: Path) -> None:
    """Nor is a truncation before the view was made."""
    options: Any = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.0, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        for number in range(3):
            for i in range(10):
                log.append(b"%d" % number, b"k%d" % i if number < 2 else b"k")
            log.roll()
        view = kstore.open(log.path)
        log.compact()
        assert offsets(view.records(10))[-1] == 29
        assert offsets(kstore.open(log.path).records(10)) == [*range(10, 20), 29]
        other = kstore.open(log.path)
        log.delete_records(12)
        log.retain()
        assert offsets(other)[-9:] == [*range(12, 20), 29]
    with kstore.open(tmp_path / "cut-0", "a", **options) as log:
        log.extend([b"old"] * 10, keys=[b"k"] * 10)
        log.truncate_to(5)
        for _ in range(5):
            log.append(b"new", b"k")
        log.roll()
        log.append(b"new", b"k")
        log.compact()
        for name in ("records", "batches", "scan", "scan by threads"):
            assert len(READS[name](kstore.open(log.path))) > 0
