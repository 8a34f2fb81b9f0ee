"""Every public operation of a writer, and of its readers: what lies before it, and what it does.

The file is long because it lists every public operation, each with what must be there before it.
"""

import socket
import time
from collections.abc import Callable
from typing import Any

import kstore
from tests.interrupts.operation import Operation
from tests.interrupts.world import World, require

NOW = int(time.time() * 1000)
GROUP = "g"
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


OPERATIONS: dict[str, Operation[World]] = {}


def operation(
    name: str, prepare: Callable[[World], None], *, closes: bool = False
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Takes a function as the act of an operation."""

    def take(act: Callable[[World], None]) -> Callable[[World], None]:
        OPERATIONS[name] = Operation(name, World, prepare, act, closes=closes)
        return act

    return take


# ---- what lies before -----------------------------------------------------------------------------------------------


def eleven(world: World) -> None:
    """Eleven records in four segments, all synced; the last one has room for one more."""
    world.open()
    world.append(11)


def twelve(world: World) -> None:
    """Twelve records; the next one begins a segment."""
    world.open()
    world.append(12)


def unsynced(world: World) -> None:
    """Sealed segments and a last one that nobody has synced."""
    world.options["durability"] = "none"
    eleven(world)


def sockets(world: World) -> None:
    """Two that are connected: Python does not close them if it is interrupted while it makes them."""
    eleven(world)
    world.held += socket.socketpair()


def nothing(world: World) -> None:
    """No directory."""


def closed(world: World) -> None:
    eleven(world)
    world.log.close()
    world.log = None


def dead(world: World) -> None:
    """A process died: nothing is synced, and the last batch is cut short. There are producers, too."""
    world.options["durability"] = "none"
    with_producers(world)
    world.log.abandon()
    world.log = None
    last = max(world.directory.glob("*.log"))
    with last.open("ab") as file:
        file.write(kstore.encode_batch([(0, None, b"torn", None)], base_offset=99)[:50])


def retention_by_size(world: World) -> None:
    world.options |= {"retention_bytes": 1500, "file_delete_delay_ms": 60_000}
    eleven(world)


def retention_of_all(world: World) -> None:
    world.options["retention_bytes"] = 0
    eleven(world)


def producers_batch(values: list[bytes], sequence: int, *, transactional: bool = False) -> bytes:
    return kstore.encode_batch(
        [(NOW, None, value, None) for value in values],  # a producer's last time decides when it is forgotten
        base_sequence=sequence,
        transactional=transactional,
        **PRODUCER,
    )


def marker(kind: int) -> bytes:
    """The end of producer 7's transaction: 0 aborts, 1 commits."""
    return kstore.encode_batch(
        [(NOW, bytes((0, 0, 0, kind)), bytes(6), ())], transactional=True, control=True, **PRODUCER
    )


def with_producers(world: World) -> None:
    """An aborted transaction, an idempotent batch and some records."""
    world.open()
    world.append(4)
    values = world.values(2)
    world.never_committed |= set(values)
    world.ack(world.log.append_batches(producers_batch(values, 0, transactional=True)).first_offset, values)
    world.log.append_batches(marker(0), origin="coordinator", transaction_version=0)
    values = world.values(1)
    world.ack(world.log.append_batches(producers_batch(values, 2)).first_offset, values)
    world.append(4)


def open_transaction(world: World) -> None:
    with_producers(world)
    values = world.values(2)
    world.ack(world.log.append_batches(producers_batch(values, 3, transactional=True)).first_offset, values)
    world.all_or_none_committed = set(values)


def appender(world: World) -> None:
    """An appender with records that wait."""
    eleven(world)
    out = world.log.appender(linger_ms=100_000, batch_bytes=1_000_000)
    values = world.values(2)
    world.tried.append(values)
    world.pending = True
    world.held += [out, values, [out.append(value) for value in values]]


def keyed(world: World) -> None:
    """Eleven records of three keys, in sealed segments but for the last: most of them are superseded."""
    world.keyed = True
    world.options |= {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
    world.open()
    for value in world.values(11):
        world.ack(world.log.append(value, b"%d" % (int(value[:5]) % 3)), [value])
    world.log.roll()


def with_cursor(world: World) -> None:
    """A group that has committed offset 3, and whose cursor is open."""
    eleven(world)
    cursor = world.log.cursor(GROUP)
    require(
        [next(iter(cursor)).offset for _ in range(3)] == [0, 1, 2], "a new group does not begin at the start"
    )
    cursor.commit()
    world.held.append(cursor)
    world.checks.append(lambda log: _may_be_committed(world, log, {3}))


def _may_be_committed(world: World, log: Any, offsets: set[int]) -> None:
    """Of the group; the next cursor of the group begins there."""
    found = log.cursors().get(GROUP)
    offset = 0 if found is None else found.offset
    require(offset in offsets, f"committed is {offset}, not one of {offsets}")
    with log.cursor(GROUP) as cursor:
        require(
            cursor.position == offset, f"the next cursor begins at {cursor.position}, committed is {offset}"
        )
        if offset < log.log_end_offset:
            cursor.commit(offset)
            require(log.cursors()[GROUP].offset == offset + 1, "the next commit is lost")


def reading(prepare: Callable[[World], None], **options: Any) -> Callable[[World], None]:
    """The same with the cursor of a log that is open for reading."""

    def prepared(world: World) -> None:
        prepare(world)
        world.held.pop().close()
        world.held.append(kstore.open(world.directory).cursor(GROUP, **options))

    return prepared


def beside(prepare: Callable[[World], None]) -> Callable[[World], None]:
    """The same in a log directory, in which this process writes another log, too."""

    def prepare_both(world: World) -> None:
        (world.directory.parent / "meta.properties").write_text("version=1\n")
        world.neighbour = kstore.open(world.directory.parent / "beside-0", "a")
        prepare(world)

    return prepare_both


# ---- opening --------------------------------------------------------------------------------------------------------


@operation("open new", nothing)
@operation("open clean", closed)
@operation("open after a crash", dead)
@operation("open new beside another", beside(nothing))
@operation("open clean beside another", beside(closed))
@operation("open after a crash beside another", beside(dead))
def _(world: World) -> None:
    world.open()


# ---- appending ------------------------------------------------------------------------------------------------------


@operation("append", eleven)
@operation("append that rolls", twelve)
@operation("append that rolls, unsynced", unsynced)
def _(world: World) -> None:
    world.append(2)


@operation("extend", eleven)
def _(world: World) -> None:
    values = world.values(14)
    world.tried += [[value] for value in values]
    world.ack(world.log.extend(values, batch_bytes=450)[0], values)


@operation("append_batches", eleven)
def _(world: World) -> None:
    batches = [world.values(2) for _ in range(4)]
    world.tried += batches
    encoded = b"".join(kstore.encode_batch([(-1, None, v, None) for v in values]) for values in batches)
    world.ack(world.log.append_batches(encoded).first_offset, [v for values in batches for v in values])


@operation("append_batches, idempotent", with_producers)
def _(world: World) -> None:
    values = world.values(2)
    world.tried.append(values)
    world.retry = producers_batch(values, 3)
    world.ack(world.log.append_batches(world.retry).first_offset, values)


@operation("append_batches, idempotent, that rolls", beside(with_producers))
def _(world: World) -> None:
    values = world.values(4)
    world.tried.append(values)
    world.retry = producers_batch(values, 3)
    world.ack(world.log.append_batches(world.retry).first_offset, values)


@operation("append_batches, transactional", with_producers)
def _(world: World) -> None:
    values = world.values(2)
    world.tried.append(values)
    world.never_committed |= set(values)  # nobody ends it
    world.retry = producers_batch(values, 3, transactional=True)
    world.ack(world.log.append_batches(world.retry).first_offset, values)


@operation("append_batches, commit", open_transaction)
def _(world: World) -> None:
    world.log.append_batches(marker(1), origin="coordinator", transaction_version=0)
    world.committed = world.all_or_none_committed


@operation("append_batches, abort", open_transaction)
def _(world: World) -> None:
    world.never_committed |= world.all_or_none_committed
    world.log.append_batches(marker(0), origin="coordinator", transaction_version=0)


@operation("append_batches, keep_offsets", eleven)
def _(world: World) -> None:
    values = world.values(2)
    world.tried.append(values)
    end = world.log.log_end_offset
    base = end + 1  # a wide gap that a roll falls into would pass for a lost segment
    world.gap = (
        f"offsets {end} to {end} are in no segment"  # so would this, should no batch follow it after all
    )
    encoded = kstore.encode_batch([(1, None, v, None) for v in values], base_offset=base, leader_epoch=3)
    world.ack(world.log.append_batches(encoded, keep_offsets=True, leader_epoch=3).first_offset, values)


@operation("appender", eleven)
def _(world: World) -> None:
    values = world.values(2)
    world.tried += [[value] for value in values]
    world.pending = True
    out = world.log.appender(linger_ms=100_000, batch_bytes=300)
    world.held.append(out)
    tickets = [out.append(value) for value in values]
    out.flush()
    for ticket, value in zip(tickets, values, strict=True):
        world.ack(ticket.wait(), [value])


@operation("appender.flush", appender)
def _(world: World) -> None:
    out, values, tickets = world.held
    out.flush()
    world.ack(tickets[0].wait(), values)


@operation("appender.close", appender)
def _(world: World) -> None:
    out, values, tickets = world.held
    out.close()
    world.ack(tickets[0].wait(), values)


# ---- rolling, flushing, settings -------------------------------------------------------------------------------------


@operation("make_key_files", eleven)
def _(world: World) -> None:
    world.log.roll()
    world.log.make_key_files()


@operation("roll", eleven)
@operation("roll, unsynced", unsynced)
@operation("roll with producers", with_producers)
def _(world: World) -> None:
    world.log.roll()


@operation("flush", unsynced)
def _(world: World) -> None:
    before = len(world.acked)  # whoever interrupts it may append behind that
    require(world.log.flush() >= before, "it flushed less")


@operation("assign_leader_epoch", eleven)
def _(world: World) -> None:
    world.log.assign_leader_epoch(5)
    _check_epoch(world, 5)


def _check_epoch(world: World, epoch: int) -> None:
    entry = (epoch, world.log.log_end_offset)
    world.live_checks.append(lambda log: require(entry in log.leader_epochs, f"{entry} is lost"))
    # an epoch in which nothing was written is forgotten, as in Kafka
    world.checks.append(
        lambda log: require(entry in log.leader_epochs or log.log_end_offset == entry[1], f"{entry} is lost")
    )


@operation("configure", eleven)
def _(world: World) -> None:
    world.log.configure(flush_ms=600_000, internal_segment_bytes=700, segment_index_bytes=256)
    require(world.log.config.flush_ms == 600_000, "the configuration is another")


@operation("refresh", eleven)
def _(world: World) -> None:
    world.log.refresh()


# ---- deleting, truncating -------------------------------------------------------------------------------------------


@operation("retain some", retention_by_size)
@operation("retain some, beside another", beside(retention_by_size))
@operation("retain all", retention_of_all)
def _(world: World) -> None:
    world.starts |= {segment.base_offset for segment in world.log.segments} | {world.log.log_end_offset}
    world.log.retain()
    world.deleted()
    require(world.starts != {0}, "nothing was deleted")


def _delete_records(before: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.starts.add(before if before >= 0 else world.log.log_end_offset)
        world.log.delete_records(before)
        world.deleted()

    return act


operation("delete_records", eleven)(_delete_records(5))
operation("delete_records, all", eleven)(_delete_records(-1))
operation("delete_records, beside another", beside(eleven))(_delete_records(5))


def deleted_some(world: World) -> None:
    """Its first segments are gone, and the log begins at 7, within a segment."""
    eleven(world)
    world.log.delete_records(7)
    world.log.retain()
    world.deleted()


@operation("retain what delete_records let go", eleven)
def _(world: World) -> None:
    world.starts |= {7}
    world.log.delete_records(7)
    world.deleted()
    world.log.retain()
    world.deleted()


def _truncate_to(offset: int, from_: int | None = None) -> Callable[[World], None]:
    """`from_`: where the batch begins that holds `offset`."""
    from_ = offset if from_ is None else from_

    def act(world: World) -> None:
        world.cut_from = from_
        world.starts.add(offset)
        require(world.log.truncate_to(offset), "nothing was truncated")
        world.truncated(from_)
        world.starts = {world.log.log_start_offset}

    return act


def big_batches(world: World) -> None:
    """Batches of two records each, in segments of one."""
    world.open()
    for _ in range(5):
        values = world.values(2)
        world.ack(world.log.extend(values)[0], values)


operation("truncate_to a batch", eleven)(_truncate_to(4))
operation("truncate_to a border", eleven)(_truncate_to(6))
operation("truncate_to the last batch", eleven)(_truncate_to(10))
operation("truncate_to inside a batch", big_batches)(_truncate_to(5, 4))
operation("truncate_to below the start", deleted_some)(_truncate_to(3, 0))
operation("truncate_to, with producers", with_producers)(_truncate_to(9))
operation("truncate_to, unsynced", unsynced)(_truncate_to(4))


def _start_at(offset: int, start: int | None) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.cut_from = 0
        world.starts |= {offset, offset if start is None else start}
        world.also_starts = {
            offset
        }  # as there is no file for what lies below; also if it is interrupted at its very end
        world.log.truncate_fully_and_start_at(offset, start)
        world.truncated(0)
        world.starts = {offset if start is None else start}

    return act


operation("truncate_fully_and_start_at", eleven)(_start_at(100, None))
operation("truncate_fully_and_start_at, start given", eleven)(_start_at(100, 50))
operation("truncate_fully_and_start_at, lower", with_producers)(_start_at(5, None))


# ---- compaction, erasure --------------------------------------------------------------------------------------------


@operation("compact", keyed)
@operation("compact, beside another", beside(keyed))
def _(world: World) -> None:
    last = {int(value[:5]) % 3: offset for offset, value in world.acked.items()}
    world.may_go = world.acked.keys() - last.values()
    done = world.log.compact()
    require(done.records_removed == len(world.may_go), f"{done.records_removed} records are compacted away")
    _are_gone(world, world.may_go)


@operation("erase", keyed)
@operation("erase, beside another", beside(keyed))
def _(world: World) -> None:
    world.may_go = {offset for offset, value in world.acked.items() if int(value[:5]) % 3 == 1}
    done = world.log.erase(keys=[b"1"], reason="asked to")
    require(done.records_erased == len(world.may_go), f"{done.records_erased} records are erased")
    _are_gone(world, world.may_go)


def _are_gone(world: World, offsets: set[int]) -> None:
    """For good."""

    def check(log: Any) -> None:
        back = offsets & {record.offset for record in log.records()}
        require(not back, f"{sorted(back)} are back")

    world.live_checks.append(check)
    world.checks.append(check)


# ---- positions of groups --------------------------------------------------------------------------------------------


@operation("cursor", eleven)
def _(world: World) -> None:
    world.checks.append(lambda log: _may_be_committed(world, log, {0}))
    with world.log.cursor(GROUP) as cursor:
        require(cursor.position == 0, "a new group does not begin at the start")


@operation("cursor.commit", with_cursor)
def _(world: World) -> None:
    allowed = {3, 8}
    world.checks[:] = [lambda log: _may_be_committed(world, log, allowed)]
    world.held[0].commit(7)
    allowed.remove(3)


@operation("cursor, iterated and committed", with_cursor)
def _(world: World) -> None:
    cursor, end = world.held[0], world.log.log_end_offset
    allowed = {3, end}
    world.checks[:] = [lambda log: _may_be_committed(world, log, allowed)]
    require([record.offset for record in cursor] == list(range(3, end)), "other records than those after 3")
    cursor.commit()
    allowed.remove(3)
    cursor.close()


def _goes_on(world: World, begun: tuple[int, ...], allowed: set[int]) -> Callable[[Any], None]:
    """A check: an interrupted cursor stands at one of these offsets, and gives and commits what comes from there on."""

    def check(log: Any) -> None:
        cursor = world.held[0]
        position = cursor.position
        require(position in (*begun, *allowed), f"the cursor is at {position}, not at one of {begun}")
        found = [record.offset for record in cursor]
        require(found == list(range(position, log.log_end_offset)), f"from {position} on it gives {found}")
        allowed.add(cursor.position)
        cursor.commit()

    return check


@operation("cursor.batch", with_cursor)
@operation("cursor.batch, of a reader", reading(with_cursor))
def _(world: World) -> None:
    allowed = {3, 7}
    world.checks[:] = [lambda log: _may_be_committed(world, log, allowed)]
    world.live_checks.append(_goes_on(world, (3, 7), allowed))
    with world.held[0].batch(4) as records:
        _expect([record.offset for record in records], [3, 4, 5, 6])
    allowed.discard(3)


@operation("cursor, followed", reading(with_cursor, follow=True, timeout=0))
@operation("cursor, iterated by a reader", reading(with_cursor))
def _(world: World) -> None:
    end = world.log.log_end_offset
    allowed = {3, end}
    world.checks[:] = [lambda log: _may_be_committed(world, log, allowed)]
    world.live_checks.append(_goes_on(world, tuple(range(3, end)), allowed))
    _expect([record.offset for record in world.held[0]], list(range(3, end)))


@operation("retain, keeping for a group", with_cursor)
def _(world: World) -> None:
    world.log.configure(retention_bytes=0)
    world.starts |= {segment.base_offset for segment in world.log.segments if segment.base_offset <= 3}
    world.log.retain(keep_for=[GROUP])
    world.deleted()


# ---- adopting -------------------------------------------------------------------------------------------------------


def another_file(world: World) -> None:
    """A .log that another writer left."""
    eleven(world)
    values = world.values(4)
    elsewhere = world.directory.parent / "other-0"
    with kstore.open(elsewhere, "a") as other:
        other.extend(values)
    world.moved = (next(iter(elsewhere.glob("*.log"))), values)
    world.tried.append(values)


@operation("adopt", another_file)
def _(world: World) -> None:
    assert world.moved is not None
    path, values = world.moved
    world.ack(world.log.adopt(path)[0], values)


# ---- closing --------------------------------------------------------------------------------------------------------


@operation("close", eleven, closes=True)
@operation("close, unsynced", unsynced, closes=True)
@operation("close with producers", with_producers, closes=True)
@operation("close with an appender", appender, closes=True)
@operation("close beside another", beside(eleven), closes=True)
@operation("close with files to delete", lambda world: (retention_by_size(world), retain(world)), closes=True)
def _(world: World) -> None:
    world.log.close()
    require(world.log.is_closed, "closed, and is_closed is false")


def retain(world: World) -> None:
    world.log.retain()
    world.deleted()


@operation("with", eleven, closes=True)
def _(world: World) -> None:
    with world.log:
        world.append()


@operation("abandon", eleven, closes=True)
@operation("abandon beside another", beside(eleven), closes=True)
def _(world: World) -> None:
    world.log.abandon()


@operation("garbage", eleven, closes=True)
def _(world: World) -> None:
    world.patience = 5  # a thread of the log may hold it for a moment
    world.log = None


# ---- reading --------------------------------------------------------------------------------------------------------


def _expect(found: Any, expected: Any) -> None:
    require(found == expected, f"read {found!r} instead of {expected!r}")


@operation("get, find", eleven)
def _(world: World) -> None:
    for offset, value in list(world.acked.items())[::4]:
        _expect(bytes(world.log.get(offset).value), value)
        _expect(world.log.find(offset=offset).offset, offset)
    _expect(world.log.find(timestamp=0).offset, 0)
    _expect(world.log.find(timestamp="latest").offset, len(world.acked))


@operation("records, batches", with_producers)
def _(world: World) -> None:
    _expect({r.offset: bytes(r.value) for r in world.log.records()}, world.acked)
    committed = [bytes(r.value) for r in world.log.records(isolation="read_committed")]
    _expect(committed, [v for v in world.acked.values() if v not in world.never_committed])
    _expect([r.offset for b in world.log.batches(3) for r in b.records()][-1], max(world.acked))


@operation("scan", eleven)
def _(world: World) -> None:
    _expect(sum(len(batch) for batch in world.log.scan(threads=2)), len(world.acked))


@operation("follow", eleven)
def _(world: World) -> None:
    _expect(
        [r.offset for r in world.log.follow(3, timeout=0, records=True)], list(range(3, len(world.acked)))
    )


def followed(world: World) -> None:
    """Eleven records, and a follower in a log that is open for reading."""
    eleven(world)
    world.held.append(kstore.open(world.directory).follow(3, timeout=0))


@operation("follower, of a reader", followed)
def _(world: World) -> None:
    given: list[int] = []

    def check(log: Any) -> None:
        given.extend(record.offset for record in world.held[0])
        missing = set(range(3, log.log_end_offset)).difference(given)
        # the one that was under way is lost
        require(len(missing) < 2 and given == sorted(set(given)), f"a follower gave {given}")

    world.live_checks.append(check)
    given.extend(record.offset for record in world.held[0])


@operation("read, send", sockets)
def _(world: World) -> None:
    _expect(bytes(world.log.read(0, whole_batches=True))[:8], bytes(8))
    ours, theirs = world.held
    with ours, theirs:
        _expect(world.log.send(ours, 0, 1000).size > 0, True)
    _expect(world.log.last_stable_offset(), world.log.log_end_offset)
    _expect(world.log.producers(), {})
    before = len(world.log.segments)
    told = len(world.log.residency())
    # a signal handler may roll meanwhile
    require(before <= told <= len(world.log.segments), "a segment is missing")
