"""Bits turned in the fields of a batch that no checksum covers: every reader raises, reports what it skipped,
or returns what is right; never less in silence. And batches whose offsets contradict each other."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import SEED, some, times
from tests.hostile.material import LOG, turned

Row = tuple[int, bytes | None]
FIELDS = {"base_offset": (0, 8), "length": (8, 4), "last_offset_delta": (23, 4)}
SIZES = (6, 2, 2, 1, 5, 1, 1, 4, 2, 3)  # records of the batches


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log of several segments, left clean, whose offsets have no gap."""
    directory = tmp_path_factory.mktemp("offsets") / "t-0"
    offset = 0
    with kstore.open(directory, "a", internal_segment_bytes=450, index_interval_bytes=100) as log:
        for size in SIZES:
            records = [(1000 + offset + i, b"%d" % (offset + i), b"v" * 20, None) for i in range(size)]
            log.append_batches(kstore.encode_batch(records, base_offset=offset), keep_offsets=True)
            offset += size
        assert len(log.segments) > 2
    return directory


@pytest.fixture(scope="module")
def truth(made: Path) -> list[Row]:
    found = rows_of(kstore.open(made))
    assert [offset for offset, _ in found] == list(range(sum(SIZES)))
    return found


def rows_of(found: Any) -> list[Row]:
    """Offsets and keys of what a reader returned: a record, or an iterable of records, batches or columns."""
    if isinstance(found, kstore.Record):
        return [(found.offset, found.key)]
    rows: list[Row] = []
    for each in found:
        is_row = isinstance(each, kstore.Record | kstore.RecordBatch)
        rows += rows_of(each) if is_row else each.rows()
    return rows


def assert_detected(
    right: object, note: object, read: Callable[..., Any], *given: Any, **options: Any
) -> None:
    """The call raises an error that says so, or what it returns is right."""
    try:
        found = read(*given, **options)
        rows = found if isinstance(found, list | bool) else rows_of(found)
    except (
        kstore.CorruptFileError,
        kstore.LogChangedError,
    ) as e:  # the latter of a log opened before the damage
        assert str(e)
    else:
        assert rows == right, (SEED, note, read, given)


def assert_all_detect(log: kstore.PartitionLog, truth: list[Row], note: object) -> None:
    end = len(truth)
    columns = ["offset", "key"]

    def within(reader: Any, right: list[Row]) -> list[Row]:
        """A batch may begin before what was asked for, or end after it."""
        return [row for row in rows_of(reader) if right[0][0] <= row[0] <= right[-1][0]]

    def read_between(read: Any, start: int, stop: int, right: list[Row]) -> list[Row]:
        return within(read(start, stop), right)

    for start, stop in ((None, None), (4, 9), (end // 2, end - 1), (end - 2, None), (None, end // 2)):
        right = truth[start or 0 : end if stop is None else stop]
        for read in (log.records, log.batches):
            assert_detected(right, note, read_between, read, start, stop, right)
        for threads in (1, 2):
            assert_detected(right, note, log.scan, columns, start=start, stop=stop, threads=threads)
        for reader in (
            log.records(start, stop, on_error="skip"),
            log.batches(start, stop, on_error="skip"),
            log.scan(columns, start=start, stop=stop, on_error="skip"),
        ):
            found = within(reader, right)
            assert found == [row for row in right if row in found], (SEED, note, start, stop)
            assert reader.skipped or found == right, (SEED, note, start, stop)
    for threads in (1, 2):
        assert_detected(truth[end // 2 :], note, log.scan, columns, since=1000 + end // 2, threads=threads)

    def find(**wanted: int) -> list[Row]:
        found = log.find(**wanted)
        return [] if found is None else truth[found.offset : found.offset + 1]

    def read_on(offset: int, whole: bool) -> bool:
        found = rows_of(log.read(offset, 200, whole_batches=whole))
        return found != [] and found == truth[offset : offset + len(found)]

    for offset in range(end):
        one = truth[offset : offset + 1]
        assert_detected(one, note, log.get, offset)
        assert_detected(one, note, find, offset=offset)
        assert_detected(one, note, find, timestamp=1000 + offset)
        for whole in (True, False):
            assert_detected(True, note, read_on, offset, whole)


def flips(made: Path) -> list[tuple[kstore.RecordBatch, str, int]]:
    """Every bit of these fields, in all batches: (batch, field, bit)."""
    return [
        (batch, field, 8 * (at + width - 1 - bit // 8) + bit % 8)
        for batch in kstore.open(made).batches()
        for field, (at, width) in FIELDS.items()
        for bit in range(8 * width)
    ]


@contextmanager
def damaged(batch: kstore.RecordBatch, bit: int) -> Iterator[None]:
    """This bit of the batch is turned in its file."""
    with Path(batch.file).open("r+b", buffering=0) as file:
        file.seek(batch.position)
        file.write(turned(batch.data, bit))
        try:
            yield
        finally:
            file.seek(batch.position)
            file.write(batch.data)


@pytest.mark.timeout(times(300))
@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of offsets that are then in no batch
def test_bits_that_no_checksum_covers(made: Path, truth: list[Row]) -> None:
    """Turned before a log is opened, or while it is open."""
    found = 0
    cases = [
        (how, *flip) for flip in flips(made) for how in ("open", "opened: all", "opened: some", "follow")
    ]
    for how, batch, field, bit in some(cases, 150, "offsets"):
        note = (how, batch.base_offset, field, bit)
        view = kstore.open(made)
        assert [segment.size for segment in view.segments]
        with damaged(batch, bit):
            if how == "open":
                assert_all_detect(view, truth, note)
            log = kstore.open(made)
            found += bool(log.recovery.findings)
            if log.log_end_offset != len(truth):
                # only the last batch says where the log ends: nothing after it contradicts it
                assert batch.last_offset == len(truth) - 1
                if log.log_end_offset < len(truth) and not log.recovery.findings:
                    assert_detected(truth, note, log.records)
            elif how == "opened: all":
                assert_all_detect(log, truth, note)
            elif how == "follow" and batch.last_offset < len(truth) - 1:
                assert_detected(truth, note, log.follow, 0, timeout=0, records=True)
            else:
                assert_detected(truth, note, log.records)
                assert_detected(truth, note, log.scan, ["offset", "key"], threads=2)
    assert found  # readers detect some bits, recovery others


def test_a_scan_in_time_order_verifies_what_ends_it(tmp_path: Path) -> None:
    """The base timestamp of a batch ends a scan in time order; so its checksum is verified."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        for offset in range(10):
            log.append(b"v", timestamp=1000 + offset)
    batch = list(kstore.open(directory).batches())[4]
    with Path(batch.file).open("r+b") as f:
        f.seek(batch.position + 27)
        f.write(struct.pack(">q", 1 << 50))
    for threads in (1, 2):
        with pytest.raises(kstore.CorruptRecordError, match="checksum"):
            list(kstore.open(directory).scan(until=1100, in_order=True, threads=threads))


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_what_recovery_cuts_off_is_not_read_later(tmp_path: Path) -> None:
    """After an unclean stop the log ends before a batch that contradicts the next, for all readers."""
    log = kstore.open(tmp_path / "t-0", "a")
    for i in range(5):
        log.append(b"%d" % i)
    log.abandon()
    batches = list(kstore.open(tmp_path / "t-0").batches())[1:-1]
    for batch, bit in some([(batch, bit) for batch in batches for bit in range(64)], 30, "recovery"):
        with damaged(batch, bit):
            view = kstore.open(tmp_path / "t-0")
            right = [b"%d" % i for i in range(view.log_end_offset)]
            assert batch.base_offset <= len(right) < 5
            for reader in (
                view.follow(0, timeout=0),
                view.cursor("follows", follow=True, timeout=0),
                view.cursor("ends"),
            ):
                with reader:
                    assert [r.value for r in reader] == right, (SEED, batch.base_offset, bit)
            view.refresh()
            assert [r.value for r in view] == right, (SEED, batch.base_offset, bit)


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_followers_skip_what_readers_skip(tmp_path: Path) -> None:
    """They begin a new reader after what they have returned: that must know what came before."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(5):
            log.extend([b"%d" % i] * 3)
    middle = [flip for flip in flips(tmp_path / "t-0") if flip[0].base_offset not in (0, 12)]
    for batch, field, bit in some([flip for flip in middle if flip[1] != "length"], 60, "skipping"):
        with damaged(batch, bit):
            log = kstore.open(tmp_path / "t-0", clean=True)
            reader = log.records(on_error="skip")
            right = [(r.offset, r.value) for r in reader]
            for source in (
                log.follow(0, timeout=0, on_error="skip"),
                log.cursor("g", follow=True, timeout=0, on_error="skip"),
            ):
                note = (SEED, batch.base_offset, field, bit)
                with source:
                    assert [(r.offset, r.value) for r in source] == right, note
                    assert [s[:3] for s in source.skipped] == [s[:3] for s in reader.skipped], note


@pytest.mark.parametrize("delta", [1, 16, 2**20])
def test_a_span_ends_where_a_batch_reaches_into_the_next_segment(tmp_path: Path, delta: int) -> None:
    """A reader of what follows would find the same batch again and again."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"first")
        log.roll()
        log.extend([b"x"] * 17)
    path = tmp_path / "t-0" / LOG
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 23, delta)
    path.write_bytes(data)
    assert bytes(kstore.open(tmp_path / "t-0").span(0)) == data
