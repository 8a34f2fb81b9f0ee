"""Lookups by key with .keys files: the right record, whatever lies in those files."""

import os
import random
import shutil
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.compact.key_file import KeyFile
from kstore.engine.record.hashes import crc32c
from kstore.kinds import MAX64
from kstore.log.compact import key_files as making
from kstore.log.read import key_index
from tests.helpers.markers import marker
from tests.hostile.material import GOLDEN

OPTIONS = {
    "internal_segment_bytes": 3000,
    "cleanup_policy": "compact,delete",
    "min_cleanable_dirty_ratio": 0.0,
    "file_delete_delay_ms": 0,
}


def opened(path: Path, **options: Any) -> kstore.LogWriter:
    return kstore.open(path, "a", **OPTIONS | options)


def fill(log: kstore.LogWriter, seed: int, count: int = 300, keys: int = 90) -> None:
    rng = random.Random(seed)
    for _ in range(count // 5):
        chosen = [b"key-%d" % rng.randrange(keys) for _ in range(5)]
        log.extend([rng.choice([None, b"v" * rng.randrange(50)]) for _ in chosen], keys=chosen)


def key_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.keys"))


def check(log: kstore.PartitionLog, keys: int = 90) -> None:
    """Each key, and some that are not there, twice: first by scans, then by maps in memory."""
    records = list(log)
    for _ in range(3):
        for key in [b"key-%d" % i for i in range(keys)] + [b"", b"nobody"]:
            wanted = [record for record in records if record.key == key]
            assert log.last(key) == (wanted[-1] if wanted else None)
            assert list(log.history(key)) == wanted


def scans_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Filled with the scans of lookups by key."""
    seen: list[tuple[int, int]] = []
    scan = kstore.PartitionLog.scan

    def spied(self: kstore.PartitionLog, *args: Any, **named: Any) -> Any:
        if named.get("stop") != 0:
            seen.append((named["start"], named["stop"]))
        return scan(self, *args, **named)

    monkeypatch.setattr(kstore.PartitionLog, "scan", spied)
    return seen


@pytest.mark.parametrize("codec", ["producer", "lz4"])
def test_a_file_for_each_sealed_segment(tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "t-0", compression_type=codec) as log:
        fill(log, 1)
        made = log.make_key_files()
        assert [each.base_offset for each in made] == [s.base_offset for s in log.segments[:-1]]
        assert all(each.made and not each.reason for each in made)
        for each, segment, path in zip(made, log.segments, key_files(tmp_path / "t-0"), strict=False):
            keys = {r.key for r in log.records(segment.base_offset, segment.end_offset)}
            assert (each.keys, each.size) == (len(keys), path.stat().st_size)
        check(log)
        assert [each.made for each in log.make_key_files()] == [False] * len(made)
        check(log)
    reader = kstore.open(tmp_path / "t-0")
    assert reader.recovery.findings == []
    seen = scans_of(monkeypatch)
    assert reader.last(b"nobody") is None
    assert [start for start, _ in seen] == [reader.segments[-1].base_offset]  # the last one only
    check(reader)


def test_their_size(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        count = 20_000
        log.extend([b""] * count, keys=[b"%d" % i for i in range(count)])
        log.roll()
        [made] = log.make_key_files()
        assert made.keys == count
        assert made.size <= 16 * count
        for i in range(count):  # one in a hundred lies beside another that looks the same
            record = log.last(b"%d" % i)
            assert record is not None
            assert record.offset == i
            assert log.last(b"no %d" % i) is None


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", ["uncompressed", "gzip"])
@pytest.mark.parametrize("batch_bytes", [1, 9000, 4 << 20])
def test_records_of_all_sizes(tmp_path: Path, stamp: str, codec: str, batch_bytes: int) -> None:
    """Near the start of their batch, and more than a MiB behind it; with all that a record has."""
    sizes = [0, 1, 100, *range(440, 520), 2000, 5000, 100_000, 1_200_000, 7, 600]
    rng = random.Random(1)
    values = [None if size == 1 else rng.randbytes(size) for size in sizes]
    headers = [[("h", b"x" * (i % 600)), ("n", None)] if i % 3 == 0 else [] for i in range(len(sizes))]
    keys = [b"k" * i for i in range(len(sizes))]
    options = {"message_timestamp_type": stamp, "compression_type": codec, "max_message_bytes": 8 << 20}
    with kstore.open(tmp_path / "t-0", "a", config=kstore.LogConfig(**options)) as log:  # type: ignore[arg-type]
        log.append(b"before", b"other")
        stamps = [1_700_000_000_000 + rng.randrange(-(10**9), 10**9) for _ in sizes]
        log.extend(values, keys, timestamps=stamps, headers=headers, batch_bytes=batch_bytes)
        log.roll()
        assert log.make_key_files()[0].made
        segment = log.segments[0]
        file = KeyFile(segment.path_of(".keys"))
        for wanted in log:
            assert wanted.key is not None
            assert log.last(wanted.key) == file.find(segment, wanted.key) == wanted
        assert file.find(segment, b"nobody") == key_index.ABSENT


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_every_byte_of_a_log_that_is_open(tmp_path: Path, codec: str) -> None:
    """A record is read alone, so its own checksum has to show what is damaged: an error, or the record as it was."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", compression_type=codec) as log:
        log.extend([b"v%d" % i for i in range(4)], keys=[b"key-%d" % i for i in range(4)])
        log.extend([b"w"], keys=[b"key-9"])
        log.roll()
        log.make_key_files()
        batch = next(iter(log.batches()))
    name = min(path.glob("*.log"))
    sound = name.read_bytes()
    raised = []
    for at in range(batch.size):
        log = kstore.open(path)
        wanted = log.last(b"key-2")
        with name.open("r+b") as file:  # the .keys file was found to fit before
            file.seek(at)
            file.write(bytes([sound[at] ^ 1 << at % 8]))
        try:
            found = log.last(b"key-2")
            assert found is not None
            assert found == wanted or 0 <= at < 8  # a base offset has no checksum of its own
        except kstore.CorruptRecordError:
            raised.append(at)
        name.write_bytes(sound)
        with kstore.open(path, "a") as again:
            again.make_key_files()
    if codec == "uncompressed":
        record = sound.index(b"key-2")
        assert {*range(16, 61), *range(record - 5, record + 9)} <= set(raised)
    else:
        assert set(range(16, batch.size)) <= set(raised)


def test_messages_of_old_formats(tmp_path: Path) -> None:
    """Segments of a broker that was upgraded twice: their records are found by their offsets."""
    path = tmp_path / "upgraded-0"
    shutil.copytree(GOLDEN / "magic_upgrade" / "upgraded-0", path)
    with kstore.open(path, "a") as log:
        assert {batch.magic for batch in log.batches()} == {0, 1, 2}
        assert all(each.made for each in log.make_key_files())
        last = {record.key: record for record in log if record.key is not None}
        assert {key: log.last(key) for key in last} == last


def test_damage_below_the_start_of_the_log(tmp_path: Path) -> None:
    """Nobody asks for what was deleted."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 4, keys=[b"key-%d" % i for i in range(4)])
        log.extend([b"v"] * 4, keys=[b"new-%d" % i for i in range(4)])
        log.roll()
        log.make_key_files()
        assert log.last(b"key-1") is not None
        log.delete_records(4)
        name = min(path.glob("*.log"))
        with name.open("r+b") as file:
            file.seek(70)
            file.write(b"\xff")
        assert log.last(b"key-0") is None
        assert list(log.history(b"key-0")) == []
        found = log.last(b"new-0")
        assert found is not None
        assert found.offset == 4


def test_a_file_of_an_older_version(tmp_path: Path) -> None:
    """Is not believed, and made anew."""
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 21)
        log.make_key_files()
    for file in key_files(path):
        content = file.read_bytes()
        header = b"KSK1" + content[4:60]
        file.write_bytes(header + struct.pack("<I", crc32c(header)) + content[64:])
    check(kstore.open(path))
    with opened(path) as log:
        assert all(each.made for each in log.make_key_files())
        check(log)


def test_a_segment_without_keys(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        log.roll()
        assert [(each.keys, each.size) for each in log.make_key_files()] == [(0, 64)]
        assert log.last(b"") is None


class Lying:
    """Says of every key that it is at one place."""

    file = None

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def find(self, *_: object) -> int:
        return self.offset


def test_two_keys_that_look_the_same(tmp_path: Path) -> None:
    """What a file says of a key may be a record of another: then the log is looked at."""
    with opened(tmp_path / "t-0") as log:
        fill(log, 2)
        for back in (1, 3):
            for segment in log.segments[:-1]:
                segment._keys = Lying(segment.end_offset - back)
            for key in {record.key for record in log}:
                assert log.last(key or b"") == [record for record in log if record.key == key][-1]


def test_transactions(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        for number in range(30):
            log.append(b"plain", key=b"a%d" % (number % 5))
            batch = kstore.encode_batch(
                [(5, b"a%d" % (number % 5), b"%d" % number, None)],
                producer_id=number,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            log.append_batches(batch)
            kind = ("COMMIT", "ABORT")[number % 2]
            if number < 28:
                log.append_batches(marker(kind, number, 6), origin="coordinator", transaction_version=0)
            if number % 7 == 0:
                log.roll()
        log.roll()
        log.make_key_files()
        for isolation in ("read_uncommitted", "read_committed"):
            records = list(log.records(isolation=isolation))
            for _ in range(3):
                for key in [b"a%d" % i for i in range(6)]:
                    wanted = [record for record in records if record.key == key]
                    assert log.last(key, isolation=isolation) == (wanted[-1] if wanted else None)
                    assert list(log.history(key, isolation=isolation)) == wanted


def test_below_the_start(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        fill(log, 3)
        log.make_key_files()
        start = log.segments[2].base_offset + 3
        log.delete_records(start)
        check(log)
        log.retain()
        check(log)
        assert len(key_files(tmp_path / "t-0")) == len(log.segments) - 1


def test_files_go_with_their_segments(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 4)
        log.make_key_files()
        log.truncate_to(log.segments[3].base_offset + 2)
        assert [p.stem for p in key_files(path)] == [s.stem for s in log.segments[:3]]
        fill(log, 5)
        check(log)
        log.make_key_files()
        log.compact()
        assert key_files(path) == []
        check(log)
        log.make_key_files()
        log.erase(keys=[b"key-1", b"key-2"], reason="asked")
        assert len(key_files(path)) < len(log.segments)
        check(log)
        log.make_key_files()
        log.truncate_fully_and_start_at(7)
        assert key_files(path) == []
        check(log)


def test_adopted(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "s-0", "a") as other:
        other.extend([b"x"] * 9, keys=[b"key-%d" % i for i in range(9)])
    with opened(tmp_path / "t-0") as log:
        fill(log, 6, count=20)
        check(log)
        log.adopt(tmp_path / "s-0" / f"{0:020}.log")
        check(log)
        fill(log, 7)
        log.make_key_files()
        check(log)


def wait_for_files(log: kstore.LogWriter) -> None:
    """Until each sealed segment has its file."""
    path = Path(log.path)
    deadline = time.monotonic() + 60
    while len(key_files(path)) < len(log.segments) - 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [p.stem for p in key_files(path)] == [s.stem for s in log.segments[:-1]]


def test_in_the_background(tmp_path: Path) -> None:
    """The option is kept, as others are; files are made at each roll, and after compactions."""
    path = tmp_path / "t-0"
    with opened(path, key_files=True) as log:
        fill(log, 8)
        wait_for_files(log)
        check(log)
    with opened(path) as log:
        fill(log, 9)
        wait_for_files(log)
        log.compact()
        wait_for_files(log)
        check(log)
        log.configure(key_files=None)
        count = len(key_files(path))
        fill(log, 10)
        assert len(key_files(path)) == count
        log.configure(key_files=True)
        wait_for_files(log)
    with pytest.raises(kstore.InvalidConfigError, match="key_files"):
        opened(tmp_path / "u-0", key_files="yes")


def test_the_background_reads_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that can get no file is read once, not at each roll; one that has it is not read at all."""
    path = tmp_path / "t-0"
    with opened(path, log_cleaner_dedupe_buffer_size=(1 << 20) + 1, internal_segment_bytes=2_000_000) as log:
        log.extend([b""] * 45_000, keys=[b"%d" % i for i in range(45_000)])
        log.roll()
        read: list[int] = []
        real = making._Making.run

        def spied(self: making._Making) -> kstore.KeyFileReport:
            read.append(self._segment.base_offset)
            return real(self)

        monkeypatch.setattr(making._Making, "run", spied)
        for _ in range(3):
            log.append(b"v", key=b"k")
            log.roll()
            making.make_missing(log, log._check_compacting)
        assert read == [0, 45_000, 45_001, 45_002]
        assert len(key_files(path)) == 3
        check(log)


def test_one_that_cannot_tell_is_made_again(tmp_path: Path) -> None:
    """The background trusts a file's header; a lookup that finds another part of it damaged says so."""
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 20)
        log.make_key_files()
    first = key_files(path)[0]
    sound = first.read_bytes()
    first.write_bytes(sound[:64] + bytes(len(sound) - 64))
    with opened(path) as log:
        making.make_missing(log, log._check_compacting)
        assert not any(first.read_bytes()[64:])
        check(log)
        making.make_missing(log, log._check_compacting)
        assert any(first.read_bytes()[64:])
        check(log)


def test_a_reader_that_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map that it has made of the segment that grows goes on; not if that was cut off and written anew."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 100, keys=[b"key-%d" % (i % 90) for i in range(100)])
        reader = kstore.open(tmp_path / "t-0")
        check(reader)
        seen = scans_of(monkeypatch)
        for i in range(20):
            log.append(b"w", key=b"key-%d" % i)
            reader.refresh()
            record = reader.last(b"key-%d" % i)
            assert record is not None
            assert record.offset == 100 + i
        assert seen == []
        monkeypatch.undo()
        log.truncate_to(100)
        log.extend([b"w"] * 20, keys=[b"new-%d" % i for i in range(20)], batch_bytes=1)
        log.append(b"x", key=b"end")
        reader.refresh()
        record = reader.last(b"new-3")
        assert record is not None
        assert record.offset == 103
        check(reader)


def test_too_many_keys(tmp_path: Path) -> None:
    count = 45_000
    with kstore.open(tmp_path / "t-0", "a", log_cleaner_dedupe_buffer_size=(1 << 20) + 1) as log:
        log.extend([b""] * count, keys=[b"%d" % i for i in range(count)])
        log.roll()
        [made] = log.make_key_files()
        assert made == (0, -1, 0, False, "its keys do not fit into log_cleaner_dedupe_buffer_size")
        assert key_files(tmp_path / "t-0") == []
        record = log.last(b"%d" % (count - 1))
        assert record is not None
        assert record.offset == count - 1


def test_a_damaged_segment_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 10)
    first = min(path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    with opened(path) as log:
        made = log.make_key_files()
        assert made[0].keys == -1
        assert first.name in made[0].reason
        assert all(each.made for each in made[1:])
        with pytest.raises(kstore.CorruptRecordError):
            log.last(b"nobody")


def changed_in_place(log: Path, keys: Path) -> None:
    """Another key of the same length in the same batch, with a right checksum, as soon as it goes."""
    data = log.read_bytes()
    batch = next(iter(kstore.open(log).batches()))
    records = [(r.timestamp, b"new-9" if i == 0 else r.key, r.value, None) for i, r in enumerate(batch)]
    made = kstore.encode_batch(records)
    assert len(made) == batch.size
    with log.open("r+b") as file:
        file.write(made[:12] + data[12:16] + made[16:])


def copied_back(log: Path, keys: Path) -> None:
    times = log.stat()
    changed_in_place(log, keys)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(log: Path, keys: Path) -> None:
    copy = log.with_name("copy")
    shutil.copy2(log, copy)
    changed_in_place(log, keys)
    content = log.read_bytes()
    shutil.copy2(copy, log)
    copy.write_bytes(content)
    shutil.copystat(log, copy)
    copy.replace(log)


@pytest.mark.parametrize("change", [changed_in_place, copied_back, replaced])
def test_made_for_another_state_of_the_log(tmp_path: Path, change: Callable[[Path, Path], None]) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        log.extend([b"v" * 20] * 5, keys=[b"old-%d" % i for i in range(5)])
        log.roll()
        log.append(b"v", key=b"end")
        log.make_key_files()
    change(path / f"{0:020}.log", path / f"{0:020}.keys")
    for log in (kstore.open(path), opened(path)):
        for _ in range(3):
            assert log.last(b"old-0") is None
            record = log.last(b"new-9")
            assert record is not None
            assert record.offset == 0
        log.close()
    with opened(path) as log:
        [made] = log.make_key_files()
        assert made.made
        assert log.last(b"old-0") is None


def test_a_copy_of_a_log(tmp_path: Path) -> None:
    """Its files are others: they are made again."""
    with opened(tmp_path / "t-0") as log:
        fill(log, 11)
        log.make_key_files()
    shutil.copytree(tmp_path / "t-0", tmp_path / "u-0")
    check(kstore.open(tmp_path / "u-0"))
    with opened(tmp_path / "u-0") as log:
        assert all(each.made for each in log.make_key_files())
        check(log)


def test_strays_go_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 12)
        log.make_key_files()
        last = log.segments[-1].stem
    strays = ["00000000000000099999.keys", "00000000000000000000.keys.tmp"]
    others = ["notes.keys", "7.keys", "notes.keys.tmp"]
    for name in [*strays, *others, f"{last}.keys"]:
        (path / name).write_bytes(b"x")
    reader = kstore.open(path)
    assert [Path(finding.file).name for finding in reader.recovery.findings] == strays[:1]
    check(reader)
    with opened(path) as log:
        assert sorted(Path(finding.file).name for finding in log.recovery.findings) == sorted(strays)
        for name in [*strays, f"{last}.keys"]:
            assert not (path / name).exists()
        assert all((path / name).exists() for name in others)
        check(log)


def test_a_reader_beside_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 13)
        log.make_key_files()
        reader = kstore.open(path)
        check(reader)
        before = {key: reader.last(key) for key in (b"key-%d" % i for i in range(90))}
        fill(log, 14)
        log.make_key_files()
        assert {key: reader.last(key) for key in before} == before
        log.compact()
        log.make_key_files()
        assert reader.refresh()
        check(reader)
        log.truncate_to(log.segments[0].base_offset + 1)
        fill(log, 15)
        log.make_key_files()
        reader.refresh()
        check(reader)


def test_threads_that_ask_while_others_append(tmp_path: Path) -> None:
    """The active segment's map in memory grows while threads ask it: each finds what it has appended itself."""
    wrong: list[object] = []
    with kstore.open(tmp_path / "t-0", "a") as log:
        fill(log, 21)
        log.last(b"key-1"), log.last(b"key-2")  # the second lookup makes the map

        def work(number: int) -> None:
            for i in range(400):
                key = b"own-%d-%d" % (number, i % 7)
                offset = log.append(b"v" * 100, key=key)
                found = log.last(key)
                if found is None or found.offset != offset or found.key != key:
                    wrong.append((key, offset, found))
                if log.last(b"none-%d" % i) is not None:
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert log.segments[-1]._keys.map is not None
        check(log)


def test_maps_come_and_go_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread adds up what the maps take, others make and drop theirs."""
    monkeypatch.setattr(key_index, "_MOST_MEMORY", 1 << 32)
    switching = sys.getswitchinterval()
    with opened(tmp_path / "t-0") as log:
        fill(log, 22, 100)
        segment = log.segments[0]

        def made() -> key_index.KeyIndex:
            index = key_index.KeyIndex()
            for _ in range(2):  # the second lookup makes a map
                index.find(segment, b"key-1", is_sealed=False)
            return index

        others = [made() for _ in range(800)]
        assert all(index.map is not None for index in others)
        ended = threading.Event()
        failures: list[RuntimeError] = []

        def make() -> None:
            try:
                while not ended.is_set():
                    made()
            except RuntimeError as e:
                failures.append(e)

        def drop() -> None:
            for index in others:
                index._drop_map()
                time.sleep(0)
            ended.set()

        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=each) for each in (make, drop)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(switching)
        assert not failures


def test_a_file_that_goes_while_it_is_open(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        fill(log, 16)
        log.make_key_files()
        check(log)
        for path in key_files(tmp_path / "t-0"):
            with path.open("r+b") as file:
                file.truncate(100)
        check(log)
        for path in key_files(tmp_path / "t-0"):
            path.unlink()
        check(log)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_MOST_MEMORY", 10 << 20)
    monkeypatch.setattr(key_index, "_mapped", set())  # those of other tests' logs do not count
    with opened(tmp_path / "t-0") as log:
        fill(log, 17)
        check(log)
        mapped = [s for s in log.segments if s._keys is not None and s._keys.map is not None]
        assert 0 < len(mapped) < len(log.segments)
        fill(log, 18)
        check(log)


def test_key_file_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        fill(log, 19)
        log.make_key_files()
    path = key_files(tmp_path / "t-0")[0]
    file = KeyFile(str(path))
    stat = path.with_suffix(".log").stat()
    assert file.marks == (0, stat.st_size, stat.st_ino, stat.st_ctime_ns)
    with pytest.raises(FileNotFoundError):
        KeyFile(str(path) + "x")
    with pytest.raises(TypeError):
        file.find(kstore.open(tmp_path / "t-0").segments[0], "key")  # type: ignore[arg-type]
    assert MAX64 > file.size == path.stat().st_size
