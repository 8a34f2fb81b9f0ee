"""What a new user met in the first hour: nothing is lost, deleted or shared without a word."""

import contextlib
import pickle
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.processes import environment

ENVIRONMENT = environment()


def filled(path: Path, count: int = 10) -> kstore.LogWriter:
    log = kstore.open(path, "a", internal_segment_bytes=500)
    for i in range(count):
        log.append(b"%d" % i * 20)
    return log


def test_adopt_refuses_what_is_in_use(tmp_path: Path) -> None:
    with filled(tmp_path / "own-0") as log, filled(tmp_path / "other-0") as other:
        files = sorted((tmp_path / "own-0").glob("*.log"))
        for file in (files[0], files[-1]):
            with pytest.raises(ValueError, match="a file of this log itself"):
                log.adopt(file)
        with pytest.raises(kstore.LogLockedError):
            log.adopt(other.segments[0].path)
        assert [r.offset for r in log] == [r.offset for r in other] == list(range(10))


@pytest.mark.parametrize("around", ["meta.properties", ".lock", ""])
def test_one_writer_by_whatever_path(tmp_path: Path, around: str) -> None:
    """Links, and files that appear around it later, lead to no second lock."""
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
    if around:
        (tmp_path / "A" / around).touch()
    with filled(tmp_path / "A" / "q-0") as log:
        (tmp_path / "B" / "q-0").symlink_to(tmp_path / "A" / "q-0")
        (tmp_path / "B" / "r-0").symlink_to(tmp_path / "A" / "q-0")
        (tmp_path / "A" / "meta.properties").touch()
        (tmp_path / "A" / ".lock").unlink(missing_ok=True)
        for path in (tmp_path / "B" / "q-0", tmp_path / "B" / "r-0", tmp_path / "A" / "q-0"):
            with pytest.raises(kstore.LogLockedError):
                kstore.open(path, "a")
            done = subprocess.run(
                [sys.executable, "-P", "-c", f"import kstore; kstore.open({str(path)!r}, 'a')"],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "LogLockedError" in done.stderr
        log.append(b"goes on")
    kstore.open(tmp_path / "B" / "q-0", "a").close()


def test_a_dropped_appender_appends_all_the_same(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:

        def work() -> None:
            out = log.appender(linger_ms=1)
            for i in range(50):
                out.append(b"%d" % i)

        work()
        until = time.monotonic() + 60
        while log.log_end_offset < 50 and time.monotonic() < until:
            time.sleep(0.005)
        assert [r.value for r in log] == [b"%d" % i for i in range(50)]


def test_an_appender_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    code = (
        f"import kstore; log = kstore.open({str(tmp_path / 't-0')!r}, 'a'); out = log.appender(linger_ms=60_000)\n"
        "for i in range(50): out.append(b'x')"
    )
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", code], env=ENVIRONMENT, check=True)
    assert len(list(kstore.open(tmp_path / "t-0"))) == 50


@pytest.mark.parametrize("there", ["meta.properties", ".lock"])
def test_a_deletion_goes_with_the_directory(tmp_path: Path, there: str) -> None:
    with filled(tmp_path / "t-0") as log:
        log.delete_records(6)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / there).touch()
    shutil.copytree(tmp_path / "t-0", tmp_path / "logs" / "t-0")
    assert kstore.open(tmp_path / "logs" / "t-0").log_start_offset == 6
    with kstore.open(tmp_path / "logs" / "t-0", "a") as log:
        assert log.log_start_offset == 6
        log.delete_records(8)
    assert not (tmp_path / "logs" / "t-0" / "log-start-offset-checkpoint").exists()
    assert kstore.open(tmp_path / "logs" / "t-0").log_start_offset == 8


@pytest.mark.parametrize("which", ["last", "all"])
def test_missing_segments_of_a_clean_log_are_a_loss(tmp_path: Path, which: str) -> None:
    filled(tmp_path / "t-0").close()
    files = sorted((tmp_path / "t-0").glob("*.log"))
    for file in files if which == "all" else files[-1:]:
        file.unlink()
    assert "had been flushed" in str(kstore.open(tmp_path / "t-0").recovery.losses)
    with pytest.warns(kstore.DataLossWarning, match=r"to 9 had been flushed, and are lost"):
        kstore.open(tmp_path / "t-0", "a").close()


def test_truncating_inside_a_batch_is_asked_for(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"x"] * 100)
    command = [sys.executable, "-P", "-m", "kstore", "truncate", str(tmp_path / "t-0"), "--to", "90"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--whole-batches" in done.stderr
    assert len(list(kstore.open(tmp_path / "t-0"))) == 100
    subprocess.run([*command, "--whole-batches"], env=ENVIRONMENT, check=True, capture_output=True)
    assert len(list(kstore.open(tmp_path / "t-0"))) == 0


def test_truncating_takes_damage_along(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for _ in range(4):
            log.extend([b"x"] * 10)
    file = tmp_path / "t-0" / f"{0:020d}.log"
    with file.open("r+b") as damaged:
        damaged.seek(kstore.open(tmp_path / "t-0").segments[0].read_headers()["position"][2] + 70)
        damaged.write(b"\xff")
    command = [sys.executable, "-P", "-m", "kstore", "truncate", str(tmp_path / "t-0"), "--to", "10"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout == "20 records in 2 batches removed, from offset 10 on\n"
    assert [record.offset for record in kstore.open(tmp_path / "t-0")] == list(range(10))


def test_lines_are_appended_as_they_come(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kstore", "append", str(tmp_path / "t-0")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthr")
    process.stdin.flush()
    until = time.monotonic() + 60
    values: list[bytes | None] = []
    while len(values) < 2 and time.monotonic() < until:
        time.sleep(0.05)
        if list((tmp_path / "t-0").glob("*.log")):
            values = [record.value for record in kstore.open(tmp_path / "t-0")]
    assert values == [b"one", b"two"]
    process.communicate(b"ee\n")
    assert [record.value for record in kstore.open(tmp_path / "t-0")] == [b"one", b"two", b"three"]


def test_nothing_is_warned_of_in_an_ordinary_life(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").abandon()
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.truncate_to(5)
        log.delete_records(3)
        log.truncate_fully_and_start_at(100)
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"x") == 100


def test_a_directory_that_is_renamed_under_its_writer(tmp_path: Path) -> None:
    """By its path another log may be reached, which is not touched."""
    log = filled(tmp_path / "t-0")
    (tmp_path / "t-0").rename(tmp_path / "t-9")
    shutil.copytree(tmp_path / "t-9", tmp_path / "t-0")
    before = {p.name: p.read_bytes() for p in (tmp_path / "t-0").iterdir()}
    for call in (
        log.roll,
        log.retain,
        lambda: log.truncate_to(3),
        lambda: log.delete_records(2),
        lambda: log.truncate_fully_and_start_at(0),
    ):
        with pytest.raises(kstore.LogFailedError, match="renamed or removed"):
            call()
    with contextlib.suppress(kstore.LogFailedError):  # if the background came upon it first
        log.close()
    assert {p.name: p.read_bytes() for p in (tmp_path / "t-0").iterdir()} == before
    assert [r.offset for r in kstore.open(tmp_path / "t-9")] == list(range(10))


def test_a_directory_that_is_removed_under_its_writer(tmp_path: Path) -> None:
    """Neither flush() nor close() says of records that nobody can find that they are kept."""
    log = kstore.open(tmp_path / "t-0", "a")
    log.extend([b"x"] * 10)
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(kstore.LogFailedError, match=r"t-0 was removed"):
        log.flush()
    with pytest.raises(
        kstore.LogFailedError, match=r"t-0 was removed.*: offsets 0 to 10 \(exclusive\) are no longer"
    ):
        log.close()
    assert log.is_closed
    log.close()
    assert not (tmp_path / "t-0").exists()
    with pytest.raises(kstore.LogFailedError, match="was removed"), kstore.open(tmp_path / "t-0", "a") as log:  # noqa: PT012
        log.extend([b"x"] * 10)
        log.truncate_to(9)  # close() has something to tell the directory
        shutil.rmtree(tmp_path / "t-0")
    kstore.open(tmp_path / "t-0", "a").close()


def test_files_that_are_removed_under_their_writer(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    first, last = log.segments[0], log.segments[-1]
    for segment in (first, last):
        Path(segment.path).unlink()
    text = rf"{first.path}, with offsets 0 to {log.segments[1].base_offset} \(exclusive\), was removed.*the first of 2"
    with pytest.raises(kstore.LogFailedError, match=text):
        log.close()
    with pytest.warns(kstore.DataLossWarning):
        kstore.open(tmp_path / "t-0", "a").close()


@pytest.mark.parametrize("name", ["9223372036854775808.log", "9223372036854775808.log.swap"])
def test_a_name_beyond_all_offsets_is_no_segment(tmp_path: Path, name: str) -> None:
    filled(tmp_path / "t-0").close()
    (tmp_path / "t-0" / f"0{name}").touch()
    for mode in ("r", "a"):
        with kstore.open(tmp_path / "t-0", mode) as log:
            assert [r.offset for r in log] == list(range(10))


def test_a_stray_swap_of_a_swap_replaces_nothing(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"x"] * 5)
    (path,) = (tmp_path / "t-0").glob("*.log")
    shutil.copy(path, f"{path}.swap.swap")
    for first in (5, 55, 105):
        with kstore.open(tmp_path / "t-0", "a") as log:
            assert list(log.extend([b"y"] * 50)) == list(range(first, first + 50))
    assert len(list(kstore.open(tmp_path / "t-0"))) == 155


def test_a_reader_tells_of_what_was_flushed_and_is_lost(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
    lost = kstore.open(tmp_path / "t-0", clean=False, recovery_point=75).recovery
    assert "offsets 1 to 74 had been flushed, and are lost" in str(lost)


def test_old_messages_smaller_than_a_header(tmp_path: Path) -> None:
    """A slice of less than 61 bytes, with nothing after it."""
    import struct
    import zlib

    (tmp_path / "t-0").mkdir()
    body = b"\0\0" + struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"  # magic 0, no key
    message = struct.pack(">I", zlib.crc32(body)) + body
    entries = b"".join(struct.pack(">qi", offset, len(message)) + message for offset in range(2))
    (tmp_path / "t-0" / ("0" * 20 + ".log")).write_bytes(entries)
    log = kstore.open(tmp_path / "t-0")
    assert [r.value for r in log.read(0)] == [b"v", b"v"]
    assert log.read(0, 30).size == 30


def refused(kind: type[Exception], text: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)


open_: Any = kstore.open  # with whatever


def test_paths_that_are_nearly_right(tmp_path: Path) -> None:
    filled(tmp_path / "orders-0").close()
    filled(tmp_path / "orders-1").close()
    beside = "no partition directory at .*; partitions of topic orders beside it: orders-0, orders-1"
    for mode in ("r", "r+"):
        with pytest.raises(kstore.LogNotFoundError, match=beside):
            kstore.open(tmp_path / "orders", mode)
    store = kstore.LogStore(tmp_path)
    refused(
        kstore.LogNotFoundError, "the partition orders-1 is open('orders', 1)", lambda: store.open("orders-1")
    )
    refused(
        kstore.LogNotFoundError,
        "is a partition, not a log directory",
        lambda: kstore.LogStore(tmp_path / "orders-0"),
    )
    assert kstore.open(next((tmp_path / "orders-0").glob("*.log"))).topic_id() is None


def test_options_of_the_other_mode(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with pytest.raises(
        TypeError, match=r"durability is none of the options for reading: they are clean, .*to write"
    ):
        kstore.LogStore(tmp_path).open("t", durability="each")
    for flag in (False, True):
        with pytest.raises(TypeError, match="recover is an option for reading"):
            open_(path, "a", recover=flag)
    assert not path.exists()
    filled(path).close()
    for name in ("durability", "retention_ms", "config"):
        with pytest.raises(TypeError, match=f"{name} is none of the options for reading: give mode"):
            open_(path, **{name: 1})
    with pytest.raises(TypeError, match="recovr is none of the options for reading: they are recover, "):
        open_(path, recovr=1)
    with pytest.raises(kstore.InvalidConfigError, match="none is called uncompressed here"):
        open_(path, "a", compression_type="none")


class NaT(datetime):
    """As pandas makes it: a datetime that equals nothing, itself neither."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("timestamps", "kind", "text"),
    [
        (
            [1, date(2026, 1, 1)],
            TypeError,
            "timestamp of record 1 is an int, not datetime.date(2026, 1, 1) (date): milli",
        ),
        (
            [1, "2026-01-01"],
            TypeError,
            "timestamp of record 1 is an int, not '2026-01-01' (str): milliseconds since 1970",
        ),
        ([1, None], TypeError, "timestamp of record 1 is an int, not None"),
        ([1, NaT(2026, 1, 1)], ValueError, "timestamp of record 1 is not a time: "),
        ([1, 1_700_000_000_000_000], kstore.InvalidTimestampError, "record 1: timestamp 1700000000000000 is"),
        (
            1_700_000_000_000_000,
            kstore.InvalidTimestampError,
            "if microseconds or nanoseconds were meant, divide by",
        ),
    ],
)
def test_times_of_another_kind(tmp_path: Path, timestamps: Any, kind: type[Exception], text: str) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        refused(kind, text, lambda: log.extend([b"a", b"b"], timestamps=timestamps))
        assert log.log_end_offset == 0


def test_what_is_not_a_record_to_encode() -> None:
    wrong: Any = [(1, b"k", b"v", ()), (b"k", b"v")]
    text = "record 1 is (timestamp, key, value, headers), not (b'k', b'v')"
    refused(TypeError, text, lambda: kstore.encode_batch(wrong))


def test_no_offset_is_negative_to_follow(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0") as log:
        for opened in (log, kstore.open(tmp_path / "t-0")):
            with pytest.raises(kstore.OffsetOutOfRangeError, match="offset -1 is outside the log"):
                opened.follow(-1)


def test_damage_says_what_to_do_next(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").close()
    file = min((tmp_path / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[80] ^= 1
    file.write_bytes(data)
    with pytest.raises(kstore.CorruptRecordError) as caught:
        list(kstore.open(tmp_path / "t-0"))
    (note,) = caught.value.__notes__
    assert f"kstore stat --verify {tmp_path / 't-0'} " in note
    assert pickle.loads(pickle.dumps(caught.value)).__notes__ == [note]
    command = [sys.executable, "-P", "-m", "kstore", "records", str(tmp_path / "t-0")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert note in done.stderr


def test_a_recovery_shows_no_internals(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").abandon()
    recovery = kstore.open(tmp_path / "t-0").recovery
    assert repr(recovery).endswith("truncated_bytes=0, losses=[])")
    (tmp_path / "t-0" / ("0" * 20 + ".log")).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lost = kstore.open(tmp_path / "t-0", clean=True).recovery
    assert "are in no segment" in str(lost)


def test_a_key_is_bytes(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    wrong: Any = "a"
    with log, pytest.raises(TypeError, match=r"key is bytes, not str: 'a'\.encode\(\)"):
        list(log.scan(key=wrong))


def test_no_log_is_made_in_the_midst_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "report.csv").touch()
    with pytest.raises(kstore.LogNotFoundError, match=r"other files such as report\.csv"):
        kstore.open(tmp_path, "a")
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]
    for name in ("meta.properties", "lost+found", ".hidden"):
        made = tmp_path / "mount" / name / "t-0"
        made.mkdir(parents=True)
        (made / name).touch()
        kstore.open(made, "a").close()


def test_a_size_alone_says_what_is_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of records that are older than Kafka's 7 days."""
    with kstore.open(tmp_path / "t-0", "a", retention_bytes=2000, internal_segment_bytes=500) as log:
        for i in range(100):
            log.append(b"%d" % i * 20, timestamp=1_700_000_000_000)
        gone = [decision.rule for decision in log.retain() if decision.delete]
        assert set(gone) == {"size"}
        assert 2000 <= sum(segment.size for segment in log.segments) < 2600
        assert log.retain(dry_run=True)[0].rule is None
        log.extend([b"." * 400] * 5, batch_bytes=0)
    assert main(["retain", str(tmp_path / "t-0")]) == 0
    assert "delete (size)" in capsys.readouterr().out


def test_retain_of_a_log_directory_names_its_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    assert main(["retain", str(tmp_path), "--dry-run"]) == 1
    assert "is a log directory, not a partition: it holds t-0" in capsys.readouterr().err


def test_damage_names_its_offset(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v" * 50] * 10)
        log.extend([b"v" * 50] * 10)
        batch = list(log.batches())[1]
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.position + batch.size - 5)
        file.write(b"\xff")
    with pytest.raises(kstore.CorruptRecordError) as caught:
        list(kstore.open(tmp_path / "t-0"))
    assert "offset 10" in "".join(caught.value.__notes__)


def test_columns_of_a_wrong_kind_say_what_is_wanted(tmp_path: Path) -> None:
    numpy, pyarrow = pytest.importorskip("numpy"), pytest.importorskip("pyarrow")
    with kstore.open(tmp_path / "t-0", "a") as log:
        with pytest.raises(TypeError, match=r"numpy\.char\.encode\(array\) encodes text"):
            log.extend(numpy.array(["a", "b"]))
        log.extend(numpy.char.encode(numpy.array(["a", "b"])))
        with pytest.raises(TypeError, match="give one column of the table"):
            log.extend(pyarrow.table({"value": ["c"]}))
        log.extend(pyarrow.table({"value": ["c"]})["value"])
        assert [record.value for record in log] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("name", ["append", "extend", "flush"])
def test_a_reader_says_how_to_write(tmp_path: Path, name: str) -> None:
    """It has no such method, as who asks with hasattr() is told."""
    with kstore.open(tmp_path / "t-0", "a") as writer:
        writer.append(b"v")
        assert hasattr(writer, name)
    log = kstore.open(tmp_path / "t-0")
    assert not hasattr(log, name)
    with pytest.raises(
        AttributeError, match=rf"no {name}\(\): kstore.open\(path, 'a'\) opens it for writing"
    ):
        getattr(log, name)
    assert not hasattr(kstore.PartitionLog, name)
