"""Cursors and followers that meet damage: by default it is an error, and with on_error="skip" they go on
after it."""

import os
from pathlib import Path

import pytest

import kstore
from kstore.engine.record.batch import crc32c
from tests.helpers.readers import CURSORS, EVERY, READERS, WAYS, Make

GOOD = [*range(30), *range(40, 90)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A partition of ten batches of ten records in two segments. The fourth is damaged, and so is the
    last."""
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t")
        log = store.log("t")
        for number in range(10):
            log.extend([b"v" * 50] * 10)
            if number == 6:
                log.roll()
        damaged = [batch for batch in log.batches() if batch.base_offset in (30, 90)]
    for batch in damaged:
        with Path(batch.file).open("r+b") as file:
            file.seek(batch.position + batch.size - 20)
            file.write(b"\xff")
    return tmp_path / "data" / "t-0"


MORE: dict[str, Make] = {
    "follower of batches": lambda path, **options: READERS["follower"](path, records=False, **options),
    "follower of the writer": lambda path, **options: kstore.open(path, "a").follow(0, timeout=0, **options),
}
ALL = [*EVERY, *((kind, "records") for kind in MORE)]


@pytest.mark.parametrize(("kind", "way"), ALL)
def test_what_is_damaged_is_left_out(path: Path, kind: str, way: str) -> None:
    with (READERS | MORE)[kind](path, on_error="skip") as reader:
        assert list(WAYS[way](reader)) == GOOD
        assert [type(each.error) for each in reader.skipped] == [kstore.CorruptRecordError] * 2
        assert [Path(each.file).name for each in reader.skipped] == [f"{0:020}.log", f"{70:020}.log"]
        assert all(each.size > 500 for each in reader.skipped)


@pytest.mark.parametrize(("kind", "way"), EVERY)
def test_it_is_an_error_unless_asked_for(path: Path, kind: str, way: str) -> None:
    with READERS[kind](path, on_error="raise") as reader, pytest.raises(kstore.CorruptRecordError) as caught:
        list(WAYS[way](reader))
    assert 'on_error="skip"' in "".join(caught.value.__notes__)
    with pytest.raises(ValueError, match="on_error"):
        READERS[kind](path, on_error="ignore")


@pytest.mark.parametrize("make", CURSORS.values(), ids=CURSORS)
def test_what_was_left_out_is_committed_with_the_rest(path: Path, make: Make) -> None:
    with make(path, on_error="skip") as reader:
        assert len(list(reader)) == len(GOOD)
        reader.commit()
    with kstore.open(path, "a") as log:
        log.append(b"more")
    with make(path, on_error="raise") as reader:
        assert [record.offset for record in reader] == [100]
        assert reader.skipped == []


def test_what_comes_after_the_damage_is_followed(path: Path) -> None:
    with kstore.open(path, "a") as log, log.cursor("g", follow=True, timeout=0.1, on_error="skip") as jobs:
        assert [record.offset for record in jobs] == GOOD
        log.append(b"more")
        assert [record.offset for record in jobs] == [100]
        jobs.commit()
        assert len(jobs.skipped) == 2


def test_damaged_positions_say_how_to_go_on(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 10)
        with log.cursor("g") as jobs:
            for record in jobs:
                jobs.commit(record)
        file = tmp_path / "kstore-cursors-g.positions"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(kstore.CorruptRecordError) as caught:
            log.cursor("g")
        assert caught.value.file == str(file)
        assert ["remove it" in note for note in caught.value.__notes__] == [True]
        os.truncate(file, 1 << 29)
        for opened in (log, kstore.LogStore(tmp_path)):
            with pytest.raises(kstore.CorruptRecordError, match="at most"):
                opened.cursor("g", *([["t"]] if isinstance(opened, kstore.LogStore) else []))
        file.unlink()
        with log.cursor("g") as jobs:
            assert jobs.position == 0


def test_a_batch_that_unpacks_to_too_much(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", compression_type="gzip") as log:
        log.extend([b"v" * 500] * 10)
        log.extend([b"w" * 50] * 10)
    reader = kstore.open(tmp_path / "t-0", max_decompressed_bytes=2000)
    with pytest.raises(kstore.RecordTooLargeError):
        list(reader.follow(0, timeout=0))
    follower = reader.follow(0, timeout=0, on_error="skip")
    assert [record.offset for record in follower] == list(range(10, 20))
    assert [type(each.error) for each in follower.skipped] == [kstore.RecordTooLargeError]


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0\1", b"x"), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\4\0"), (b"", b"")]
)
def test_a_sound_batch_that_is_no_commit(tmp_path: Path, key: bytes, value: bytes) -> None:
    """The error shows its key and value, and the byte where the batch begins."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    with kstore.open(tmp_path / "t-0").cursor("g") as cursor:
        assert len(list(cursor)) == 1
        cursor.commit()
    file = tmp_path / "kstore-cursors-g.positions"
    whole = file.read_bytes()
    head = bytearray(kstore.encode_batch([(5, key, value, None)]))
    head[0:8], head[21:23], head[43:57] = whole[0:8], whole[21:23], whole[43:57]
    head[17:21] = crc32c(memoryview(head)[21:]).to_bytes(4, "big")
    file.write_bytes(bytes(head))
    for call in (lambda log: log.cursor("g"), lambda log: log.cursors()):
        with pytest.raises(kstore.CorruptRecordError, match="expected an OffsetCommit") as caught:
            call(kstore.open(tmp_path / "t-0"))
        assert (caught.value.position, repr(value) in str(caught.value)) == (0, True)
        assert "unpack_from" not in str(caught.value)
