"""Bits turned in what no checksum covers: every reader tells, lists, or gives what is right; never less in silence."""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.hostile.material import STEP

Row = tuple[int, bytes | None]
FIELDS = (("base_offset", 0, 8), ("length", 8, 4), ("last_offset_delta", 23, 4))
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
    found = [(r.offset, r.key) for r in kstore.open(made)]
    assert [offset for offset, _ in found] == list(range(sum(SIZES)))
    return found


def rows_of(records: Iterable[kstore.Record]) -> list[Row]:
    return [(record.offset, record.key) for record in records]


def scanned(scan: Iterable[Any]) -> list[Row]:
    found: list[Row] = []
    for batch in scan:
        keys = batch.column("key")
        data, ends = bytes(keys.data), keys.offsets
        offsets = batch.column("offset").values
        found += [(int(offset), data[ends[i] : ends[i + 1]]) for i, offset in enumerate(offsets)]
    return found


def tell(read: Callable[[], list[Row]], right: list[Row], note: object) -> None:
    """An error that says so, or what is right."""
    try:
        found = read()
    except (
        kstore.CorruptFileError,
        kstore.LogChangedError,
    ) as e:  # the latter where a view was there before the damage
        assert str(e)
    else:
        assert found == right, note


def assert_told(log: kstore.PartitionLog, truth: list[Row], note: object) -> None:
    end = len(truth)
    for start, stop in ((None, None), (4, 9), (end // 2, end - 1), (end - 2, None), (None, end // 2)):
        right = truth[start or 0 : end if stop is None else stop]
        for read in (log.records, log.batches):
            for on_error in ("raise", "skip"):
                reader: Any = read(start, stop, on_error=on_error)

                def take(
                    reader: Any = reader,
                    batches: bool = read == log.batches,
                    first: int = right[0][0],
                    last: int = right[-1][0],
                ) -> list[Row]:
                    rows = rows_of(r for b in reader for r in b) if batches else rows_of(reader)
                    return [row for row in rows if first <= row[0] <= last]

                if on_error == "raise":
                    tell(take, right, (note, start, stop, read))
                else:
                    found = take()
                    assert found == [row for row in right if row in found], (note, start, stop)
                    assert reader.skipped or found == right, (note, start, stop)
        for threads in (1, 2):
            scan = log.scan(["offset", "key"], start=start, stop=stop, threads=threads)
            tell(lambda scan=scan: scanned(scan), right, (note, start, stop, threads))
        skipping = log.scan(["offset", "key"], start=start, stop=stop, on_error="skip")
        found = scanned(skipping)
        assert found == [row for row in right if row in found], (note, start, stop)
        assert skipping.skipped or found == right, (note, start, stop)
    for threads in (1, 2):
        since = log.scan(["offset", "key"], since=1000 + end // 2, threads=threads)
        tell(lambda scan=since: scanned(scan), truth[end // 2 :], note)
    for offset in range(end):
        one = truth[offset : offset + 1]
        tell(lambda o=offset: rows_of([log.get(o)]), one, (note, "get", offset))
        for find in ({"offset": offset}, {"timestamp": 1000 + offset}):

            def look(find: Any = find) -> list[Row]:
                found = log.find(**find)
                return [] if found is None else truth[found.offset : found.offset + 1]

            tell(look, one, (note, find))
        for whole in (True, False):

            def read_on(offset: int = offset, whole: bool = whole, one: list[Row] = one) -> list[Row]:
                """What is read from here, and at least one record, must be what follows on."""
                found = rows_of(log.read(offset, 200, whole_batches=whole))
                assert found, (note, "read", offset)
                return found if found != truth[offset : offset + len(found)] else one

            tell(read_on, one, (note, "read", offset))


def flips(made: Path, step: int) -> Iterable[tuple[kstore.RecordBatch, str, int]]:
    for batch in kstore.open(made).batches():
        for field, at, width in FIELDS:
            for bit in range(0, 8 * width, step):
                yield batch, field, 8 * (at + width - 1 - bit // 8) + bit % 8


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of offsets that then lie in no batch
@pytest.mark.parametrize("part", range(8))
def test_every_bit_of_what_no_checksum_covers(made: Path, truth: list[Row], part: int) -> None:
    """Turned while a view of the log is there, and before it is opened. All bits, each in one of the parts."""
    told = 0
    for number, (batch, field, bit) in enumerate(flips(made, 1)):
        if number % 8 != part or number // 8 % STEP:
            continue
        note = (batch.base_offset, field, bit)
        file = Path(batch.file)
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[batch.position + bit // 8] ^= 1 << bit % 8
        view = kstore.open(made)
        assert [segment.size for segment in view.segments]
        try:
            with file.open("r+b") as f:
                f.write(damaged)
            if number // 8 % 5 == 0:  # a fifth of them: looking at a log in all ways takes its time
                assert_told(view, truth, (note, "view"))
            log = kstore.open(made)
            told += bool(log.recovery.findings)
            if log.log_end_offset != len(truth):
                # only the last batch says where the log ends: further on, nothing contradicts it
                assert batch.last_offset == len(truth) - 1
                if log.log_end_offset < len(truth) and not log.recovery.findings:
                    tell(lambda log=log: rows_of(log), truth, note)
            elif number // 8 % 5 == 1:
                assert_told(log, truth, note)
            else:
                tell(lambda log=log: rows_of(log), truth, note)
                tell(lambda log=log: scanned(log.scan(["offset", "key"], threads=2)), truth, note)
        finally:
            with file.open("r+b") as f:
                f.write(whole)
    # A reader tells of some bits, recovery of others; a few bits of a part may all be of the first kind.
    assert told or STEP > 1


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_followers_are_told(made: Path, truth: list[Row]) -> None:
    for number, (batch, field, bit) in enumerate(flips(made, 7)):
        if number % 5 or batch.last_offset == len(truth) - 1:
            continue
        file = Path(batch.file)
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[batch.position + bit // 8] ^= 1 << bit % 8
        try:
            with file.open("r+b") as f:
                f.write(damaged)

            def follow() -> list[Row]:
                with kstore.open(made).follow(0, timeout=0, records=True) as follower:
                    return rows_of(follower)

            tell(follow, truth, (batch.base_offset, field, bit))
        finally:
            with file.open("r+b") as f:
                f.write(whole)


def test_a_batch_that_ends_behind_the_log(tmp_path: Path) -> None:
    """Its checksum is right; the batches behind it contradict it. Scans on several threads tell as all readers do."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        for offset in range(20):
            log.append_batches(
                kstore.encode_batch([(1, None, b"v", None)], base_offset=offset), keep_offsets=True
            )
    batch = list(kstore.open(directory).batches())[9]
    forged = kstore.encode_batch([(1, None, b"v", None)], base_offset=9, last_offset_delta=5000)
    with Path(batch.file).open("r+b") as f:
        f.seek(batch.position)
        f.write(forged)
    for recover in (True, False):
        log = kstore.open(directory, recover=recover)
        assert log.log_end_offset == 20
        for read in (
            log.records,
            log.batches,
            log.scan,
            lambda log=log: log.scan(threads=2),
            lambda log=log: log.read(0, 1 << 20),
        ):
            with pytest.raises(kstore.CorruptRecordError, match="offsets of a batch"):
                list(read())


def test_a_record_behind_its_batch(tmp_path: Path) -> None:
    """A record whose offset lies behind the last one of its batch, and behind the log, ends no reading in silence."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        for offset in range(0, 8, 2):
            records = [(1, None, b"a", None), (1, None, b"b", None)]
            log.append_batches(kstore.encode_batch(records, base_offset=offset), keep_offsets=True)
    batch = list(kstore.open(directory).batches())[1]
    data = bytearray(batch.data)
    assert data[23:27] == struct.pack(">i", 1)
    at = data.index(b"\x02", 61 + 3 + 6)  # the offset delta of the second record, a varint
    second = 61 + 1 + data[61] // 2
    assert at == second + 3
    data[at] = 120  # 60
    from kstore.engine.record.hashes import crc32c

    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    with Path(batch.file).open("r+b") as f:
        f.seek(batch.position)
        f.write(data)
    log = kstore.open(directory)
    for read in (log.records, log.scan, lambda: log.scan(threads=2)):
        with pytest.raises(kstore.CorruptRecordError, match="offset of a record"):
            list(read())
    reader = log.records(on_error="skip")
    assert [record.offset for record in reader] == [0, 1, 2, 4, 5, 6, 7]
    assert len(reader.skipped) == 1
    scan = log.scan(["offset"], on_error="skip")
    assert [int(o) for b in scan for o in b.column("offset").values] == [0, 1, 2, 4, 5, 6, 7]
    assert len(scan.skipped) == 1


def test_a_scan_in_time_order_looks_at_what_ends_it(tmp_path: Path) -> None:
    """The base timestamp of a batch ends a scan in time order; so its checksum is looked at."""
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
def test_what_recovery_cuts_off_is_nothing_new(tmp_path: Path) -> None:
    """After an unclean stop the log ends before a batch that contradicts the next one: nobody goes on into it."""
    log = kstore.open(tmp_path / "t-0", "a")
    for i in range(5):
        log.append(b"%d" % i)
    log.abandon()
    batches = list(kstore.open(tmp_path / "t-0").batches())
    file = Path(batches[0].file)
    whole = file.read_bytes()
    for batch in batches[1:-1]:
        for bit in range(0, 64, STEP):
            damaged = bytearray(whole)
            damaged[batch.position + bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            view = kstore.open(tmp_path / "t-0")
            right = [b"%d" % i for i in range(view.log_end_offset)]
            assert batch.base_offset <= len(right) < 5
            assert [r.value for r in view] == right
            assert [r.value for r in view.follow(0, timeout=0)] == right
            assert [r.value for r in view.cursor("g", follow=True, timeout=0)] == right
            assert [r.value for r in view.cursor("g")] == right
            view.refresh()
            assert [r.value for r in view] == right, (batch.base_offset, bit)


def test_a_length_that_reaches_behind_the_log(tmp_path: Path) -> None:
    """As it is, without recovery: who reads on from there is told, and not that the log ends."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(3):
            log.append(b"%d" % i * 200)
        [file] = {Path(segment.path) for segment in log.segments}
    damaged = bytearray(file.read_bytes())
    second = 12 + int.from_bytes(damaged[8:12], "big")
    damaged[second + 10] ^= 8
    file.write_bytes(damaged)
    log = kstore.open(tmp_path / "t-0", recover=False)
    assert log.log_end_offset == 3
    for read in (log.read, log.span):
        assert [r.offset for r in read(0)] == [0]
        for offset in (1, 2):
            with pytest.raises(kstore.CorruptRecordError, match="a batch that ends behind the log"):
                read(offset)
    assert not log.read(1, on_error="skip").size


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("field", [0, 2])
def test_followers_skip_what_readers_skip(tmp_path: Path, field: int) -> None:
    """They begin a new reader behind what they have given: that must know what came before."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(5):
            log.extend([b"%d" % i] * 3)
    batches = list(kstore.open(tmp_path / "t-0").batches())
    file = Path(batches[0].file)
    whole = file.read_bytes()
    _, at, width = FIELDS[field]
    for batch in batches[1:-1]:
        for bit in range(0, 8 * width, STEP):
            damaged = bytearray(whole)
            damaged[batch.position + at + bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            log = kstore.open(tmp_path / "t-0", clean=True)
            reader = log.records(on_error="skip")
            right = [(r.offset, r.value) for r in reader]
            note = (batch.base_offset, bit)
            for source in (
                log.follow(0, timeout=0, on_error="skip"),
                log.cursor("g", follow=True, timeout=0, on_error="skip"),
            ):
                with source:
                    assert [(r.offset, r.value) for r in source] == right, note
                    assert [s[:3] for s in source.skipped] == [s[:3] for s in reader.skipped], note


@pytest.mark.parametrize("by", ["follower", "cursor", "store"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("delta", [-1, -2, -(2**31)])
def test_a_batch_that_ends_before_it_begins(tmp_path: Path, delta: int, on_error: Any, by: str) -> None:
    """A lookup of the next offset does not come to it, but who has read all before it is told."""
    pairs = [
        bytearray(kstore.encode_batch([(1000, None, b"v", None)] * 2, base_offset=at)) for at in (0, 2, 2, 4)
    ]
    struct.pack_into(">i", pairs[1], 23, delta)
    with kstore.open(tmp_path / "t-0", "a"):
        pass
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(pairs))
    view = kstore.open(tmp_path / "t-0")
    readers: dict[str, Callable[[], Any]] = {
        "follower": lambda: view.follow(0, timeout=0, on_error=on_error),
        "cursor": lambda: view.cursor("g", follow=True, timeout=0, on_error=on_error),
        "store": lambda: kstore.LogStore(tmp_path).follow(["t"], "earliest", timeout=0, on_error=on_error),
    }
    reader = readers[by]()
    if on_error == "raise":
        with pytest.raises(kstore.CorruptRecordError, match="checksum"):
            list(reader)
    else:
        assert [record.offset for record in reader] == list(range(6))
        assert [skipped.size for skipped in reader.skipped] == [len(pairs[1])]


@pytest.mark.parametrize("delta", [1, 16, 2**20])
def test_a_span_ends_where_a_batch_reaches_into_the_next_segment(tmp_path: Path, delta: int) -> None:
    """Who looks for what follows would find the same batch again and again."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"first")
        log.roll()
        log.extend([b"x"] * 17)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 23, delta)
    path.write_bytes(data)
    assert bytes(kstore.open(tmp_path / "t-0").span(0)) == data
