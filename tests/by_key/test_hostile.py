"""Key files of an enemy: lookups by key are slower, never wrong, and nothing crashes."""

import os
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore

KEYS = [b"key-%d" % i for i in range(120)]
EVERY_BIT = os.environ.get("KSTORE_BITS") == "all"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for number in (0, 1):
            log.extend([b"%d" % number] * 100, keys=KEYS[number * 20 : number * 20 + 100])
            log.roll()
        log.make_key_files()
    return tmp_path / "t-0"


def check(path: Path) -> None:
    log = kstore.open(path)
    for key in [KEYS[0], KEYS[19], KEYS[50], KEYS[119], b"nobody"]:
        wanted = [record for record in log if record.key == key]
        assert log.last(key) == (wanted[-1] if wanted else None)
        assert list(log.history(key)) == wanted


def damaged(content: bytes, other: bytes) -> Iterator[bytes]:
    for at in range(len(content)):
        for bit in range(8) if EVERY_BIT else [at % 8]:
            yield content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]
    for size in [0, 1, 63, 64, 65, len(content) - 512, len(content) - 1]:
        yield content[:size]
    yield content + bytes(512)
    yield bytes(len(content))
    yield other
    yield content[:64] + other[64:]
    yield other[:64] + content[64:]
    yield content[:64] + content[576:1088] + content[64:576] + content[1088:]
    for field in (4, 56):
        for number in (0, 1, 2**31, 2**32 - 1):
            yield content[:field] + struct.pack("<I", number) + content[field + 4 :]


def test_every_byte(partition: Path) -> None:
    first, second = sorted(partition.glob("*.keys"))
    content, other = first.read_bytes(), second.read_bytes()
    for bad in damaged(content, other):
        first.write_bytes(bad)
        check(partition)
    with kstore.open(partition, "a") as log:
        assert log.make_key_files()[0].made


def test_huge_and_sparse(partition: Path) -> None:
    first, _ = sorted(partition.glob("*.keys"))
    with first.open("r+b") as file:
        file.truncate(1 << 40)
    check(partition)
    with first.open("rb") as file:
        content = bytearray(file.read(64))
    content[4:8] = struct.pack("<I", ((1 << 40) - 64) // 512)
    with first.open("r+b") as file:
        file.write(content)
    check(partition)
    with kstore.open(partition, "a") as log:
        assert log.make_key_files()[0].made


def a_directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def a_link_that_leads_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    there = Path.cwd()
    os.chdir(path.parent)  # names of sockets must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(there)


NO_FILES = [
    a_directory,
    a_link_that_leads_nowhere,
    a_link_to_itself,
    a_link_to_a_device,
    a_pipe,
    a_socket,
]


@pytest.mark.parametrize("no_file", NO_FILES)
def test_no_regular_file(partition: Path, no_file: Callable[[Path], None]) -> None:
    """In the place of a file that was made, of one that is to be made, and of one that goes."""
    first, second = sorted(partition.glob("*.keys"))
    last = max(partition.glob("*.log")).with_suffix(".keys")
    stray, draft = partition / f"{10**15:020}.keys", partition / f"{10**15:020}.keys.tmp"
    first.unlink()
    for path in (first, last, stray, draft):
        no_file(path)
    check(partition)
    with kstore.open(partition, "a") as log:
        if no_file is a_directory:
            with pytest.raises(OSError, match="irectory"):
                log.make_key_files()
        else:
            assert log.make_key_files()[0].made
            assert first.is_file()
            assert not first.is_symlink()
            assert not any(map(os.path.lexists, (stray, draft)))
            first.unlink()
            no_file(first)
        second.unlink()
        no_file(second)
        log.truncate_to(150)
        log.append(b"after", b"key-50")
        log.roll()
        log.delete_records(120)
        log.retain()
    check(partition)


@pytest.mark.parametrize("no_file", NO_FILES)
def test_no_regular_draft(partition: Path, no_file: Callable[[Path], None]) -> None:
    """Nothing is written through it; an error, or the next opening removes it."""
    first, _ = sorted(partition.glob("*.keys"))
    with kstore.open(partition, "a") as log:
        first.unlink()
        no_file(first.with_suffix(".keys.tmp"))
        with pytest.raises(OSError, match=r"keys\.tmp"):
            log.make_key_files()
    with kstore.open(partition, "a") as log:
        if no_file is not a_directory:
            assert log.make_key_files()[0].made
    check(partition)


def test_a_file_of_another_log(partition: Path, tmp_path: Path) -> None:
    """Of the same size and offsets, with other keys: neither its bytes nor a link to it are believed."""
    with kstore.open(tmp_path / "u-0", "a") as log:
        log.extend([b"0"] * 100, keys=[b"yek-%d" % i for i in range(100)])
        log.roll()
        log.make_key_files()
    ours, theirs = min(partition.glob("*.keys")), min((tmp_path / "u-0").glob("*.keys"))
    for way in (shutil.copy, os.link, os.symlink):
        ours.unlink()
        way(theirs, ours)
        check(partition)


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
            assert record is not None
            assert (record.key, record.value, record.offset) == (key, b"2", 16 + at)
        assert log.last(b"k" * 999_998) is None
        gone = log.last(b"gone")
        assert gone is not None
        assert gone.value is None
        with pytest.raises(TypeError):
            log.last(None)  # type: ignore[arg-type]
        log.close()


def test_many_do_all_at_once(tmp_path: Path) -> None:
    """Files are made by several threads while records come and the log is compacted, cut off and erased from: who asks for
    a key never gets an older record than was acknowledged before."""
    failures: list[BaseException] = []
    ended = threading.Event()
    options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=2000, key_files=True, **options) as log:  # type: ignore[arg-type]
        acked = {key: log.append(b"0", key) for key in KEYS[:20]}

        def work(step: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    while not ended.is_set():
                        step()
                except BaseException as e:  # noqa: BLE001 - for the main thread
                    failures.append(e)
                    ended.set()

            return run

        def ask(reader: kstore.PartitionLog) -> Callable[[], None]:
            def newest(key: bytes) -> kstore.Record | None:
                while True:
                    try:
                        if reader is not log:
                            reader.refresh()
                        return reader.last(key)
                    except kstore.LogChangedError:  # it was compacted since
                        assert reader is not log

            def step() -> None:
                for key in KEYS[:20]:
                    least = acked[key]
                    record = newest(key)
                    assert record is not None, (key, least)
                    assert record.key == key
                    assert record.offset >= least
                assert newest(b"nobody") is None

            return step

        steps = [
            ask(log),
            ask(kstore.open(tmp_path / "t-0")),
            log.make_key_files,
            log.make_key_files,
            log.compact,
        ]
        threads = [threading.Thread(target=work(step)) for step in steps]
        for thread in threads:
            thread.start()
        for number in range(3000):
            if ended.is_set():
                break
            key = KEYS[number % 20]
            acked[key] = log.append(b"%d" % number + b"." * 30, key)
            if number % 500 == 499:
                log.erase(keys=[b"nobody at all"], reason="asked")
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    check_last = kstore.open(tmp_path / "t-0")
    assert {
        key: offset for key in acked if (offset := acked[key]) != getattr(check_last.last(key), "offset", -1)
    } == {}
