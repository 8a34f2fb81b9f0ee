"""Lookups by key with .keys files: the right record, whatever is done to the log and to its files."""

import os
import random
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls
from tests.by_key.lookups import KEYS, OPTIONS, check, fill, key_files, opened
from tests.helpers import forge
from tests.helpers.effort import times
from tests.helpers.files import flip
from tests.helpers.forge import Rec
from tests.helpers.waiting import threads_doing, until
from tests.hostile.material import GOLDEN


@pytest.mark.parametrize("codec", ["producer", "lz4"])
def test_a_file_for_each_sealed_segment(tmp_path: Path, codec: str) -> None:
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
    check(reader)


def test_sealed_segments_are_not_read(tmp_path: Path) -> None:
    """For an unknown key a lookup reads the last segment, and the .keys files of the others.

    A few unknown keys have the fingerprint of a known one, by a hash whose secret is random: for those the
    record of that one is read."""
    unknown = [b"nobody %d" % i for i in range(200)]
    with opened(tmp_path / "t-0") as log:
        fill(log, 1)
        log.make_key_files()
        reader = kstore.open(tmp_path / "t-0")
        assert [reader.last(key) for key in unknown] == [None] * 200
        for segment in log.segments[:-1]:
            data = bytearray(Path(segment.path).read_bytes())
            data[61:] = bytes(len(data) - 61)
            with Path(segment.path).open("r+b") as file:  # the .keys file was found to fit before
                file.write(data)
        have_read = 0
        for key in unknown:
            try:
                assert reader.last(key) is None
            except kstore.CorruptRecordError:
                have_read += 1
        assert have_read < 40  # 4 on the average
        with pytest.raises(kstore.CorruptRecordError):
            list(reader)


def test_their_size(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        count = 20_000
        log.extend([b""] * count, keys=[b"%d" % i for i in range(count)])
        log.roll()
        [made] = log.make_key_files()
        assert made.keys == count
        assert made.size <= 16 * count
        for i in range(count):  # one in a hundred is beside another of the same fingerprint
            record = log.last(b"%d" % i)
            assert record.offset == i
            assert log.last(b"no %d" % i) is None


@pytest.mark.parametrize(
    ("stamp", "codec", "batch_bytes"),
    [
        ("CreateTime", "uncompressed", 1),
        ("LogAppendTime", "uncompressed", 4 << 20),
        ("CreateTime", "gzip", 4 << 20),
        ("LogAppendTime", "gzip", 9000),
    ],
)
def test_records_of_all_sizes(tmp_path: Path, stamp: str, codec: str, batch_bytes: int) -> None:
    sizes = [0, 1, 100, *range(440, 520), 2000, 5000, 100_000, 1_200_000, 7, 600]
    rng = random.Random(1)
    values = [None if size == 1 else rng.randbytes(size) for size in sizes]
    headers = [[("h", b"x" * (i % 600)), ("n", None)] if i % 3 == 0 else [] for i in range(len(sizes))]
    keys = [b"k" * i for i in range(len(sizes))]
    options = {"message_timestamp_type": stamp, "compression_type": codec, "max_message_bytes": 8 << 20}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:  # type: ignore[arg-type]
        log.append(b"before", b"other")
        stamps = [1_700_000_000_000 + rng.randrange(-(10**9), 10**9) for _ in sizes]
        log.extend(values, keys, timestamps=stamps, headers=headers, batch_bytes=batch_bytes)
        log.roll()
        assert log.make_key_files()[0].made
        records = list(log)
    reader = kstore.open(tmp_path / "t-0")
    for wanted in records:
        assert wanted.key is not None
        assert reader.last(wanted.key) == wanted
    # Uncompressed, a record is read by itself, by its position in the .keys file.
    if codec == "uncompressed":
        assert count_calls(lambda: reader.last(b"k")) < 6
    assert reader.last(b"nobody") is None


def test_messages_of_old_formats(tmp_path: Path) -> None:
    """Segments of a broker that was upgraded twice: their records are found by their offsets."""
    path = tmp_path / "upgraded-0"
    shutil.copytree(GOLDEN / "magic_upgrade" / "upgraded-0", path)
    with kstore.open(path, "a") as log:
        assert {batch.magic for batch in log.batches()} == {0, 1, 2}
        assert all(each.made for each in log.make_key_files())
        last = {record.key: record for record in log if record.key is not None}
        assert {key: log.last(key) for key in last} == last


def test_odd_keys(tmp_path: Path) -> None:
    keys = [b"", bytes(1), bytes(2), b"k" * 1_000_000, b"k" * 999_999, b"\xff" * 300, None]
    with kstore.open(tmp_path / "t-0", "a", compression_type="zstd") as log:
        for number in range(3):
            for key in keys:
                log.append(b"%d" % number, key)
            log.append(None, b"gone")
        log.roll()
        assert log.make_key_files()[0].keys == 7
    for log in (kstore.open(tmp_path / "t-0"), kstore.open(tmp_path / "t-0", "r+")):
        for at, key in enumerate(keys[:-1]):
            record = log.last(key or b"")
            assert (record.key, record.value, record.offset) == (key, b"2", 16 + at)
        assert log.last(b"k" * 999_998) is None
        gone = log.last(b"gone")
        assert gone.value is None
        log.close()


def wait_for_files(log: kstore.LogWriter) -> None:
    """Until each sealed segment has its file."""
    until(lambda: [p.stem for p in key_files(Path(log.path))] == [s.stem for s in log.segments[:-1]])


def test_in_the_background(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path, key_files=True) as log:
        fill(log, 8)
        wait_for_files(log)
        check(log)
    first = key_files(path)[0]
    inode = first.stat().st_ino
    with opened(path) as log:
        fill(log, 9)
        wait_for_files(log)
        assert first.stat().st_ino == inode  # it is not made again
        log.compact()
        wait_for_files(log)
        check(log)
        log.configure(key_files=None)
        count = len(key_files(path))
        fill(log, 10)
        assert len(key_files(path)) == count
        log.configure(key_files=True)
        wait_for_files(log)
    # The background trusts the header of a file; a lookup finds that another part is damaged.
    damaged = max(key_files(path), key=lambda file: file.stat().st_size)
    sound = damaged.read_bytes()
    damaged.write_bytes(sound[:64] + bytes(len(sound) - 64))
    with opened(path) as log:
        check(log)
        log.append(b"v", KEYS[0])
        log.roll()
        until(lambda: any(damaged.read_bytes()[64:]))
        check(log)
    with pytest.raises(kstore.InvalidConfigError, match="key_files"):
        opened(tmp_path / "u-0", key_files="yes")


def test_too_many_keys(tmp_path: Path) -> None:
    count = 45_000
    with kstore.open(tmp_path / "t-0", "a", log_cleaner_dedupe_buffer_size=(1 << 20) + 1) as log:
        log.extend([b""] * count, keys=[b"%d" % i for i in range(count)])
        log.roll()
        [made] = log.make_key_files()
        assert made == (0, -1, 0, False, "its keys do not fit into log_cleaner_dedupe_buffer_size")
        assert key_files(tmp_path / "t-0") == []
        record = log.last(b"%d" % (count - 1))
        assert record.offset == count - 1


def test_a_damaged_segment_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 10)
    first = min(path.glob("*.log"))
    flip(first, 70)
    with opened(path) as log:
        made = log.make_key_files()
        assert made[0].keys == -1
        assert first.name in made[0].reason
        assert all(each.made for each in made[1:])
        with pytest.raises(kstore.CorruptRecordError):
            log.last(b"nobody")


# ---- files of another state of the log ---------------------------------------------------------------------


def changed_in_place(log: Path, content: Path | None = None) -> None:
    """Another key of the same length in the same batch, with a right checksum."""
    batch = next(iter(kstore.open(content or log).batches()))
    records = [Rec(r.value, b"new-9" if i == 0 else r.key, r.timestamp) for i, r in enumerate(batch)]
    made = forge.batch(*records, epoch=batch.leader_epoch)
    assert len(made) == batch.size
    with log.open("r+b") as file:
        file.write(made)


def copied_back(log: Path) -> None:
    times = log.stat()
    changed_in_place(log)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(log: Path) -> None:
    copy = log.with_name("copy")
    shutil.copy2(log, copy)
    changed_in_place(copy, log)
    shutil.copystat(log, copy)
    copy.replace(log)


@pytest.mark.parametrize("change", [changed_in_place, copied_back, replaced])
def test_made_for_another_state_of_the_log(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        log.extend([b"v" * 20] * 5, keys=[b"old-%d" % i for i in range(5)])
        log.roll()
        log.append(b"v", key=b"end")
        log.make_key_files()
    change(path / f"{0:020}.log")
    for log in (kstore.open(path), opened(path)):
        check(log, [b"new-9", b"old-0", b"end"])
        assert log.last(b"old-0") is None
        log.close()
    with opened(path) as log:
        [made] = log.make_key_files()
        assert made.made
        check(log, [b"new-9", b"old-0", b"end"])


def test_leftover_files_are_removed_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        fill(log, 12)
        log.make_key_files()
        last = log.segments[-1].stem
    leftovers = ["00000000000000099999.keys", "00000000000000000000.keys.tmp"]
    others = ["notes.keys", "7.keys", "notes.keys.tmp"]
    for name in [*leftovers, *others, f"{last}.keys"]:
        (path / name).write_bytes(b"x")
    reader = kstore.open(path)
    assert [Path(finding.file).name for finding in reader.recovery.findings] == leftovers[:1]
    check(reader)
    with opened(path) as log:
        assert sorted(Path(finding.file).name for finding in log.recovery.findings) == sorted(leftovers)
        for name in [*leftovers, f"{last}.keys"]:
            assert not (path / name).exists()
        assert all((path / name).exists() for name in others)
        check(log)


def test_a_file_that_is_cut_and_removed_while_it_is_open(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        fill(log, 16)
        log.make_key_files()
        check(log)
        for path in key_files(tmp_path / "t-0"):
            os.truncate(path, 100)
        check(log)
        for path in key_files(tmp_path / "t-0"):
            path.unlink()
        check(log)


# ---- beside others -----------------------------------------------------------------------------------------


def test_everything_at_once(tmp_path: Path) -> None:
    ended = threading.Event()
    options = OPTIONS | {"cleanup_policy": "compact", "internal_segment_bytes": 2000, "key_files": True}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        acked = {key: log.append(b"0", key) for key in KEYS[:20]}

        def repeated(step: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    while not ended.is_set():
                        step()
                finally:
                    ended.set()

            return run

        def newest(reader: kstore.PartitionLog, key: bytes) -> kstore.Record | None:
            while True:
                try:
                    if reader is not log:
                        reader.refresh()
                    return reader.last(key)
                except kstore.LogChangedError:  # it was compacted since
                    assert reader is not log

        def ask(reader: kstore.PartitionLog) -> None:
            for key in KEYS[:20]:
                least = acked[key]
                record = newest(reader, key)
                assert record is not None, (key, least)
                assert record.key == key
                assert record.offset >= least
            assert newest(reader, b"nobody") is None

        def append() -> None:
            try:
                for number in range(times(400)):
                    if ended.is_set():
                        break
                    key = KEYS[number % 20]
                    acked[key] = log.append(b"%d" % number + b"." * 30, key)
                    if number % 200 == 199:
                        log.erase(keys=[b"nobody at all"], reason="asked")
            finally:
                ended.set()

        beside = kstore.open(tmp_path / "t-0")
        steps = [lambda: ask(log), lambda: ask(beside), log.make_key_files, log.make_key_files, log.compact]
        with threads_doing(append, *map(repeated, steps)):
            pass
    reader = kstore.open(tmp_path / "t-0")
    assert {key: getattr(reader.last(key), "offset", -1) for key in acked} == acked


@pytest.mark.nightly
def test_maps_of_all_logs_take_at_most_128_mib(tmp_path: Path) -> None:
    """Six million keys would take about 290 MiB."""
    with kstore.open(tmp_path / "t-0", "a", segment_bytes=1 << 30) as log:
        for part in range(6):
            log.extend(
                [b""] * 1_000_000, keys=[b"%d" % i for i in range(part * 1_000_000, (part + 1) * 1_000_000)]
            )
            log.roll()
    reader = kstore.open(tmp_path / "t-0")
    assert reader.last(b"nobody") is None  # reads all of it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        assert reader.last(b"nobody") is None
        assert reader.last(b"17").offset == 17  # type: ignore[union-attr]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 140 << 10  # KiB
