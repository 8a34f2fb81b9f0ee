"""Every public operation of a writer, and of its readers: what is there before it, and what it does."""

import socket
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.markers import marker
from tests.helpers.reading import read_to_end
from tests.interrupts.state import Broken, require
from tests.interrupts.subject import Operation, Subject

NOW = int(time.time() * 1000)  # a producer's last time decides when it is forgotten
GROUP = "g"
OPERATIONS: dict[str, Operation] = {}
Prepare = Callable[[Any], None]


def add(name: str, prepare: Prepare, act: Callable[[Any], object], **how: Any) -> None:
    OPERATIONS[name] = Operation(name, Subject, prepare, act, **how)


def iterate(subject: Any) -> list[int]:
    return [record.offset for record in subject.held[0]]


def returns_none(act: Callable[[Any], object]) -> Callable[[Any], None]:
    """An operation whose result is not compared: it may name directories, or differ each time."""

    def done(subject: Subject) -> None:
        act(subject)

    return done


def calls(method: str, *given: object, **options: object) -> Callable[[Any], object]:
    """An operation that only calls a method, of a log or of a store."""
    return lambda subject: getattr(subject.handle, method)(*given, **options)


# ---- what is there before ----------------------------------------------------------------------------------


def nothing(subject: Subject) -> None:
    """No directory."""


def eleven(subject: Subject) -> None:
    """Eleven records in three segments, all synced; the last one has room for one more."""
    subject.open()
    subject.append(11)


def twelve(subject: Subject) -> None:
    """Twelve records; the next one begins a segment."""
    subject.open()
    subject.append(12)


def unsynced(subject: Subject) -> None:
    """Sealed segments and a last one, none of them synced."""
    subject.options["durability"] = "none"
    eleven(subject)


def big_batches(subject: Subject) -> None:
    """Batches of two records each."""
    subject.open()
    for _ in range(5):
        subject.handle.extend(subject.values(2))


def closed(subject: Subject) -> None:
    eleven(subject)
    subject.handle.close()
    subject.handle = None


def dead(subject: Subject) -> None:
    """A process died: nothing is synced, and the last batch is cut short. There are producers, too."""
    subject.options["durability"] = "none"
    with_producers(subject)
    subject.handle.abandon()
    subject.handle = None
    cut_short(max(subject.directory.glob("*.log")))


def cut_short(path: Path) -> None:
    """Appends half a batch to a file."""
    with path.open("ab") as file:
        file.write(kstore.encode_batch([(0, None, b"torn", None)], base_offset=99)[:50])


def retention(**options: object) -> Prepare:
    def prepare(subject: Subject) -> None:
        subject.options |= options
        eleven(subject)

    return prepare


def deleted_some(subject: Subject) -> None:
    """The first segments are deleted, and the log begins at 7, within a segment."""
    eleven(subject)
    subject.handle.delete_records(7)
    subject.handle.retain()


def producers_batch(values: list[bytes], sequence: int, *, transactional: bool = False) -> bytes:
    """A batch of producer 7."""
    return kstore.encode_batch(
        [(NOW, None, value, None) for value in values],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )


def end_transaction(kind: str, subject: Subject) -> None:
    """Appends the marker of producer 7."""
    subject.handle.append_batches(marker(kind, 7, NOW), origin="coordinator", transaction_version=0)


def with_producers(subject: Subject) -> None:
    """An aborted transaction, an idempotent batch and some records."""
    subject.open()
    subject.append(4)
    subject.handle.append_batches(producers_batch(subject.values(2), 0, transactional=True))
    end_transaction("ABORT", subject)
    subject.handle.append_batches(producers_batch(subject.values(1), 2))
    subject.append(4)


def open_transaction(subject: Subject) -> None:
    with_producers(subject)
    subject.handle.append_batches(producers_batch(subject.values(2), 3, transactional=True))


def appender(subject: Subject) -> None:
    """An appender with records that wait."""
    eleven(subject)
    out = subject.handle.appender(linger_ms=100_000, batch_bytes=1_000_000)
    subject.held += [out, [out.append(value) for value in subject.values(2)]]


def keyed(subject: Subject) -> None:
    """Eleven records of three keys, in sealed segments but for the last: most of them are superseded."""
    subject.options |= {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
    subject.open()
    for number, value in enumerate(subject.values(11)):
        subject.handle.append(value, b"%d" % (number % 3))
    subject.handle.roll()


def with_key_files(subject: Subject) -> None:
    keyed(subject)
    subject.handle.make_key_files()


def with_cursor(subject: Subject) -> None:
    """A group that has committed offset 3, and whose cursor is open."""
    eleven(subject)
    cursor = subject.handle.cursor(GROUP)
    for _ in range(3):
        next(iter(cursor))
    cursor.commit()
    subject.held.append(cursor)


def with_cursor_at_end(subject: Subject) -> None:
    """A group that has committed offset 3, and whose cursor has yielded all records."""
    with_cursor(subject)
    read_to_end(subject.held[0])


def with_long_positions(subject: Subject) -> None:
    """The next durable commit writes the file of positions anew."""
    with_cursor_at_end(subject)
    for _ in range(500):
        subject.held[0].commit(8, durable=False)


def of_reader(**options: Any) -> Prepare:
    """The cursor of a log that is open for reading."""

    def prepare(subject: Subject) -> None:
        with_cursor(subject)
        subject.held.pop().close()
        cursor = kstore.open(subject.directory).cursor(GROUP, **options)
        subject.held.append(cursor)

    return prepare


def followed(subject: Subject) -> None:
    """A follower of a log that is open for reading."""
    eleven(subject)
    subject.held.append(kstore.open(subject.directory).follow(3, timeout=0))


def truncated_behind(prepare: Prepare) -> Prepare:
    """A reader that has yielded all records; then some are truncated, and others are in their place."""

    def prepare_more(subject: Subject) -> None:
        prepare(subject)
        for _ in subject.held[0]:
            pass
        subject.handle.truncate_to(5)
        subject.append(8)

    return prepare_more


def another_file(subject: Subject) -> None:
    """A .log that another writer left."""
    eleven(subject)
    with kstore.open(subject.root / "other-0", "a") as other:
        other.extend(subject.values(4))


def sockets(subject: Subject) -> None:
    """Two that are connected: Python does not close them if it is interrupted while it makes them."""
    eleven(subject)
    subject.held += socket.socketpair()


def beside(prepare: Prepare) -> Prepare:
    """In a log directory, in which this process writes another log, too."""

    def prepare_both(subject: Subject) -> None:
        (subject.root / "meta.properties").write_text("version=1\n")
        subject.neighbour = kstore.open(subject.root / "beside-0", "a")
        prepare(subject)

    return prepare_both


def retained(subject: Subject) -> None:
    """Files of deleted segments wait."""
    retention(retention_bytes=1500, file_delete_delay_ms=60_000)(subject)
    subject.handle.retain()


# ---- opening and closing -----------------------------------------------------------------------------------


def close(subject: Subject) -> bool:
    subject.handle.close()
    return subject.handle.is_closed


def append_and_close(subject: Subject) -> None:
    with subject.handle:
        subject.append()


open_it = returns_none(lambda s: s.open())
add("open new", nothing, open_it)
add("open clean", closed, open_it)
add("open after a crash", dead, open_it)
add("open new beside another", beside(nothing), open_it)
add("open after a crash beside another", beside(dead), open_it)
add("close", eleven, close, closes=True)
add("close, unsynced", unsynced, close, closes=True)
add("close with producers", with_producers, close, closes=True)
add("close with an appender", appender, close, closes=True, pending=True)
add("close beside another", beside(eleven), close, closes=True)
add("close with files to delete", retained, close, closes=True)
add("with", eleven, append_and_close, closes=True)
add("abandon", eleven, calls("abandon"), closes=True)
add("abandon beside another", beside(eleven), calls("abandon"), closes=True)
add("garbage", eleven, lambda s: setattr(s, "handle", None), closes=True, late=True)

# ---- appending ---------------------------------------------------------------------------------------------


def append_batches(subject: Subject) -> int:
    batches = [subject.values(2) for _ in range(4)]
    encoded = b"".join(kstore.encode_batch([(-1, None, v, None) for v in values]) for values in batches)
    return subject.handle.append_batches(encoded).first_offset


def send(count: int, *, transactional: bool = False) -> Callable[[Subject], None]:
    """A producer sends a batch: the same, if it has to send it again."""

    def act(subject: Subject) -> None:
        subject.number = 11
        batch = producers_batch(subject.values(count), 3, transactional=transactional)
        subject.handle.append_batches(batch)

    return act


def keep_offsets(subject: Subject) -> int:
    base = subject.handle.log_end_offset + 1
    records = [(1, None, value, None) for value in subject.values(2)]
    encoded = kstore.encode_batch(records, base_offset=base, leader_epoch=3)
    return subject.handle.append_batches(encoded, keep_offsets=True, leader_epoch=3).first_offset


def use_appender(subject: Subject) -> list[int]:
    out = subject.handle.appender(linger_ms=100_000, batch_bytes=300)
    subject.held.append(out)
    tickets = [out.append(value) for value in subject.values(2)]
    out.flush()
    return [ticket.wait() for ticket in tickets]


def tickets_after(subject: Subject, act: Callable[[], object]) -> list[int]:
    act()
    return [ticket.wait() for ticket in subject.held[1]]


def adopt(subject: Subject) -> list[int]:
    (path,) = (subject.root / "other-0").glob("*.log")
    return list(subject.handle.adopt(path))


def moved_or_not(subject: Subject) -> None:
    """The file of another writer is where it was, or its records are in the log."""
    there = any((subject.root / "other-0").glob("*.log"))
    inside = any(record.value.startswith(b"00011") for record in subject.handle)
    require(there != inside, "a file that was to be adopted is there and in the log, or neither")
    require(not any(subject.directory.glob("*.moved")), "a file of an adoption is left")


add("append", eleven, lambda s: s.handle.append(*s.values(1)))
add("append that rolls", twelve, lambda s: s.handle.append(*s.values(1)))
add("append that rolls, unsynced", unsynced, lambda s: s.handle.append(*s.values(1)))
add("extend", eleven, lambda s: list(s.handle.extend(s.values(14), batch_bytes=450)))
add("append_batches", eleven, append_batches)
add("append_batches, idempotent", with_producers, send(2), retries=True)
add("append_batches, idempotent, that rolls", beside(with_producers), send(4), retries=True)
add("append_batches, transactional", with_producers, send(2, transactional=True), retries=True)
add("append_batches, commit", open_transaction, partial(end_transaction, "COMMIT"))
add("append_batches, abort", open_transaction, partial(end_transaction, "ABORT"))
add("append_batches, keep_offsets", eleven, keep_offsets)
add("appender", eleven, use_appender, pending=True)
add("appender.flush", appender, lambda s: tickets_after(s, s.held[0].flush), pending=True)
add("appender.close", appender, lambda s: tickets_after(s, s.held[0].close), pending=True)
add("adopt", another_file, adopt, check=moved_or_not)

# ---- rolling, flushing, settings ---------------------------------------------------------------------------


def replace_key_files(subject: Subject) -> None:
    subject.handle.truncate_to(6)
    subject.handle.make_key_files()


def configure(subject: Subject) -> int:
    subject.handle.configure(flush_ms=600_000, internal_segment_bytes=700, segment_index_bytes=256)
    return subject.handle.config.flush_ms


add("make_key_files", keyed, returns_none(calls("make_key_files")), retries=True)
add("make_key_files anew", with_key_files, replace_key_files)
add("roll", eleven, calls("roll"))
add("roll, unsynced", unsynced, calls("roll"))
add("roll with producers", with_producers, calls("roll"))
add("flush", unsynced, calls("flush"))
add("assign_leader_epoch", eleven, calls("assign_leader_epoch", 5))
add("configure", eleven, configure)
add("refresh", eleven, calls("refresh"))

# ---- deleting, truncating, compacting ----------------------------------------------------------------------


def retain_for_a_group(subject: Subject) -> None:
    subject.handle.configure(retention_bytes=0)
    subject.handle.retain(keep_for=[GROUP])


def delete_and_retain(subject: Subject) -> None:
    subject.handle.delete_records(7)
    subject.handle.retain()


add(
    "retain some", retention(retention_bytes=1500, file_delete_delay_ms=60_000), returns_none(calls("retain"))
)
add("retain some, beside another", beside(retention(retention_bytes=1500)), returns_none(calls("retain")))
add("retain all", retention(retention_bytes=0), returns_none(calls("retain")))
add("retain, keeping for a group", with_cursor, retain_for_a_group)
add("retain what delete_records let go", eleven, delete_and_retain)
add("delete_records", eleven, calls("delete_records", 5))
add("delete_records, all", eleven, calls("delete_records", -1))
add("delete_records, beside another", beside(eleven), calls("delete_records", 5))
add("truncate_to a batch", eleven, calls("truncate_to", 4))
add("truncate_to a border", eleven, calls("truncate_to", 8))
add("truncate_to the last batch", eleven, calls("truncate_to", 10))
add("truncate_to inside a batch", big_batches, calls("truncate_to", 5))
add("truncate_to below the start", deleted_some, calls("truncate_to", 3))
add("truncate_to, with producers", with_producers, calls("truncate_to", 9))
add("truncate_to, unsynced", unsynced, calls("truncate_to", 4))
add("truncate_fully_and_start_at", eleven, calls("truncate_fully_and_start_at", 100))
add("truncate_fully_and_start_at, start given", eleven, calls("truncate_fully_and_start_at", 100, 50))
add("truncate_fully_and_start_at, lower", with_producers, calls("truncate_fully_and_start_at", 5))
compact = lambda s: s.handle.compact().records_removed
add("compact", keyed, compact, compacts=True, retries=True)
add("compact, beside another", beside(keyed), compact, compacts=True, retries=True)
erase = lambda s: s.handle.erase(keys=[b"1"], reason="asked to").records_erased
add("erase", keyed, erase, compacts=True, retries=True)
add("erase, beside another", beside(keyed), erase, compacts=True, retries=True)
add("erase with key files", with_key_files, erase, compacts=True, retries=True)

# ---- positions of groups -----------------------------------------------------------------------------------


def open_cursor(subject: Subject) -> int:
    with subject.handle.cursor(GROUP) as cursor:
        return cursor.position


def first_commit(subject: Subject) -> int:
    with subject.handle.cursor("new") as cursor:
        next(iter(cursor))
        cursor.commit()
        return cursor.position


def iterate_and_commit(subject: Subject) -> list[int]:
    found = iterate(subject)
    subject.held[0].commit()
    subject.held[0].close()
    return found


def close_cursor(subject: Subject) -> None:
    """A cursor that says that it is closed has given the group up."""
    try:
        subject.held[0].close()
    finally:
        try:
            if subject.held[0].is_closed:
                open_cursor(subject)
            subject.held[0].close()
            open_cursor(subject)
        except kstore.CursorLockedError as e:
            raise Broken("a cursor that was closed keeps its group") from e


def take_columns(subject: Subject) -> list[int]:
    return [
        int(o)
        for batch in subject.held[0].scan(["offset"], batch_rows=3)
        for o in batch.column("offset").values
    ]


def take_batch(subject: Subject) -> list[int]:
    with subject.held[0].batch(1) as records:  # of several, an interrupted loop commits those it completed
        return [record.offset for record in records]


def skips_none(subject: Subject) -> None:
    """A cursor that was interrupted gives what comes from its position on, and commits it."""
    cursor, end = subject.held[0], subject.handle.log_end_offset
    position = cursor.position
    require(3 <= position <= end, f"the cursor is at {position}")
    found = [record.offset for record in cursor]
    require(found == list(range(position, end)), f"from {position} on it gives {found}")
    cursor.commit()
    require(subject.handle.cursors()[GROUP].offset == end, "the next commit is lost")


def end_reported(subject: Subject) -> int:
    """The end of what is as it was."""
    try:
        iterate(subject)
    except kstore.OffsetOutOfRangeError as e:
        return e.end
    return -1


def reports_once_more(subject: Subject) -> None:
    """A reader whose error was interrupted, or raised already, raises it."""
    require(end_reported(subject) == 5, "a truncation is not reported once more")


def checked(prepare: Prepare, check: Callable[[Subject], None]) -> Prepare:
    def prepared(subject: Subject) -> None:
        prepare(subject)
        subject.checks.append(partial(check, subject))

    return prepared


add("cursor", eleven, open_cursor)
add("cursor, first commit", eleven, first_commit)
add("cursor.commit", with_cursor_at_end, lambda s: s.held[0].commit(8))
add("cursor.commit, undurable", with_cursor_at_end, lambda s: s.held[0].commit(8, durable=False))
add("cursor.commit to a long file", with_long_positions, lambda s: s.held[0].commit(9))
add("cursor.forget", with_cursor, lambda s: s.held[0].forget())
add("cursor.close", with_cursor, close_cursor)
add("cursor, iterated and committed", with_cursor, iterate_and_commit)
add("cursor.batch", checked(with_cursor, skips_none), take_batch)
add("cursor.batch, of a reader", checked(of_reader(), skips_none), take_batch)
add("cursor, followed", checked(of_reader(follow=True, timeout=0), skips_none), iterate)
add("cursor, iterated by a reader", checked(of_reader(), skips_none), iterate)
add("cursor, truncated behind", checked(truncated_behind(of_reader()), reports_once_more), end_reported)
add("follower, truncated behind", checked(truncated_behind(followed), reports_once_more), end_reported)
add("cursor, as columns", checked(with_cursor, skips_none), take_columns)

# ---- reading -----------------------------------------------------------------------------------------------


def look_up(subject: Subject) -> list[object]:
    log = subject.handle
    found: list[object] = [bytes(log.get(offset).value) for offset in (0, 4, 8)]
    found += [log.find(offset=offset).offset for offset in (0, 4, 8)]
    return [*found, log.find(timestamp=0).offset, log.find(timestamp="latest").offset]


def read_all(subject: Subject) -> list[object]:
    log = subject.handle
    found: list[object] = [(record.offset, bytes(record.value)) for record in log.records()]
    found += [bytes(record.value) for record in log.records(isolation="read_committed")]
    return [*found, [record.offset for batch in log.batches(3) for record in batch.records()]]


def follow_as_reader(subject: Subject) -> None:
    subject.held.append([])
    subject.held[1].extend(record.offset for record in subject.held[0])  # an interrupt keeps what was given


def follows_on(subject: Subject) -> None:
    """A follower that was interrupted gives what it had not given; the record that was under way is lost."""
    given = [*chain.from_iterable(subject.held[1:]), *iterate(subject)]  # it may not have begun
    missing = set(range(3, subject.handle.log_end_offset)).difference(given)
    require(len(missing) < 2 and given == sorted(set(given)), f"a follower gave {given}")


def read_and_send(subject: Subject) -> list[object]:
    log = subject.handle
    ours, theirs = subject.held
    with ours, theirs:
        sent = log.send(ours, 0, 1000).size
    found = [bytes(log.read(0, whole_batches=True))[:8], sent > 0, log.last_stable_offset(), log.producers()]
    return [*found, len(log.segments) <= len(log.residency())]  # a signal handler may roll meanwhile


add("get, find", eleven, look_up)
add("records, batches", with_producers, read_all)
add("scan", eleven, lambda s: sum(len(batch) for batch in s.handle.scan(threads=2)))
add("follow", eleven, lambda s: [r.offset for r in s.handle.follow(3, timeout=0, records=True)])
add("follower, of a reader", checked(followed, follows_on), follow_as_reader)
add("read, send", sockets, read_and_send)
