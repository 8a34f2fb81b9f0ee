"""Every public operation of a store that writes: what lies before it, and what it does."""

import time
from collections.abc import Callable
from functools import partial

import kstore
from kstore.engine.record.hashes import murmur2
from tests.interrupts.operation import Operation
from tests.interrupts.store_world import GROUP, Place, StoreWorld
from tests.interrupts.world import require

STORE_OPERATIONS: dict[str, Operation[StoreWorld]] = {}
KEYS = [b"%d" % i for i in range(6)]


def operation(
    name: str, prepare: Callable[[StoreWorld], None], *, closes: bool = False
) -> Callable[[Callable[[StoreWorld], None]], Callable[[StoreWorld], None]]:
    """Takes a function as the act of an operation."""

    def take(act: Callable[[StoreWorld], None]) -> Callable[[StoreWorld], None]:
        name_of_it = f"store: {name}"
        STORE_OPERATIONS[name_of_it] = Operation(name_of_it, StoreWorld, prepare, act, closes=closes)
        return act

    return take


# ---- what lies before -----------------------------------------------------------------------------------------------


def nothing(world: StoreWorld) -> None:
    """No directory."""


def two_topics(world: StoreWorld) -> None:
    """`old` with three partitions of a few records, `small` with one, which is empty. All logs are open."""
    world.open()
    world.store.create_topic("old", 3)
    world.store.create_topic("small", 1)
    world.shapes = [{"old": 3, "small": 1}]
    world.settings = {"old": {None}}
    for number in range(3):
        append(world, ("old", number), 6)


def append(world: StoreWorld, place: Place, count: int) -> None:
    values = world.values(count)
    world.ack((place, world.store.log(*place).extend(values)[0]), values)


def with_background(world: StoreWorld) -> None:
    """The same, and threads of the store that see to it."""
    world.background = True
    two_topics(world)


def closed(world: StoreWorld) -> None:
    two_topics(world)
    world.store.close()
    world.store = None


def logs_closed(world: StoreWorld) -> None:
    """The store is open, and none of its logs."""
    closed(world)
    world.open()


def dead(world: StoreWorld) -> None:
    """A process died: nothing is synced, and the last batch of a partition is cut short."""
    world.options["durability"] = "none"
    two_topics(world)
    world.store.abandon()
    world.store = None
    last = max(path for one in world.directories for path in one.glob("old-1/*.log"))
    with last.open("ab") as file:
        file.write(kstore.encode_batch([(0, None, b"torn", None)], base_offset=99)[:50])


def retention(world: StoreWorld) -> None:
    world.options["retention_bytes"] = 0
    two_topics(world)


def deleted_topic(world: StoreWorld) -> None:
    """The directories of a deleted topic wait."""
    two_topics(world)
    world.store.delete_topic("small")
    world.shapes = [{"old": 3}]


def committed(world: StoreWorld) -> None:
    """A group has committed 2 in each partition, and reads on."""
    two_topics(world)
    cursor = world.store.cursor(GROUP, ["old"])
    for record in cursor:
        if record.offset == 1:
            cursor.commit(record)
    cursor.close()
    world.committed = {("old", number): {2} for number in range(3)}


def exported(world: StoreWorld) -> None:
    """A broker's directory has what the group had committed before it read on."""
    committed(world)
    world.store.export_cursors(world.root / "broker", partitions=1)
    with world.store.cursor(GROUP, ["old"]) as cursor:
        list(cursor)
        cursor.commit()
    world.committed = {("old", number): {6} for number in range(3)}


def expired(world: StoreWorld) -> None:
    """Nobody has read for the group for an hour."""
    later = time.time_ns() // 1_000_000 + 3_600_000
    world.options |= {"offsets_retention_minutes": 1, "clock": partial(int, later)}
    committed(world)


# ---- opening, closing -----------------------------------------------------------------------------------------------


@operation("open new", nothing)
@operation("open clean", closed)
@operation("open after a crash", dead)
def _(world: StoreWorld) -> None:
    world.open()


@operation("close", two_topics, closes=True)
@operation("close, with a background", with_background, closes=True)
@operation("close, with directories to remove", deleted_topic, closes=True)
def _(world: StoreWorld) -> None:
    world.store.close()
    require(world.store.is_closed, "closed, and is_closed is false")


@operation("abandon", two_topics, closes=True)
def _(world: StoreWorld) -> None:
    world.store.abandon()


# ---- topics ---------------------------------------------------------------------------------------------------------


@operation("create_topic", two_topics)
@operation("create_topic, with a background", with_background)
def _(world: StoreWorld) -> None:
    world.changes({**world.shapes[0], "new": 2})
    world.store.create_topic("new", 2, retention_bytes=1_000_000)
    world.changed()


@operation("add_partitions", two_topics)
def _(world: StoreWorld) -> None:
    world.changes({**world.shapes[0], "old": 5})
    world.store.add_partitions("old", 5)
    world.changed()


@operation("alter_topic", two_topics)
def _(world: StoreWorld) -> None:
    world.settings["old"] = {None, 1_000_000}
    world.store.alter_topic("old", retention_bytes=1_000_000)
    world.settings["old"] = {1_000_000}


@operation("delete_topic", two_topics)
@operation("delete_topic, with a background", with_background)
def _(world: StoreWorld) -> None:
    world.changes({"small": 1})
    world.store.delete_topic("old")
    world.changed()


# ---- records --------------------------------------------------------------------------------------------------------


@operation("append", two_topics)
@operation("append that opens the log", logs_closed)
def _(world: StoreWorld) -> None:
    (value,) = world.values(1)
    for number in range(3):
        world.tried["old", number] = [value]
    partition, offset = world.store.append("old", value, b"key")
    world.tried = {("old", partition): [value]}
    world.ack((("old", partition), offset), [value])


@operation("extend", two_topics)
@operation("extend that opens logs", logs_closed)
def _(world: StoreWorld) -> None:
    values = world.values(12)
    keys = KEYS * 2
    parts: dict[int, list[bytes]] = {}
    for value, key in zip(values, keys, strict=True):
        parts.setdefault((murmur2(key) & 0x7FFFFFFF) % 3, []).append(value)
    world.tried = {("old", number): list(part) for number, part in parts.items()}
    for number, offsets in world.store.extend("old", values, keys).items():
        world.ack((("old", number), offsets[0]), parts[number])


@operation("flush", two_topics)
def _(world: StoreWorld) -> None:
    world.store.flush()


@operation("retain", retention)
@operation("retain, with directories to remove", deleted_topic)
def _(world: StoreWorld) -> None:
    for number in range(3):
        log = world.store.log("old", number)
        bases = {segment.base_offset for segment in log.segments}
        world.starts["old", number] = bases | {log.log_start_offset, log.log_end_offset}
    world.store.retain()


# ---- positions ------------------------------------------------------------------------------------------------------


@operation("cursor, iterated and committed", committed)
def _(world: StoreWorld) -> None:
    for number in range(3):
        world.committed["old", number] = {2, 6}
    with world.store.cursor(GROUP, ["old"]) as cursor:
        given = [(record.partition, record.offset) for record in cursor]
        cursor.commit()
    require(sorted(given) == [(n, o) for n in range(3) for o in range(2, 6)], f"it gave {given}")
    world.committed = {("old", number): {6} for number in range(3)}


@operation("export_cursors", committed)
def _(world: StoreWorld) -> None:
    done = world.store.export_cursors(world.root / "broker", partitions=2)
    require(len(done.positions[GROUP]) == 3, f"{done} was given back")


@operation("import_cursors", exported)
def _(world: StoreWorld) -> None:
    for number in range(3):
        world.committed["old", number] = {6, 2}
    done = world.store.import_cursors(world.root / "broker")
    require(len(done.positions[GROUP]) == 3, f"{done} was taken over")
    world.committed = {("old", number): {2} for number in range(3)}


@operation("expire_cursors", expired)
def _(world: StoreWorld) -> None:
    for number in range(3):
        world.committed["old", number] = {2, None}
    done = world.store.expire_cursors()
    require(len(done[GROUP]) == 3, f"{done} have expired")
    world.committed = {}
