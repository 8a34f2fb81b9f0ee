"""append, extend and append_batches: what they refuse before anything is written, and what they write."""

import gzip
import itertools
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.markers import marker
from tests.hostile.material import resealed
from tests.unit.logs import offsets

T = 1_700_000_000_000
END = 2**63 - 1
RECORD = (T, None, b"v", None)


def batch(sequence: int, *values: bytes, producer: int = 1, epoch: int = 0, **more: Any) -> bytes:
    """A batch of an idempotent producer, of now: a producer of older records is forgotten at opening."""
    records = [(int(time.time() * 1000), None, value, None) for value in values]
    return kstore.encode_batch(
        records,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence if producer >= 0 else -1,
        **more,
    )


def values_of(log: kstore.PartitionLog) -> list[bytes | None]:
    return [record.value for record in log]


# ---- records -------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_names_the_limit(log: kstore.LogWriter) -> None:
    log.configure(max_message_bytes=100)
    with log.appender() as out:
        for append in (log.append, lambda value: log.extend([value]), out.append):
            with pytest.raises(
                kstore.RecordTooLargeError, match=r"max_message_bytes \(max\.message\.bytes"
            ) as e:
                append(b"x" * 200)
            assert "byte -1" not in str(e.value)
    assert log.log_end_offset == 0


def test_what_is_wrong_late_is_found_before_anything_is_written(tmp_path: Path) -> None:
    now = 1_000_000
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: now) as log:
        with pytest.raises(kstore.RecordTooLargeError, match="record 50000"):
            log.extend([b"x" * 100] * 50_000 + [bytes(2 << 20)])
        for late in (now + 3_600_001, 10**15):
            with pytest.raises(kstore.InvalidTimestampError, match="record 2"):
                log.extend([b"a", b"b", b"c"], timestamps=[5, 6, late])
        log.configure(cleanup_policy="compact")
        with pytest.raises(kstore.InvalidRecordError, match="record 1: no key, and cleanup_policy"):
            log.extend([b"a", b"b"], [b"k", None])
        with pytest.raises(kstore.InvalidRecordError, match="no key"):
            log.append(b"a")
        assert log.extend([]) == range(0)
        assert log.append_batches(b"").batch_count == 0
        assert log.log_end_offset == 0


@pytest.mark.parametrize("room", [0, 1, 2])
def test_the_last_offset(tmp_path: Path, room: int) -> None:
    """The offset behind the last record must be one too."""
    encoded = kstore.encode_batch([(1, None, b"v", None)] * (room + 1))
    with kstore.open(tmp_path / "t-0", "a", durability="each") as log:
        log.truncate_fully_and_start_at(END - room)
        for call in (
            lambda: log.extend([b"x"] * (room + 1)),
            lambda: log.append_batches(encoded),
            lambda: log.append_batches(encoded * 2),
        ):
            with pytest.raises(kstore.OffsetOverflowError, match="largest offset"):
                call()
        assert log.log_end_offset == END - room
        assert [log.append(b"%d" % i) for i in range(room)] == list(range(END - room, END))
        with pytest.raises(kstore.OffsetOverflowError):
            log.append(b"no room")
        with log.appender() as out:
            out.append(b"no room")
            for end in (out.flush, out.close):
                with pytest.raises(kstore.OffsetOverflowError):
                    end()
        log.flush()
    for mode in ("r", "a"):
        with kstore.open(tmp_path / "t-0", mode) as log:
            assert offsets(log) == list(range(END - room, END))
            assert log.log_end_offset == END
            assert not log.recovery.losses


# ---- batches -------------------------------------------------------------------------------------


def test_what_encode_batch_refuses() -> None:
    two = [RECORD] * 2
    assert kstore.RecordBatch(kstore.encode_batch(two, base_offset=END - 1)).last_offset == END
    wrong: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (two, {"base_offset": END}, ValueError, "offsets"),
        (two, {"offset_deltas": [0]}, ValueError, "offset_deltas: fewer"),
        (two, {"offset_deltas": [0, -2]}, ValueError, "offset delta"),
        ([], {"codec": "gzip", "level": 2**63}, ValueError, "level"),
        ([], {"codec": "gzip", "level": 1.0}, TypeError, "level is an int"),
        (
            [],
            {"producer_id": 1, "producer_epoch": 70000, "base_sequence": 0},
            ValueError,
            "-1 to 32767, not 70000",
        ),
        (
            [(1, b"k", b"v", ()), (b"k", b"v")],
            {},
            TypeError,
            r"record 1 is \(timestamp, key, value, headers\), not",
        ),
    ]
    for records, options, error, words in wrong:
        with pytest.raises(error, match=words):
            kstore.encode_batch(records, **options)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("deltas", [(0, 3), (1, 2), (-1, 1)])
def test_offset_deltas_outside_of_the_batch_are_refused(
    log: kstore.LogWriter, codec: str, deltas: tuple[int, int]
) -> None:
    """Kafka appends such a batch if it is not compressed; a reader of it finds damage."""
    made = bytearray(kstore.encode_batch([(1, None, b"v", None)] * 2))
    for at, delta in zip((64, 64 + (len(made) - 61) // 2), deltas, strict=True):
        made[at] = 2 * delta if delta >= 0 else -2 * delta - 1  # a zigzag varint
    if codec == "gzip":
        made[61:] = gzip.compress(bytes(made[61:]))
        made[22] = 1
        struct.pack_into(">i", made, 8, len(made) - 12)
    with pytest.raises(kstore.InvalidRecordError, match="offset"):
        log.append_batches(resealed(bytes(made)))
    assert log.log_end_offset == 0


@pytest.mark.parametrize("keep_offsets", [False, True])
def test_a_codec_that_kafka_does_not_know(log: kstore.LogWriter, keep_offsets: bool) -> None:
    """No reader could read on behind it."""
    for codec in (5, 6, 7):
        made = bytearray(kstore.encode_batch([RECORD]))
        made[22] |= codec
        with pytest.raises(kstore.UnsupportedCodecError, match=f"expected 0 to 4, found {codec}"):
            log.append_batches(resealed(bytes(made)), keep_offsets=keep_offsets)
    assert log.append(b"v") == 0


@pytest.mark.parametrize("given", [bytes, bytearray, memoryview])
def test_a_copy_takes_bytes_as_they_are(tmp_path: Path, given: type) -> None:
    with kstore.open(tmp_path / "leader-0", "a") as log:
        log.extend([b"%d" % i for i in range(1000)], batch_bytes=256)
        log.flush()
        encoded = Path(log.active.path).read_bytes()[: log.active.size]
    kept = bytes(bytearray(encoded))
    with kstore.open(tmp_path / "copy-0", "a") as log:
        appended = log.append_batches(given(encoded[:-1]), keep_offsets=True)  # the last batch is cut
        assert appended.last_offset < 999
        log.append_batches(given(encoded[log.active.size :]), keep_offsets=True)
        log.flush()
        assert log.log_end_offset == 1000
        assert Path(log.active.path).read_bytes()[: log.active.size] == kept
    assert encoded == kept


# ---- several batches of producers in one call ----------------------------------------------------
# Kafka takes one at a time; here each is checked as if it came by itself.


@pytest.fixture
def begun(log: kstore.LogWriter) -> kstore.LogWriter:
    assert log.append_batches(batch(0, b"a", b"b")) == (0, 1, 1, False)
    return log


def test_what_is_there_already_is_left_out(begun: kstore.LogWriter) -> None:
    assert begun.append_batches(batch(0, b"a", b"b") + batch(2, b"c")) == (2, 2, 1, False)
    again = batch(2, b"c"), batch(0, b"p", producer=2), batch(0, b"a", b"b"), batch(-1, b"plain", producer=-1)
    assert begun.append_batches(b"".join(again)) == (3, 4, 2, False)
    assert begun.append_batches(b"".join(again[:3])) == (0, 3, 0, True)
    assert values_of(begun) == [b"a", b"b", b"c", b"p", b"plain"]
    begun.close()
    with kstore.open(begun.path, "a") as opened:
        assert opened.append_batches(batch(2, b"c") + batch(3, b"d")) == (5, 5, 1, False)
        last = {producer: state.batches[-1].last_offset for producer, state in opened.producers().items()}
        assert last == {1: 5, 2: 3}


def test_one_that_comes_twice_in_the_call(begun: kstore.LogWriter) -> None:
    assert begun.append_batches(batch(2, b"c") + batch(2, b"c") + batch(3, b"d")) == (2, 3, 2, False)
    assert begun.append_batches(batch(0, b"x", producer=3) * 2) == (4, 4, 1, False)
    assert values_of(begun) == [b"a", b"b", b"c", b"d", b"x"]
    assert [b.base_offset for b in begun.batches()] == [0, 2, 3, 4]


@pytest.mark.parametrize(("producer", "first"), [(1, 2), (2, 0)])
def test_a_gap_within_the_call(begun: kstore.LogWriter, producer: int, first: int) -> None:
    with pytest.raises(kstore.OutOfOrderSequenceError, match=f"does not follow on {first}"):
        begun.append_batches(batch(first, b"c", producer=producer) + batch(9, b"d", producer=producer))
    assert values_of(begun) == [b"a", b"b"]
    assert begun.append_batches(batch(first, b"c", producer=producer)).first_offset == 2


def test_several_batches_over_segments_as_one_by_one(tmp_path: Path) -> None:
    several = [
        batch(sequence, b"x" * 60, producer=producer, transactional=True)
        for sequence, producer in itertools.product(range(4), (7, 8))
    ]
    calls = [*several, marker("ABORT", 7, T), marker("COMMIT", 8, T)]

    def written(path: Path, calls: list[bytes]) -> dict[str, bytes]:
        options: Any = {"internal_segment_bytes": 300, "segment_index_bytes": 800, "segment_jitter_ms": 0}
        options["message_timestamp_before_max_ms"] = END
        with kstore.open(path, "a", **options) as log:
            for call in calls:
                log.append_batches(call, origin="coordinator", transaction_version=0)
            assert log.last_stable_offset() == log.log_end_offset == 10
            assert len(log.segments) > 3
        kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix in kinds}

    assert written(tmp_path / "one", [b"".join(calls)]) == written(tmp_path / "several", calls)


# ---- after recovery and truncation ---------------------------------------------------------------


@pytest.mark.parametrize("abandons", [False, True])
def test_the_leader_epoch_after_all_records_were_deleted(tmp_path: Path, abandons: bool) -> None:
    """The table of epochs has no entry for them, but their file is still there."""
    log = kstore.open(tmp_path, "a", leader_epoch=2)
    log.append(b"a")
    log.delete_records(-1)
    if abandons:
        log.abandon()
    log.close()
    with kstore.open(tmp_path, "a") as log:
        assert log.leader_epoch == 2
        log.append(b"b")
        assert log.leader_epochs == kstore.open(tmp_path).leader_epochs == ((2, 1),)
        assert [each.leader_epoch for each in log.from_file_start().batches()] == [2, 2]


@pytest.mark.parametrize("shared", [False, True])
def test_a_leader_epoch_below_the_newest(tmp_path: Path, shared: bool) -> None:
    """It is refused before anything is written."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", shared=shared, leader_epoch=5) as log:
        log.append(b"a")
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(ValueError, match="leader_epoch is 3, allowed is at least 5"):
        kstore.open(path, "a", shared=shared, leader_epoch=3)
    assert {file: file.read_bytes() for file in path.iterdir()} == before
    with kstore.open(path, "a", shared=shared, leader_epoch=5) as log:
        log.append(b"b")
        assert log.leader_epochs == ((5, 0),)


@pytest.mark.parametrize("option", [{"clean": False}, {"recovery_point": 0}, {"log_start_offset": 0}])
def test_options_of_checkpoints_of_a_shared_log(tmp_path: Path, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(ValueError, match=f"{name} is not an option with shared=True"):
        kstore.open(tmp_path / "t-0", "a", shared=True, **option)
    assert not (tmp_path / "t-0").exists()


def test_the_leader_epoch_after_a_truncation_of_nothing(tmp_path: Path) -> None:
    """It forgets an epoch that begins at the end, as Kafka does; the next append enters it again."""
    with kstore.open(tmp_path, "a", leader_epoch=3) as log:
        log.append(b"a")
        log.delete_records(-1)
        assert not log.truncate_to(1)
        log.append(b"b")
        assert log.leader_epochs == kstore.open(tmp_path).leader_epochs == ((3, 1),)
        assert log.end_offset_for_epoch(3) == (3, 2)
    with kstore.open(tmp_path, "a") as log:
        assert (log.leader_epoch, log.leader_epochs) == (3, ((3, 1),))
