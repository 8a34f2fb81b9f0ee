"""Key files of an enemy: lookups by key are slower, never wrong, and nothing crashes."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore

KEYS = [b"key-%d" % i for i in range(120)]


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
    for at in [*range(80), *range(80, len(content), 3)]:
        yield content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]
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
    for number, bad in enumerate(damaged(content, other)):
        first.write_bytes(bad)
        check(partition)
        if number % 100 == 0:
            with kstore.open(partition, "a") as log:
                assert log.make_key_files()[0].made
            content = first.read_bytes()


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


def test_no_regular_file(partition: Path) -> None:
    first, _ = sorted(partition.glob("*.keys"))
    first.unlink()
    first.mkdir()
    check(partition)
    first.rmdir()
    first.symlink_to("nowhere")
    check(partition)
    with kstore.open(partition, "a") as log:
        assert log.make_key_files()[0].made
    assert not first.is_symlink()
    check(partition)
