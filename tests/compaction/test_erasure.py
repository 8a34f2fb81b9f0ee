"""Erasure: the records of a key are gone, from reads and from the bytes of the files, and nothing else is."""

import hashlib
import json
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kstore
from kstore.__main__ import main
from tests.compaction.operations import ANN, Erasing, digest, left_behind, write_random
from tests.compaction.stages import stage, unpacked
from tests.helpers.effort import times
from tests.helpers.files import contents, flip
from tests.helpers.waiting import threads_doing

OPTIONS: dict[str, Any] = {**Erasing.options}


def shape_of(log: kstore.PartitionLog) -> tuple[object, ...]:
    """What an erasure leaves beside records: places of batches, their producers, aborted transactions."""
    batches = [
        (b.base_offset, b.last_offset, b.leader_epoch, b.producer_id, b.producer_epoch, b.base_sequence)
        for b in log.batches()
    ]
    end = log.log_end_offset
    bases = [s.base_offset for s in log.segments]
    return batches, log.producers(), log.aborted_transactions(0, end), end, bases


def blank(record: kstore.Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.timestamp_type, record.key, None, ()


def fields(record: kstore.Record) -> tuple[object, ...]:
    r = record
    return r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)


@settings(max_examples=times(30), suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    what=st.sampled_from(["records", "values"]),
    by=st.sampled_from(["keys", "where"]),
)
def test_random_logs(ram: Path, seed: int, what: str, by: str) -> None:
    rng = random.Random(seed)
    directory = ram / f"t{seed}-0"
    shutil.rmtree(directory, ignore_errors=True)
    write_random(directory, rng)
    with kstore.open(directory, "a", **OPTIONS) as log:
        if rng.random() < 0.5:
            log.delete_records(log.log_end_offset // 2)
        before, shape = list(log), shape_of(log)
        markers = list(log.records(control=True))
        untouched = {b.base_offset: b for b in log.batches() if all(r.key != ANN for r in b.records())}
        who = {"keys": [ANN]} if by == "keys" else {"where": lambda r: r.key == ANN}
        files = {s.path: Path(s.path).read_bytes() for s in log.segments}
        planned = log.erase(**who, reason="asked", what=what, dry_run=True)
        assert files == {s.path: Path(s.path).read_bytes() for s in log.segments}
        rolled = (
            log.log_end_offset
            if any(s.base_offset == log.segments[-1].base_offset for s in planned.segments)
            else None
        )
        done = log.erase(**who, reason="asked", what=what)
        if rolled is not None:
            shape[-1].append(rolled)
        assert [s[:5] for s in done.segments] == [s[:5] for s in planned.segments]
        for segment in done.segments:
            assert segment.sha256_before == hashlib.sha256(files[segment.path]).hexdigest()
            assert segment.sha256_after == digest(segment.path)
            assert segment.bytes_after == Path(segment.path).stat().st_size
        kept = [fields(r) for r in before if r.key != ANN]
        if what == "values":
            kept = [blank(r) if r.key == ANN else fields(r) for r in before]
        assert not log.erase(**who, reason="again", what=what).segments
        assert not left_behind(directory)

    def check(log: kstore.PartitionLog) -> None:
        assert [fields(r) for r in log] == kept
        assert shape_of(log) == shape
        assert [r for r in log.records(control=True) if r in markers and r.key != ANN] == [
            r for r in markers if r.key != ANN
        ]
        for batch in log.batches():
            assert untouched.get(batch.base_offset, batch) == batch

    check(kstore.open(directory))
    again = kstore.open(directory, clean=False, index_interval_bytes=100)
    assert not again.recovery.losses
    check(again)
    for segment in again.segments:  # no byte of it, below the log's start either
        for batch in kstore.open(segment.path).batches():
            for record in batch.records():
                assert record.key != ANN or (what == "values" and record.value is None and not record.headers)
    if what == "records":
        for file in directory.iterdir():
            assert ANN not in file.read_bytes()
    with kstore.open(directory, "a", **OPTIONS) as log:
        assert log.append(b"next") == again.log_end_offset


@pytest.mark.parametrize("what", ["records", "values"])
def test_old_formats(ram: Path, what: str) -> None:
    scenario = stage("compact_magic1_1_dirty")
    directory = unpacked(scenario, ram)
    with kstore.open(directory, "a") as log:
        log.roll()
        before = list(log)
        assert {b.magic for b in log.batches()} & {0, 1}
        key = next(r.key for r in before if r.key is not None and r.value is not None)
        old = {b.base_offset: b for b in log.batches() if all(r.key != key for r in b.records())}
        end = log.log_end_offset
        assert log.erase(keys=[key], reason="asked", what=what).records_erased
        after = [(r.offset, r.key, r.value, r.timestamp) for r in log]
        assert after == [
            (r.offset, r.key, None if r.key == key else r.value, r.timestamp)
            for r in before
            if r.key != key or what == "values"
        ]
        for batch in log.batches():
            assert old.get(batch.base_offset, batch) == batch
    assert kstore.open(directory, clean=False).log_end_offset == end


def test_arguments(ram: Path) -> None:
    with kstore.open(ram / "t-0", "a") as log:
        log.append(b"v", ANN)
        good: dict[str, Any] = {"keys": [ANN], "reason": "r"}
        with pytest.raises(TypeError, match=r"every key is bytes, not bytearray\(b'ann'\)"):
            log.erase(keys=[bytearray(b"ann")], reason="r")  # type: ignore[list-item]
        for bad in (
            {"keys": None},
            {"keys": ANN},
            {"where": print},
            {"keys": None, "where": 1},
            {"reason": None},
        ):
            with pytest.raises(TypeError):
                log.erase(**(good | bad))
        with pytest.raises(ValueError, match="what is one of"):
            log.erase(**good, what="all")
        with pytest.raises(ZeroDivisionError):
            log.erase(where=lambda r: 1 / 0, reason="r")
        with pytest.raises(StopIteration):
            log.erase(where=lambda r: next(iter(())), reason="r")
        with pytest.raises(kstore.ReentrantCallError):
            log.erase(where=lambda r: log.erase(**good), reason="r")
        assert [r.key for r in log] == [ANN]
    with pytest.raises(kstore.LogClosedError):
        log.erase(**good)


def test_cut_files_and_damage(ram: Path) -> None:
    directory = ram / "t-0"
    write_random(directory, random.Random(1))
    (directory / "00000000000000000000.log.9.cut").write_bytes(ANN)
    with kstore.open(directory, "a", **OPTIONS, cleanup_policy="compact", min_cleanable_dirty_ratio=0) as log:
        reader = kstore.open(directory)
        first = next(under_way := reader.records())
        log.erase(keys=[b"bob"], reason="r")
        assert len(list(directory.glob("*.cut"))) == 1
        done = log.erase(keys=[ANN], reason="r", cut_files=True)
        assert [Path(p).suffix for p in done.cut_files] == [".cut"]
        assert not any(ANN in file.read_bytes() for file in directory.iterdir())
        seen = [first]
        try:
            seen += under_way
        except kstore.LogChangedError:
            pass
        else:
            assert [r for r in seen if r.key == b"cid"] == [r for r in log if r.key == b"cid"]
        assert reader.refresh()
        assert list(reader) == list(log)
        flip(log.segments[0].path, -1)
        log.flush()  # else its thread writes the recovery point meanwhile
        state = contents(directory)
        with pytest.raises(kstore.CorruptRecordError):
            log.erase(keys=[b"cid"], reason="r")
        assert contents(directory) == state


def test_command(ram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ram / "t-0"
    write_random(directory, random.Random(3))
    count = sum(r.key == ANN for r in kstore.open(directory))
    before = contents(directory)
    command = ["erase", str(directory), "--key", ANN.decode(), "--reason", "asked by ann"]
    assert main([*command, "--dry-run"]) == 0
    assert f"{count} records would be erased: asked by ann" in capsys.readouterr().out
    assert contents(directory) == before
    assert main([*command, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(len(row["offsets"]) for row in rows) == count
    for row in rows:
        assert digest(row["path"]) == row["sha256_after"]
    assert main(command) == 1
    assert capsys.readouterr().out == "0 records erased: asked by ann\n"
    assert main([*command[:2], "--key", "bob", "--values"]) == 0
    assert all(r.value is None for r in kstore.open(directory) if r.key == b"bob")
    assert main(command[:2]) == 2
    assert "erase needs --key" in capsys.readouterr().err


def test_beside_appends_and_readers(ram: Path) -> None:
    done = threading.Event()
    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:

        def read() -> None:
            while not done.is_set():
                offsets = [r.offset for r in log if r.key != ANN]
                assert offsets == [o for o in range(len(offsets) * 2) if o % 2]

        def append() -> None:
            for n in range(600):
                log.append(b"%d" % n + b"." * 20, b"bob" if n % 2 else ANN)

        with threads_doing(read, read, ended=done), threads_doing(append):
            for _ in range(10):
                log.erase(keys=[ANN], reason="asked")
        log.erase(keys=[ANN], reason="asked")
        assert [r.offset for r in log] == list(range(1, 600, 2))


def test_cut_files_that_are_left_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        log.append(b"v", ANN)
    cut = directory / f"{0:020}.log.100.cut"
    cut.write_bytes(b"kept by a recovery")
    command = ["erase", str(directory), "--key", ANN.decode()]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "1 record erased" in told.out
    assert (
        f"1 .cut file of recoveries may hold such records, too: {cut}; --cut-files removes them" in told.err
    )
    assert main([*command, "--cut-files", "--dry-run"]) == 0
    assert f"{cut}: would be removed" in capsys.readouterr().out
    with kstore.open(directory, "a") as log:
        assert log.erase(keys=[ANN], reason="r").cut_files_left == (str(cut),)
        assert cut.exists()
        done = log.erase(keys=[ANN], reason="r", cut_files=True)
    assert (done.cut_files, done.cut_files_left) == ((str(cut),), ())
    assert not cut.exists()
