"""Small files that would take much time or memory to read."""

import gzip
import os
import random
import resource
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kstore
from kstore.testing import failing
from tests.helpers import forge
from tests.helpers.forge import Rec
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.varint import varint
from tests.hostile.material import LOG

NOW = int(time.time() * 1000)
VALUE = random.Random(1).randbytes(101_000)
BODY = forge.record(Rec(VALUE, b"k"), 0, -1)


def unpacked(codec: str, packed: bytes, limit: int = 1 << 20) -> list[kstore.Record]:
    """The records of a batch with a right checksum around a compressed payload."""
    return kstore.RecordBatch(
        forge.batch(codec=codec, packed=packed, count=1), max_decompressed_bytes=limit
    ).records()


@pytest.mark.parametrize(
    ("codec", "whole", "nothing", "reason"),
    [
        ("gzip", gzip.compress(BODY), gzip.compress(b""), "members"),
        ("lz4", forge.lz4(BODY), struct.pack("<I", 1 << 31), "blocks"),
    ],
    ids=["gzip", "lz4"],
)
def test_many_empty_parts_are_refused(codec: str, whole: bytes, nothing: bytes, reason: str) -> None:
    """Members of 20 bytes, stored blocks of 4, that unpack to nothing: no limit on output stops them."""
    at = 0 if codec == "gzip" else 7  # after the header of a frame
    assert unpacked(codec, whole[:at] + nothing * 1000 + whole[at:], len(BODY))[0].key == b"k"
    with pytest.raises(kstore.CorruptRecordError, match=f"{codec}: {reason}"):
        unpacked(codec, whole[:at] + nothing * 70_000 + whole[at:], len(BODY))


@pytest.mark.parametrize("cuts", [(1, 512, 1024), (100_000, 100_000, 100_003), ()])
def test_gzip_members_of_all_sizes(cuts: tuple[int, ...]) -> None:
    """What comes out is the same wherever a member ends."""
    bounds = [0, *cuts, len(BODY)]
    packed = b"".join(gzip.compress(BODY[start:end]) for start, end in pairwise(bounds))
    for more in (b"", b"no member"):
        assert unpacked("gzip", packed + more, len(BODY))[0].value == VALUE
    with pytest.raises(kstore.CorruptRecordError, match="ends early"):
        unpacked("gzip", packed[:-1])
    with pytest.raises(kstore.RecordTooLargeError):
        unpacked("gzip", packed, len(BODY) - 1)


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_an_index_larger_than_its_log(tmp_path: Path, kind: str) -> None:
    """A hole of 64 GiB takes no room on the disk, but would in memory: no log has such an index."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        log.append(b"x", timestamp=5)
    path = directory / LOG.replace(".log", kind)
    path.touch()
    os.truncate(path, 34 * 12 * (1 << 27))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log = kstore.open(directory)
    assert log.get(0).value == b"x"
    found = log.find(timestamp=0)
    assert found[:2] == (0, 5)
    if kind == ".txnindex":
        assert [finding.kind for finding in log.recovery.findings] == ["broken_index"]
    else:
        assert "size of an index" in str(log.segments[0].notes[0])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_many_leader_epochs(tmp_path: Path) -> None:
    """Each batch begins one: recovery takes them over in time that grows with their number only."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
    count = 60_000
    batches = (
        kstore.encode_batch([(1, None, b"x", None)], base_offset=n, leader_epoch=n) for n in range(count)
    )
    (tmp_path / "t-0" / LOG).write_bytes(b"".join(batches))
    log = kstore.open(tmp_path / "t-0", clean=False, recovery_point=0)
    assert log.leader_epochs == tuple((n, n) for n in range(count))


def with_a_gap(directory: Path, size: int, *, hole: bool) -> Path:
    """20 batches with `size` bytes of zeros between two of them, as a hole of the file or written out."""
    with kstore.open(directory, "a") as log:
        for i in range(20):
            log.append(b"%d" % i * 10)
    position = list(kstore.open(directory).batches())[10].position
    path = directory / LOG
    rest = path.read_bytes()[position:]
    with path.open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        if not hole:
            file.write(bytes(size))
        file.seek(position + size)
        file.write(rest)
    return path


@pytest.mark.parametrize("size", [4096, (1 << 30) + 5, (1 << 30) - 1])
def test_skipping_passes_over_a_hole_of_a_file(tmp_path: Path, size: int) -> None:
    """It asks the system where the hole ends: to read a GiB of zeros would take long. A batch may begin in
    its last bytes, because its own first ones are zeros too."""
    with_a_gap(tmp_path / "t-0", size, hole=True)
    log = kstore.open(tmp_path / "t-0", recover=False)
    with failing(500, this_thread=True):  # reading it all would take more calls
        for reader in (log.records(on_error="skip"), log.batches(on_error="skip")):
            assert len(list(reader)) == 20
            assert [skipped.size for skipped in reader.skipped] == [size]
        scan = log.scan(on_error="skip")
        assert sum(len(batch) for batch in scan) == 20
        assert [skipped.size for skipped in scan.skipped] == [size]


def record_with_headers(count: int) -> bytes:
    """A batch of one record with `count` headers of two bytes each: a name of no bytes, and null."""
    body = b"\0\0\0" + varint(-1) + varint(1) + b"v" + varint(count) + (varint(0) + varint(-1)) * count
    return forge.batch(body=varint(len(body)) + body, count=1, base_timestamp=1, max_timestamp=1)


def test_headers_are_counted_as_the_objects_that_they_become(tmp_path: Path) -> None:
    """Two bytes in the file become some 80 to 176 in memory. The limit is that on what a batch unpacks to."""
    limit = 1 << 20
    most = (limit - 2) // 178
    [record] = kstore.RecordBatch(record_with_headers(most), max_decompressed_bytes=limit).records()
    assert len(record.headers) == most
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / LOG).write_bytes(record_with_headers(most + 1))
    log = kstore.open(directory, max_decompressed_bytes=limit)
    for read in (
        lambda: list(log.records()),
        lambda: [batch.records() for batch in log.batches()],
        lambda: log.get(0),
        lambda: log.find(offset=0),
        lambda: log.find(timestamp=1),
        lambda: list(log.read(0)),
        lambda: list(log.follow(0, timeout=0)),
    ):
        with pytest.raises(
            kstore.RecordTooLargeError, match=f"{most + 1} headers of record 0.*max_decompressed"
        ) as caught:
            read()
        assert caught.value.limit == limit
        assert caught.value.position == 0
    reader = log.records(on_error="skip")
    assert list(reader) == []
    assert len(reader.skipped) == 1
    assert sum(len(batch) for batch in log.scan()) == 1  # columns hold headers as they are
    assert len(kstore.open(directory).get(0).headers) == most + 1  # the default allows 1.5 million


@pytest.mark.parametrize("content", [b"a b c 1\n" * (1 << 15), bytes(1 << 18)])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_damaged_checkpoint_costs_what_its_size_does(tmp_path: Path, content: bytes, mode: str) -> None:
    """Of all lines that do not parse the first is reported, and not all of it."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"x")
    (path / "leader-epoch-checkpoint").write_bytes(content)
    tracemalloc.start()
    try:
        with kstore.open(path, mode) as log:
            texts = [finding.text for finding in log.recovery.findings]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(text) < 2000 for text in texts] == [True]
    assert most < 10 << 20


def steps_in_python(function: Callable[[], object]) -> int:
    """How many steps of Python a call takes in modules of kstore."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith("kstore."):
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_many_transactions_that_are_open_at_once(tmp_path: Path) -> None:
    """The work for each does not grow with their number."""
    steps = []
    for many in (20, 200):
        path = tmp_path / f"t-{many}"
        log = kstore.open(path, "a")
        for producer in range(many):
            log.append_batches(transactional((NOW, None, b"v", None), producer=producer))

        def end_all(log: kstore.LogWriter = log, many: int = many) -> None:
            for producer in range(many):
                end_transaction(log, "ABORT", NOW, producer)

        def recover(path: Path = path) -> None:
            kstore.open(path, "r+").abandon()

        def read(path: Path = path) -> None:
            assert not list(kstore.open(path).records(isolation="read_committed"))

        written = steps_in_python(end_all)
        log.abandon()
        for snapshot in path.glob("*.snapshot"):
            snapshot.unlink()
        steps.append([each / many for each in (written, steps_in_python(read), steps_in_python(recover))])
    few, more = steps
    assert all(b < 1.3 * a for a, b in zip(few, more, strict=True)), steps
