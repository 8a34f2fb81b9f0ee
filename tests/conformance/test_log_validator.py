"""LogValidatorTest and BrokerCompressionTest: what a leader checks and corrects in batches that come in."""

from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import CorruptRecordError, InvalidRecordError, InvalidTimestampError
from tests.conformance.writing import Producer, idempotent, offsets, opened, put, rec, recs
from tests.helpers import forge
from tests.helpers.forge import CODECS, COMMIT, LOG_APPEND_TIME, T0, Rec

PACKED = CODECS[1:]
COMPRESSED = [(m, c) for m in (0, 1, 2) for c in PACKED if m == 2 or c != "zstd"]
BAD_HEADER = (InvalidRecordError, CorruptRecordError)  # the latter for what no batch can say: offsets below 0
FORMATS = [*((m, "none") for m in (0, 1, 2)), *COMPRESSED]
TARGETS = {  # compression.type: the codec that is stored of each, where it is another
    "producer": {},
    "gzip": dict.fromkeys(CODECS, "gzip"),
    "uncompressed": dict.fromkeys(CODECS, "none"),
}


def some(
    magic: int, codec: str, timestamps: tuple[int, ...] = (T0, T0 + 1, T0 + 2), key: bytes | None = b"k"
) -> bytes:
    """Records with these timestamps, as a producer sends them in this format."""
    if magic == 2:
        return forge.batch(*[Rec(b"v%d" % i, key, t) for i, t in enumerate(timestamps)], codec=codec)
    inner = [forge.message(i, b"v%d" % i, key, magic=magic, timestamp=t) for i, t in enumerate(timestamps)]
    if codec == "none":
        return b"".join(inner)
    return forge.wrapper(len(timestamps) - 1, inner, magic=magic, codec=codec, timestamp=max(timestamps))


# ---- offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_compressed_records_with_offset_zero_each(tmp_path: Path, magic: int) -> None:
    """20 gzip records, all with inner offset 0: of magic 2 refused, others rewritten to 0..19."""
    log = opened(tmp_path)
    if magic == 2:
        with pytest.raises(InvalidRecordError):
            put(log, forge.batch(*[Rec(delta=0)] * 20, codec="gzip"))
        return
    inner = [forge.message(0, b"test", magic=magic, timestamp=T0) for _ in range(20)]
    put(log, forge.wrapper(0, inner, magic=magic, timestamp=T0))
    assert offsets(log) == list(range(20))


def test_compressed_deltas_out_of_order_are_rebuilt(tmp_path: Path) -> None:
    """Spec 6.5: a sound header over deltas that are not 0, 1, 2: rebuilt where compressed, kept where not."""
    sent = [Rec(delta=0, value=b"a"), Rec(delta=0, value=b"b"), Rec(delta=2, value=b"c")]
    log = opened(tmp_path)
    put(log, forge.batch(*sent, codec="gzip"))
    assert [(r.offset, r.value) for r in log] == [(0, b"a"), (1, b"b"), (2, b"c")]
    put(log, forge.batch(*sent))
    batch = next(iter(log.batches(3)))
    assert [r.offset for r in batch.records()] == [3, 3, 5]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_offset_assignment(tmp_path: Path, magic: int, codec: str) -> None:
    """Offsets from 1234567 on, whatever the format; what is stored is magic 2."""
    for target, codecs in TARGETS.items():
        log = opened(tmp_path / target, log_start_offset=1234567, compression_type=target)
        assert put(log, some(magic, codec))[:2] == (1234567, 1234569)
        (batch,) = log.batches()
        assert (batch.magic, batch.base_offset, batch.last_offset) == (2, 1234567, 1234569)
        assert batch.codec == codecs.get(codec, codec)
        stamps = [-1] * 3 if magic == 0 else [T0, T0 + 1, T0 + 2]
        stored = [(b"v%d" % i, b"k", stamp) for i, stamp in enumerate(stamps)]
        assert [(r.value, r.key, r.timestamp) for r in log] == stored
        assert batch.max_timestamp == max(stamps)
        assert kstore.open(log.path, clean=False).log_end_offset == 1234570  # checksums are right


@pytest.mark.parametrize(("magic", "codec"), [f for f in FORMATS if f[0] < 2])
def test_batch_of_more_than_one(tmp_path: Path, magic: int, codec: str) -> None:
    """Two compressed messages of magic 0 or 1 in one append: refused; two plain ones: taken."""
    log = opened(tmp_path)
    if codec == "none":
        assert put(log, some(magic, codec) * 2)[:2] == (0, 5)
    else:
        with pytest.raises(InvalidRecordError):
            put(log, some(magic, codec) * 2)
        assert log.log_end_offset == 0


def test_batches_of_different_magic(tmp_path: Path) -> None:
    """Spec 6.5: a batch whose magic is not that of the first one."""
    log = opened(tmp_path)
    for order in ((0, 2), (2, 0), (1, 2), (0, 1), (1, 0)):
        with pytest.raises(InvalidRecordError):
            put(log, b"".join(some(magic, "none") for magic in order))
        assert log.log_end_offset == 0


# ---- headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_invalid_headers(tmp_path: Path, codec: str) -> None:
    """3 records, (lastOffsetDelta, count) (2,3): taken. Other pairs, no records, or less, a base
    offset other than 0 (spec 6.3), a producer id without sequence (spec 6.5): refused."""
    log = opened(tmp_path)
    wrong = [
        *(
            forge.batch(*[Rec()] * 3, last_delta=last_delta, count=count, codec=codec)
            for last_delta, count in ((0, 3), (15, 3), (-3, 3), (5, 6), (1, 2))
        ),
        *(forge.batch(count=count, last_delta=count - 1, codec=codec) for count in (0, -1)),
        *(rec(base=base, codec=codec) for base in (1, -1, 50)),
        idempotent(1, -1, codec=codec),
    ]
    for batch in wrong:
        with pytest.raises(BAD_HEADER):
            put(log, batch)
        assert log.log_end_offset == 0
    assert put(log, recs(3, codec=codec)).last_offset == 2


@pytest.mark.parametrize("target", ["producer", "snappy"])
def test_control_records(tmp_path: Path, target: str) -> None:
    """A control batch from a client is refused; from the coordinator it stays uncompressed."""
    log = opened(tmp_path, compression_type=target)
    marker = Producer(1).marker(COMMIT)
    with pytest.raises(InvalidRecordError):
        put(log, marker)
    put(log, marker, origin="coordinator", transaction_version=0)
    (batch,) = log.batches()
    assert (batch.is_control, batch.codec, batch.base_offset) == (True, "none", 0)


# ---- timestamps ---------------------------------------------------------------------------------

HOUR, MINUTE = 3_600_000, 60_000


@pytest.mark.parametrize(("magic", "codec"), [f for f in FORMATS if f[0]])
def test_invalid_create_time(tmp_path: Path, magic: int, codec: str) -> None:
    """now-1001 with limits of 1000: the errors name every record."""
    log = opened(tmp_path, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    with pytest.raises(InvalidTimestampError) as caught:
        put(log, some(magic, codec, (T0 - 1001,) * 3))
    if magic == 2 or codec != "none":
        assert [slot for slot, _ in caught.value.errors] == [0, 1, 2]
    assert log.log_end_offset == 0
    put(log, some(magic, codec, (T0 - 1000, T0, T0 + 1000)))


def test_timestamp_before_and_after_max(tmp_path: Path) -> None:
    """before.max 24 h, after.max 1 h: 5 minutes beyond is refused; by append and extend too."""
    log = opened(tmp_path, message_timestamp_before_max_ms=24 * HOUR)
    ways: list[Any] = [
        lambda stamp: put(log, rec(timestamp=stamp)),
        lambda stamp: put(log, rec(timestamp=stamp, codec="gzip")),
        lambda stamp: log.append(b"v", timestamp=stamp),
        lambda stamp: log.extend([b"v"], timestamps=[stamp]),
    ]
    wrong = (-24 * HOUR - 5 * MINUTE, HOUR + 5 * MINUTE)
    right = (-24 * HOUR, -24 * HOUR + 5 * MINUTE, HOUR, HOUR - 5 * MINUTE, -T0 - 1)
    for way in ways:
        for offset in wrong:
            with pytest.raises(InvalidTimestampError):
                way(T0 + offset)
        for offset in right:
            way(T0 + offset)
    with pytest.raises(InvalidTimestampError):
        log.extend([b"v", b"w"], timestamps=[T0, T0 + wrong[0]])
    assert log.log_end_offset == 4 * len(right)


def test_mixed_errors(tmp_path: Path) -> None:
    """A timestamp among other errors: InvalidTimestamp wins, and every record is named."""
    log = opened(tmp_path, cleanup_policy="compact", message_timestamp_before_max_ms=1000)
    batch = forge.batch(
        Rec(timestamp=T0 - 1001), Rec(key=b"k", timestamp=T0), Rec(key=b"k", timestamp=T0 - 1001)
    )
    with pytest.raises(InvalidTimestampError) as caught:
        put(log, batch)
    assert [slot for slot, _ in caught.value.errors] == [0, 2]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_keyless_on_compacted(tmp_path: Path, magic: int, codec: str) -> None:
    """No key in a compacted topic."""
    log = opened(tmp_path, cleanup_policy="compact")
    with pytest.raises(InvalidRecordError) as caught:
        put(log, some(magic, codec, key=None))
    if magic == 2 or codec != "none":
        assert [slot for slot, _ in caught.value.errors] == [0, 1, 2]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_log_append_time(tmp_path: Path, magic: int, codec: str) -> None:
    """LogAppendTime: the type bit is set, every timestamp is now, the payload stays if the codec does."""
    for target in TARGETS:
        config = {"message_timestamp_type": "LogAppendTime", "compression_type": target}
        log = opened(tmp_path / target, **config)
        sent = some(magic, codec, (5, 7, 6))
        put(log, sent)
        (batch,) = log.batches()
        assert (batch.timestamp_type, batch.max_timestamp) == ("LogAppendTime", T0)
        assert [r.timestamp for r in log] == [T0] * 3
        if magic == 2 and batch.codec == codec:
            assert batch.data[61:] == sent[61:]
        if batch.codec != codec:
            # rebuilt as Kafka's builder does it
            assert batch.base_timestamp == (5 if magic else -1)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time_batch_in_a_create_time_topic(tmp_path: Path, codec: str) -> None:
    """Spec 6.5: a batch stamped LogAppendTime: refused without timestamps; in range the bit is cleared."""
    log = opened(tmp_path)
    with pytest.raises(InvalidTimestampError):
        put(log, recs(2, -1, flags=LOG_APPEND_TIME, codec=codec, max_timestamp=-1))
    put(log, recs(2, T0, flags=LOG_APPEND_TIME, codec=codec))
    (batch,) = log.batches()
    assert (batch.timestamp_type, batch.max_timestamp) == ("CreateTime", T0)
    with pytest.raises(InvalidTimestampError):
        put(
            opened(tmp_path / "2", message_timestamp_type="LogAppendTime"), recs(2, T0, flags=LOG_APPEND_TIME)
        )


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("told", [T0 - 5, T0 + 5, -1])
def test_create_time_corrects_the_largest_timestamp(tmp_path: Path, told: int, codec: str) -> None:
    """A header that lies about the largest timestamp is put right; records stay as they are."""
    log = opened(tmp_path)
    put(log, forge.batch(Rec(timestamp=T0 - 1), Rec(timestamp=T0 - 2), max_timestamp=told, codec=codec))
    assert next(log.batches()).max_timestamp == T0 - 1
    assert [r.timestamp for r in log] == [T0 - 1, T0 - 2]
    assert next(kstore.open(log.path, clean=False).batches()).max_timestamp == T0 - 1


# ---- codecs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["uncompressed", *PACKED, "producer"])
def test_broker_compression(tmp_path: Path, setting: str) -> None:
    """BrokerCompressionTest: every producer codec x every setting of the topic."""
    log = opened(tmp_path, compression_type=setting)
    for codec in CODECS:
        put(log, forge.batch(Rec(b"hello"), Rec(b"there"), codec=codec))
        *_, batch = log.batches()
        assert batch.codec == {"producer": codec, "uncompressed": "none"}.get(setting, setting)
    assert [r.value for r in log] == [b"hello", b"there"] * len(CODECS)


@pytest.mark.parametrize("level", [1, 9])
def test_different_level_does_not_cause_recompression(tmp_path: Path, level: int) -> None:
    """gzip of another level: the bytes stay; gzip into lz4: they do not."""
    sent = recs(100, T0, value=b"hello" * 20, codec="gzip")
    log = opened(tmp_path, compression_type="gzip", compression_gzip_level=level)
    put(log, sent)
    assert next(log.batches()).data == sent
    log = opened(tmp_path / "2", compression_type="lz4")
    put(log, sent)
    assert next(log.batches()).data[61:] != sent[61:]


@pytest.mark.parametrize("codec", PACKED)
def test_recompression_keeps_the_producer(tmp_path: Path, codec: str) -> None:
    """Spec 6.5: rebuilt, with the same producer, epoch, sequence, transaction."""
    log = opened(tmp_path, compression_type="uncompressed")
    put(log, recs(3, T0, pid=7, pid_epoch=2, sequence=0, flags=forge.TRANSACTIONAL, codec=codec))
    (batch,) = log.batches()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 0)
    assert batch.is_transactional
    assert log.last_stable_offset() == 0
