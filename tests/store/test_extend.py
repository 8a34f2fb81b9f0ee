"""A store splits columns by partition: each log gets what its own extend() would have made."""

import asyncio
import errno
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import count_calls, failing
from tests.helpers.effort import SEED
from tests.helpers.murmur2 import partition_of
from tests.store.stores import opened, values

NOW = 1_700_000_000_000
CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


def batches(log: kstore.PartitionLog) -> list[tuple[Any, ...]]:
    """All that batches say."""
    return [
        (b.base_offset, b.last_offset, b.size, b.max_timestamp, b.leader_epoch, list(b))
        for b in log.batches()
    ]


@pytest.mark.parametrize(
    ("count", "config"),
    [
        (2, {}),
        (5, {"segment_bytes": 1 << 20}),
        (70, {"max_message_bytes": 900}),
        (3, {"message_timestamp_type": "LogAppendTime"}),
        (4, {"compression_type": "lz4"}),
    ],
)
def test_logs_get_what_they_would_make_themselves(tmp_path: Path, count: int, config: dict[str, Any]) -> None:
    r = random.Random(f"{SEED} {count} {config}")
    sizes = (0, 1, 60, 700) if "max_message_bytes" in config else (0, 1, 63, 64, 65, 700, 30_000)
    with opened(tmp_path / "store", clock=lambda: NOW) as store:
        store.create_topic("t", count, **config)
        alone = [
            kstore.open(tmp_path / f"alone/t-{n}", "a", clock=lambda: NOW, **config) for n in range(count)
        ]
        for stamps in (None, NOW - 5, [NOW - r.randrange(10**9) for _ in range(900)], [-1] * 900):
            keys = [
                None if r.random() < 0.2 else b"often" if r.random() < 0.3 else r.randbytes(r.randrange(12))
                for _ in range(900)
            ]
            given = [None if r.random() < 0.1 else r.randbytes(r.choice(sizes)) for _ in range(900)]
            each = [[("n", r.randbytes(r.randrange(9)))] * r.randrange(3) for _ in range(900)]
            headers: Any = r.choice([None, {"a": b"for all"}, each])
            before = [log.log_end_offset for log in alone]
            offsets = store.extend("t", given, keys, stamps, headers)
            keyless = next(
                n
                for n in offsets
                for record in store.log("t", n).records(offsets[n].start)
                if record.key is None
            )
            dealt: list[list[int]] = [[] for _ in range(count)]
            for i, key in enumerate(keys):
                dealt[keyless if key is None else partition_of(key, count)].append(i)
            for n, numbers in enumerate(dealt):
                if numbers:
                    own = [stamps[i] for i in numbers] if isinstance(stamps, list) else stamps
                    of_each = [each[i] for i in numbers] if headers is each else headers
                    placed = alone[n].extend(
                        [given[i] for i in numbers], [keys[i] for i in numbers], own, of_each
                    )
                    assert offsets[n] == placed
            for n, log in enumerate(alone):
                assert log.log_end_offset == before[n] + len(offsets.get(n, ()))
        assert store.extend("t", [], []) == {}
        for n, log in enumerate(alone):
            assert batches(store.log("t", n)) == batches(log)
            assert len(store.log("t", n).segments) == len(log.segments)
            log.close()
    with kstore.LogStore(tmp_path / "store") as reader:
        assert all(not reader.log("t", n).recovery.findings for n in range(count))


# ---- all or nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"max_message_bytes": 300}, "record 150 larger"),
        ({"message_timestamp_before_max_ms": 1}, "timestamp"),
        ({"cleanup_policy": ["compact"]}, "key"),
    ],
)
def test_nothing_is_written_where_one_log_refuses_a_record(
    tmp_path: Path, option: dict[str, Any], text: str
) -> None:
    keys: list[bytes | None] = [b"%d" % i for i in range(200)]
    given = [b"v"] * 200
    stamps = [NOW] * 200
    given[150], stamps[150] = b"." * 400, 1
    once: Any = iter(given)
    if "cleanup_policy" in option:
        keys[150] = None
    with opened(tmp_path, clock=lambda: NOW) as store:
        store.create_topic("t", 4, **option)
        with pytest.raises(kstore.KstoreError, match=text) as caught:
            store.extend("t", once, keys, stamps)
        errors = (kstore.RecordTooLargeError, kstore.InvalidTimestampError, kstore.InvalidRecordError)
        assert isinstance(caught.value, errors)
        assert [store.log("t", n).log_end_offset for n in range(4)] == [0] * 4
        store.alter_topic("t", **dict.fromkeys(option))
        assert sum(map(len, store.extend("t", given, keys, NOW).values())) == 200


def test_a_failing_call_leaves_all_or_nothing_in_each_partition(tmp_path: Path) -> None:
    keys = [b"%d" % i for i in range(2000)]
    with opened(tmp_path) as store:
        store.create_topic("t", 4)
        offsets = store.extend("t", [b"v"] * 2000, keys)
        counts = [len(offsets[n]) for n in range(4)]
        calls = count_calls(lambda: store.extend("t", [b"." * 100] * 2000, keys))
        assert calls >= 4
        partly = 0
        for nth in range(1, calls + 1):
            before = [store.log("t", n).log_end_offset for n in range(4)]
            with failing(nth, errno.ENOSPC), suppress(OSError):
                store.extend("t", [b"%d" % nth] * 2000, keys)
            ends = [store.log("t", n).log_end_offset for n in range(4)]
            grown = [end - old for end, old in zip(ends, before, strict=True)]
            assert all(each in (0, whole) for each, whole in zip(grown, counts, strict=True))
            partly += 0 < sum(grown) < 2000
            for n in range(4):
                assert [r.value for r in store.log("t", n).records(before[n])] == [b"%d" % nth] * grown[n]
        assert partly
        placed = store.extend("t", [b"again"] * 2000, keys)
        assert [placed[n].start for n in range(4)] == ends
    reader = kstore.LogStore(tmp_path)
    assert sum(len(values(reader, "t", n)) for n in range(4)) == sum(ends) + 2000


# ---- limits of compressed batches --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_of_exactly_the_largest_size(tmp_path: Path, codec: str) -> None:
    """Alone in its batch it is accepted at the limit, and refused with one byte more."""
    r = random.Random(f"{SEED} {codec}")
    keys = [b"k%03d" % i for i in range(400)]
    with opened(tmp_path / "store", clock=lambda: NOW) as store:
        for size in (1500, 40_000):
            given = [b"v"] * 400
            given[301] = r.randbytes(size)
            name = "none" if codec == "uncompressed" else codec
            limit = len(kstore.encode_batch([(NOW, keys[301], given[301], None)], codec=name))
            for topic, most in ((f"less.{size}", limit - 1), (f"enough.{size}", limit)):
                store.create_topic(topic, partitions=4, max_message_bytes=most, compression_type=codec)
            with pytest.raises(kstore.RecordTooLargeError, match=f"at most {limit - 1}, found {limit}"):
                store.extend(f"less.{size}", given, keys)
            assert [store.log(f"less.{size}", n).log_end_offset for n in range(4)] == [0] * 4
            assert sum(map(len, store.extend(f"enough.{size}", given, keys).values())) == 400


@pytest.mark.parametrize("codec", CODECS)
def test_a_log_writes_nothing_of_refused_columns(tmp_path: Path, codec: str) -> None:
    r = random.Random(f"{SEED} {codec}")
    given = [r.randbytes(900) for _ in range(3000)]
    headers: Any = [("h", b"x" * 500)] if codec in ("gzip", "zstd") else None
    options: dict[str, Any] = {"compression_type": codec, "max_message_bytes": 30_000, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        for bad in (r.randbytes(29_990), r.randbytes(60_000)):
            with pytest.raises(kstore.RecordTooLargeError, match=r"record 3000 larger .* at most 30000"):
                log.extend([*given, bad], headers=headers)
            assert log.log_end_offset == 0
        log.extend([*given, b"." * 29_000], headers=headers)
        if codec != "uncompressed":
            log.extend([b"." * 60_000], headers=headers)


def test_headers(tmp_path: Path) -> None:
    """Of all records, or of each, with keys and without; what is wrong is found before anything is written."""
    keys = [b"%d" % i for i in range(50)]
    with opened(tmp_path) as store:
        store.create_topic("t", 3)
        store.extend("t", keys, keys, headers=[{"n": key} for key in keys])
        for partition in range(3):
            for record in store.log("t", partition):
                assert record.headers == (("n", record.value),)
        store.create_topic("u", 3)
        store.extend("u", [b"v"] * 2, headers={"a": b"b"})
        asyncio.run(store.extend_async("u", keys, keys, headers=[("a", b"b")]))
        for partition in range(3):
            assert {record.headers for record in store.log("u", partition)} <= {(("a", b"b"),)}
        before = values(store)
        for wrong in ([{"n": b""}] * 49, [{"n": b""}] * 49 + [{"n": "text"}]):
            with pytest.raises(
                (ValueError, TypeError), match=r"headers: 49 for 50|headers\[49\]|headers of record 49"
            ):
                store.extend("t", keys, keys, headers=wrong)  # type: ignore[arg-type]
        assert values(store) == before
