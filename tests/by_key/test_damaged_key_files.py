"""Damaged and forged .keys files, and damaged logs beside them: lookups are slower, never wrong."""

import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from tests.by_key.lookups import check
from tests.helpers.effort import SEED, some
from tests.helpers.forge import crc32c
from tests.hostile.material import turned

NAMES = [b"key-%d" % i for i in range(120)]
SOME = [NAMES[0], NAMES[19], NAMES[50], NAMES[119]]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for number in (0, 1):
            log.extend([b"%d" % number] * 100, keys=NAMES[number * 20 : number * 20 + 100])
            log.roll()
        log.make_key_files()
    return tmp_path / "t-0"


def damaged(content: bytes, other: bytes) -> list[bytes]:
    """The file with some bits turned, cut short, and mixed with another one."""
    made = [turned(content, bit) for bit in some(range(8 * len(content)), 300, "bits")]
    made += [content[:size] for size in [0, 1, 63, 64, 65, len(content) - 512, len(content) - 1]]
    made += [
        content + bytes(512),
        bytes(len(content)),
        other,
        content[:64] + other[64:],
        other[:64] + content[64:],
    ]
    made += [content[:64] + content[576:1088] + content[64:576] + content[1088:]]
    for field in (4, 56):
        for number in (0, 1, 2**31, 2**32 - 1):
            made.append(content[:field] + struct.pack("<I", number) + content[field + 4 :])
    header = b"KSK1" + content[4:60]  # of an older version
    return [*made, header + struct.pack("<I", crc32c(header)) + content[64:]]


def test_damage(partition: Path) -> None:
    first, second = sorted(partition.glob("*.keys"))
    content, other = first.read_bytes(), second.read_bytes()
    wanted = {
        key: [record for record in kstore.open(partition) if record.key == key] for key in [*SOME, b"nobody"]
    }
    for bad in damaged(content, other):
        first.write_bytes(bad)
        log = kstore.open(partition)
        for key, records in wanted.items():
            assert log.last(key) == (records[-1] if records else None), (SEED, bad)
            assert list(log.history(key)) == records, (SEED, bad)
    with kstore.open(partition, "a") as log:
        assert log.make_key_files()[0].made


def test_huge_and_sparse(partition: Path) -> None:
    first, _ = sorted(partition.glob("*.keys"))
    with first.open("r+b") as file:
        file.truncate(1 << 40)
    check(kstore.open(partition), SOME)
    with first.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack("<I", ((1 << 40) - 64) // 512))
    check(kstore.open(partition), SOME)
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


NO_FILES = [a_directory, a_link_that_leads_nowhere, a_link_to_itself, a_link_to_a_device, a_pipe, a_socket]


@pytest.mark.parametrize("no_file", NO_FILES)
def test_no_regular_file(partition: Path, no_file: Callable[[Path], None]) -> None:
    """In the place of a file that was made, of one that is to be made, and of one that is removed."""
    first, second = sorted(partition.glob("*.keys"))
    last = max(partition.glob("*.log")).with_suffix(".keys")
    stray, draft = partition / f"{10**15:020}.keys", partition / f"{10**15:020}.keys.tmp"
    first.unlink()
    for path in (first, last, stray, draft):
        no_file(path)
    check(kstore.open(partition), SOME)
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
    check(kstore.open(partition), SOME)


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
        check(kstore.open(partition), SOME)


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_damage_of_a_log_that_is_open(tmp_path: Path, codec: str) -> None:
    """A record is read alone, so its own checksum detects damage: an error, or the record as it was."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", compression_type=codec) as log:
        log.extend([b"v%d" % i for i in range(4)], keys=[b"key-%d" % i for i in range(4)])
        log.extend([b"w"], keys=[b"key-9"])
        log.roll()
        log.make_key_files()
        batch = next(iter(log.batches()))
    name = min(path.glob("*.log"))
    sound = name.read_bytes()
    record = sound.index(b"key-2") if codec == "uncompressed" else 0
    detected = {*range(16, 61), *range(record - 5, record + 9)} if record else set(range(16, batch.size))
    for at in some(range(batch.size), 50, codec):
        log = kstore.open(path)
        wanted = log.last(b"key-2")
        with name.open("r+b") as file:  # the .keys file was found to fit before
            file.seek(at)
            file.write(bytes([sound[at] ^ 1 << at % 8]))
        try:
            found = log.last(b"key-2")
            assert found is not None
            assert found == wanted or at < 8, (SEED, at)  # a base offset has no checksum of its own
            assert at not in detected, (SEED, at)
        except kstore.CorruptRecordError:
            pass
        name.write_bytes(sound)
        with kstore.open(path, "a") as again:
            again.make_key_files()


def test_damage_below_the_start_of_the_log(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 4, keys=[b"key-%d" % i for i in range(4)])
        log.extend([b"v"] * 4, keys=[b"new-%d" % i for i in range(4)])
        log.roll()
        log.make_key_files()
        assert log.last(b"key-1") is not None
        log.delete_records(4)
        with min((tmp_path / "t-0").glob("*.log")).open("r+b") as file:
            file.seek(70)
            file.write(b"\xff")
        assert log.last(b"key-0") is None
        assert list(log.history(b"key-0")) == []
        found = log.last(b"new-0")
        assert found.offset == 4
