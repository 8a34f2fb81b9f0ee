"""Every public operation of a store that writes: what is there before it, and what it does."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.interrupts.operations import Prepare, calls, close, cut_short, open_it, returns_none
from tests.interrupts.subject import Operation, StoreSubject

GROUP = "g"
KEYS = [b"%d" % i for i in range(6)]
STORE_OPERATIONS: dict[str, Operation] = {}


def add(name: str, prepare: Prepare, act: Callable[[Any], object], **how: Any) -> None:
    STORE_OPERATIONS[f"store: {name}"] = Operation(f"store: {name}", StoreSubject, prepare, act, **how)


# ---- what is there before ----------------------------------------------------------------------------------


def nothing(subject: StoreSubject) -> None:
    """No directory."""


def two_topics(subject: StoreSubject) -> None:
    """`old` with three partitions of six records, `small` with one, which is empty. All logs are open."""
    subject.open()
    subject.handle.create_topic("old", 3)
    subject.handle.create_topic("small", 1)
    for number in range(3):
        subject.handle.log("old", number).extend(subject.values(6))
    subject.handle.log("small", 0)


def with_background(subject: StoreSubject) -> None:
    """The store has threads of its own."""
    subject.background = True
    two_topics(subject)


def closed(subject: StoreSubject) -> None:
    two_topics(subject)
    subject.handle.close()
    subject.handle = None


def logs_closed(subject: StoreSubject) -> None:
    """The store is open, and none of its logs."""
    closed(subject)
    subject.open()


def dead(subject: StoreSubject) -> None:
    """A process died: nothing is synced, and the last batch of a partition is cut short."""
    subject.options["durability"] = "none"
    two_topics(subject)
    subject.handle.abandon()
    subject.handle = None
    cut_short(max(path for one in subject.directories for path in one.glob("old-1/*.log")))


def retention(subject: StoreSubject) -> None:
    subject.options["retention_bytes"] = 0
    two_topics(subject)


def deleted_topic(subject: StoreSubject) -> None:
    """The directories of a deleted topic wait."""
    two_topics(subject)
    subject.handle.delete_topic("small")


def committed(subject: StoreSubject) -> None:
    """A group has committed 2 in each partition, and has read on."""
    two_topics(subject)
    with subject.handle.cursor(GROUP, ["old"]) as cursor:
        for record in cursor:
            if record.offset == 1:
                cursor.commit(record)


def exported(subject: StoreSubject) -> None:
    """A broker's directory has what the group had committed before it read on."""
    committed(subject)
    subject.handle.export_cursors(subject.root / "broker", partitions=1)
    with subject.handle.cursor(GROUP, ["old"]) as cursor:
        list(cursor)
        cursor.commit()


def expired(subject: StoreSubject) -> None:
    """The group has not been used for an hour."""
    later = time.time_ns() // 1_000_000 + 3_600_000
    subject.options |= {"offsets_retention_minutes": 1, "clock": partial(int, later)}
    committed(subject)


# ---- what it does ------------------------------------------------------------------------------------------


def extend(subject: StoreSubject) -> dict[int, list[int]]:
    found = subject.handle.extend("old", subject.values(12), KEYS * 2)
    return {number: list(offsets) for number, offsets in found.items()}


def iterate_and_commit(subject: StoreSubject) -> list[tuple[int, int]]:
    with subject.handle.cursor(GROUP, ["old"]) as cursor:
        given = [(record.partition, record.offset) for record in cursor]
        cursor.commit()
    return sorted(given)


def transferred(done: Any) -> int:
    return len(done.positions[GROUP])


create = returns_none(calls("create_topic", "new", 2, retention_bytes=1_000_000))
delete = returns_none(calls("delete_topic", "old"))
add("open new", nothing, open_it)
add("open clean", closed, open_it)
add("open after a crash", dead, open_it)
add("close", two_topics, close, closes=True)
add("close, with a background", with_background, close, closes=True)
add("close, with directories to remove", deleted_topic, close, closes=True)
add("abandon", two_topics, calls("abandon"), closes=True)
add("create_topic", two_topics, create)
add("create_topic, with a background", with_background, create)
add("add_partitions", two_topics, returns_none(calls("add_partitions", "old", 5)))
add("alter_topic", two_topics, returns_none(calls("alter_topic", "old", retention_bytes=1_000_000)))
add("delete_topic", two_topics, delete)
add("delete_topic, with a background", with_background, delete)
add("append", two_topics, lambda s: s.handle.append("old", *s.values(1), b"key"))
add("append that opens the log", logs_closed, lambda s: s.handle.append("old", *s.values(1), b"key"))
add("extend", two_topics, extend)
add("extend that opens logs", logs_closed, extend)
add("flush", two_topics, returns_none(calls("flush")))
add("retain", retention, returns_none(calls("retain")))
add("retain, with directories to remove", deleted_topic, returns_none(calls("retain")))
add("cursor, iterated and committed", committed, iterate_and_commit)
add(
    "export_cursors",
    committed,
    lambda s: transferred(s.handle.export_cursors(s.root / "broker", partitions=2)),
)
add("import_cursors", exported, lambda s: transferred(s.handle.import_cursors(s.root / "broker")))
add("expire_cursors", expired, lambda s: len(s.handle.expire_cursors()[GROUP]))
