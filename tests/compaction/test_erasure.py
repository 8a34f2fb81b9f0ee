"""Erasure: the records of a key are gone, from reads and from the bytes of the files, and nothing else is."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kstore
from kstore.__main__ import main
from kstore.engine.io.file import calls_made, fail_call
from kstore.testing.recorder import Recorder
from tests.compaction import disks
from tests.compaction.stages import stage, unpacked
from tests.compaction.test_interrupted import NOW, left_behind, marker, transaction
from tests.helpers.calls import some_calls
from tests.helpers.key_files import remember, settle

OPTIONS = {"internal_segment_bytes": 1500, "index_interval_bytes": 100}
ANN = b"ann-who-goes"
EXAMPLES = int(os.environ.get("KSTORE_COMPACTIONS", "10"))
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")


pytestmark = pytest.mark.usefixtures("sound_calls")


def write(directory: Path, rng: random.Random, batches: int = 25) -> None:
    sequence = 0
    with kstore.open(directory, "a", **OPTIONS) as log:
        for _ in range(batches):
            records = []
            for _ in range(rng.randrange(1, 8)):
                key = rng.choice([ANN, ANN, b"bob", b"cid", None])
                value = (
                    None
                    if rng.random() < 0.1
                    else b"secret %d" % rng.randrange(99) + b"." * rng.randrange(90)
                )
                headers = [("of", key or b"-"), ("n", None)] if rng.random() < 0.3 else None
                records.append((NOW + rng.randrange(-99, 99), key, value, headers))
            log.append_batches(kstore.encode_batch(records, codec=rng.choice(CODECS)))
            if rng.random() < 0.3:
                log.append_batches(transaction(7, sequence, range(3)))
                sequence += 3
                log.append_batches(marker(7, rng.randrange(2)), origin="coordinator", transaction_version=0)


def look(log: kstore.PartitionLog) -> tuple[object, ...]:
    """What an erasure leaves as it is, beside records: where batches are, their producers, what is aborted."""
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


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    what=st.sampled_from(["records", "values"]),
    by=st.sampled_from(["keys", "where"]),
)
def test_random_logs(ram: Path, seed: int, what: str, by: str) -> None:
    rng = random.Random(seed)
    directory = ram / f"t{seed}-0"
    shutil.rmtree(directory, ignore_errors=True)
    write(directory, rng)
    with kstore.open(directory, "a", **OPTIONS) as log:
        if rng.random() < 0.5:
            log.delete_records(log.log_end_offset // 2)
        before, shape = list(log), look(log)
        markers = list(log.records(control=True))
        untouched = {b.base_offset: b for b in log.batches() if all(r.key != ANN for r in b.records())}
        who = {"keys": [ANN]} if by == "keys" else {"where": lambda r: r.key == ANN}
        files = {s.path: Path(s.path).read_bytes() for s in log.segments}
        dry = log.erase(**who, reason="asked", what=what, dry_run=True)
        assert files == {s.path: Path(s.path).read_bytes() for s in log.segments}
        rolled = (
            log.log_end_offset
            if any(s.base_offset == log.segments[-1].base_offset for s in dry.segments)
            else None
        )
        done = log.erase(**who, reason="asked", what=what)
        if rolled is not None:
            shape[-1].append(rolled)
        assert [s[:5] for s in done.segments] == [s[:5] for s in dry.segments]
        for segment in done.segments:
            assert segment.sha256_before == hashlib.sha256(files[segment.path]).hexdigest()
            assert segment.sha256_after == hashlib.sha256(Path(segment.path).read_bytes()).hexdigest()
            assert segment.bytes_after == Path(segment.path).stat().st_size
        kept = [fields(r) for r in before if r.key != ANN]
        if what == "values":
            kept = [blank(r) if r.key == ANN else fields(r) for r in before]
        assert not log.erase(**who, reason="again", what=what).segments
        assert not left_behind(directory)

    def check(log: kstore.PartitionLog) -> None:
        assert [fields(r) for r in log] == kept
        assert look(log) == shape
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
        good = {"keys": [ANN], "reason": "r"}
        for bad in (
            {"keys": None},
            {"keys": ANN},
            {"keys": ["ann"]},
            {"keys": bytearray(ANN)},
            {"keys": [ANN, None]},
            {"where": print},
            {"reason": None},
            {"keys": None, "where": 1},
            {"dry_run": 1},
            {"cut_files": "no"},
        ):
            with pytest.raises(TypeError):
                log.erase(**(good | bad))
        with pytest.raises(TypeError, match=r"every key is bytes, not bytearray\(b'ann'\)"):
            log.erase(keys=[bytearray(b"ann")], reason="r")  # type: ignore[list-item]
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


def test_old_files_go_and_damage_is_told(ram: Path) -> None:
    directory = ram / "t-0"
    write(directory, random.Random(1))
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
        segment = Path(log.segments[0].path)
        data = bytearray(segment.read_bytes())
        data[-1] ^= 1
        segment.write_bytes(data)
        log.flush()  # else its thread writes the recovery point meanwhile
        state = {f.name: f.read_bytes() for f in directory.iterdir()}
        with pytest.raises(kstore.CorruptRecordError):
            log.erase(keys=[b"cid"], reason="r")
        assert state == {f.name: f.read_bytes() for f in directory.iterdir()}


def erase(directory: Path) -> None:
    with kstore.open(directory, "a", **OPTIONS) as log:
        log._flusher.stop()
        log.make_key_files()
        remember(directory)
        log.erase(keys=[ANN], reason="asked")
        log.make_key_files()
        remember(directory)


@pytest.fixture
def sample(ram: Path) -> tuple[Path, list[kstore.Record], int]:
    source, whole = ram / "source-0", ram / "whole-0"
    write(source, random.Random(7), 12)
    shutil.copytree(source, whole)
    fail_call(0)
    erase(whole)
    return source, list(kstore.open(source)), calls_made()


def check_interrupted(directory: Path, before: list[kstore.Record]) -> None:
    """Each segment is as before or done; opened for writing, nothing is left behind, and it can be done again."""
    left = [r for r in before if r.key != ANN]
    for mode in ("r", "a"):
        with kstore.open(directory, mode, **(OPTIONS if mode == "a" else {})) as log:
            there = list(log)
            assert [r for r in there if r.key != ANN] == left
            assert [r for r in before if r in there] == there
            last = {r.key: r for r in there}
            for key in {r.key for r in before if r.key is not None}:
                assert log.last(key) == last.get(key)
            assert not log.recovery.losses
    assert not left_behind(directory)
    erase(directory)
    assert list(kstore.open(directory)) == left
    assert not any(ANN in file.read_bytes() for file in directory.iterdir())
    shutil.rmtree(directory)


@pytest.mark.parametrize("how", ["kill", "kill_half"])
def test_killed_at_every_call(ram: Path, sample: tuple[Path, list[kstore.Record], int], how: str) -> None:
    source, before, calls = sample
    assert calls > 80
    for nth in some_calls(calls, 15, how):
        directory = Path(shutil.copytree(source, ram / f"t{nth}-0"))
        child = os.fork()
        if child == 0:
            try:
                fail_call(nth, how=how)
                erase(directory)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        check_interrupted(directory, before)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_any_call_fails(ram: Path, sample: tuple[Path, list[kstore.Record], int], error: int) -> None:
    source, before, calls = sample
    for nth in some_calls(calls, 15, error):
        directory = Path(shutil.copytree(source, ram / f"t{nth}-0"))
        fail_call(nth, error)
        try:
            erase(directory)
        except (OSError, kstore.KstoreError):
            pass
        finally:
            fail_call(0)
        check_interrupted(directory, before)


def test_offsets_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that people can read."""
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact") as log:
        log.extend([b"v"] * 8, [b"a", b"b", b"a", b"a", b"a", b"b", b"c", b"a"])
        log.extend([b"v"] * 200, [b"c", b"d"] * 100)
        log.roll()
    command = ["erase", str(tmp_path / "t-0"), "--dry-run", "--key"]
    assert main([*command, "a"]) == 0
    assert "\n  offsets 0, 2 to 4, 7\n" in capsys.readouterr().out
    assert main([*command, "d"]) == 0
    assert re.search(
        r"\n  offsets 9, 11, .*, 105, 107 and 50 others, which --json lists\n", capsys.readouterr().out
    )


def test_command(ram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ram / "t-0"
    write(directory, random.Random(3))
    count = sum(r.key == ANN for r in kstore.open(directory))
    before = {f.name: f.read_bytes() for f in directory.iterdir()}
    command = ["erase", str(directory), "--key", ANN.decode(), "--reason", "asked by ann"]
    assert main([*command, "--dry-run"]) == 0
    assert f"{count} records would be erased: asked by ann" in capsys.readouterr().out
    assert {f.name: f.read_bytes() for f in directory.iterdir()} == before
    assert main([*command, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(len(row["offsets"]) for row in rows) == count
    for row in rows:
        assert hashlib.sha256(Path(row["path"]).read_bytes()).hexdigest() == row["sha256_after"]
    assert main(command) == 1
    assert capsys.readouterr().out == "0 records erased: asked by ann\n"
    assert main([*command[:2], "--key", "bob", "--values"]) == 0
    assert all(r.value is None for r in kstore.open(directory) if r.key == b"bob")
    assert main(command[:2]) == 2
    assert "erase needs --key" in capsys.readouterr().err


@pytest.mark.parametrize("topic", [False, True])
def test_a_command_erases_several_keys(tmp_path: Path, topic: bool) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for key in (ANN, b"bob", b"\xff", b"dan", b"eve"):
            log.append(b"v", key)
    (tmp_path / "meta.properties").write_text("version=1\nbroker.id=1\n")
    place = [str(tmp_path), "t"] if topic else [str(tmp_path / "t-0")]
    assert main(["erase", *place, "--key", ANN.decode(), "--key-base64", "/w==", "--key", "bob"]) == 0
    assert [r.key for r in kstore.open(tmp_path / "t-0")] == [b"dan", b"eve"]


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of a record that nobody has flushed
def test_power_cuts(ram: Path, sample: tuple[Path, list[kstore.Record], int]) -> None:
    """Whatever of the calls had reached the disk when the power failed: each segment as before or done."""
    source, before, _ = sample
    root = ram / "recorded"
    shutil.copytree(source, root / "t-0")
    with Recorder(root) as recorder:
        erase(root / "t-0")
    believed = 0

    def check(left: Path) -> None:
        nonlocal believed
        believed += settle(left)
        check_interrupted(left / "t-0", before)

    assert disks.check_each(recorder.trace, ram, check, 30) > 15
    assert believed > 10


def test_beside_appends_and_readers(ram: Path) -> None:
    """Who appends and reads meanwhile loses nothing, and sees no other record."""
    failures: list[BaseException] = []
    done = threading.Event()

    def read(log: kstore.LogWriter) -> None:
        try:
            while not done.is_set():
                offsets = [r.offset for r in log if r.key != ANN]
                assert offsets == [o for o in range(len(offsets) * 2) if o % 2]
        except (AssertionError, OSError, kstore.KstoreError) as e:
            failures.append(e)

    def append(log: kstore.LogWriter) -> None:
        for n in range(600):
            log.append(b"%d" % n + b"." * 20, b"bob" if n % 2 else ANN)

    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        threads = [threading.Thread(target=work, args=[log]) for work in (read, read, append)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            log.erase(keys=[ANN], reason="asked")
        threads[-1].join()
        done.set()
        for thread in threads:
            thread.join()
        log.erase(keys=[ANN], reason="asked")
        assert not failures
        assert [r.offset for r in log] == list(range(1, 600, 2))


def test_producers_whose_time_has_come_stay_known(tmp_path: Path) -> None:
    """An erasure leaves what is known of producers: a batch that is sent once more is a duplicate as before."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        old = [(10**12, b"ann", b"secret", None), (10**12, b"bob", b"value", None)]
        batch = kstore.encode_batch(old, producer_id=5, producer_epoch=0, base_sequence=0)
        log.append_batches(batch)
        assert log.erase(keys=[b"ann"], reason="asked").records_erased == 1
        assert log.append_batches(batch).duplicate
        assert log.log_end_offset == 2


def test_cut_files_that_are_left_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
