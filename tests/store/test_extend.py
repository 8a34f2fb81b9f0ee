"""Columns that are dealt to partitions: each log gets what its own extend() would have made of its records."""

import errno
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.engine.append.dealt_batches import DealtBatches
from kstore.engine.record.hashes import murmur2
from kstore.testing import count_calls, failing
from tests.helpers.processes import environment

NOW = 1_700_000_000_000


def dealt(keys: list[bytes | None], count: int, keyless: int) -> list[list[int]]:
    """The numbers of the records of each partition."""
    rows: list[list[int]] = [[] for _ in range(count)]
    for i, key in enumerate(keys):
        rows[keyless if key is None else murmur2(key) % 2**31 % count].append(i)
    return rows


def batches(log: Any) -> list[tuple[Any, ...]]:
    """All that batches say."""
    return [
        (b.base_offset, b.last_offset, b.size, b.max_timestamp, b.leader_epoch, list(b))
        for b in log.batches()
    ]


@pytest.mark.parametrize("count", [2, 5, 70])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"segment_bytes": 1 << 20},
        {"max_message_bytes": 900},
        {"compression_type": "lz4"},
        {"message_timestamp_type": "LogAppendTime"},
    ],
)
def test_logs_get_what_they_would_make_themselves(tmp_path: Path, count: int, config: dict[str, Any]) -> None:
    r = random.Random(f"{count} {config}")
    sizes = (0, 1, 60, 700) if "max_message_bytes" in config else (0, 1, 90, 700, 30_000)
    with LogStore(tmp_path / "store", mode="a", clock=lambda: NOW, background=False) as store:
        store.create_topic("t", count, **config)
        alone = [
            kstore.open(tmp_path / f"alone/t-{n}", "a", clock=lambda: NOW, **config) for n in range(count)
        ]
        for times in (None, NOW - 5, [NOW - r.randrange(10**9) for _ in range(900)], [-1] * 900):
            keys = [None if r.random() < 0.2 else r.randbytes(r.randrange(12)) for _ in range(900)]
            values = [None if r.random() < 0.1 else r.randbytes(r.choice(sizes)) for _ in range(900)]
            before = [log.log_end_offset for log in alone]
            offsets = store.extend("t", values, keys, times)
            keyless = next(
                n
                for n in offsets
                for record in store.log("t", n).records(offsets[n].start)
                if record.key is None
            )
            for n, rows in enumerate(dealt(keys, count, keyless)):
                if rows:
                    some = [times[i] for i in rows] if isinstance(times, list) else times
                    assert offsets[n] == alone[n].extend(
                        [values[i] for i in rows], [keys[i] for i in rows], some
                    )
            for n, log in enumerate(alone):
                assert log.log_end_offset == before[n] + len(offsets.get(n, ()))
        for n, log in enumerate(alone):
            assert batches(store.log("t", n)) == batches(log)
            assert len(store.log("t", n).segments) == len(log.segments)
            log.close()
    with LogStore(tmp_path / "store") as store:
        for n in range(count):
            assert not store.log("t", n).recovery.findings


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ({"max_message_bytes": 300}, kstore.RecordTooLargeError),
        ({"message_timestamp_before_max_ms": 1}, kstore.InvalidTimestampError),
        ({"cleanup_policy": ["compact"]}, kstore.InvalidRecordError),
    ],
)
def test_nothing_is_written_where_one_log_refuses(
    tmp_path: Path, limit: dict[str, Any], error: type[Exception]
) -> None:
    keys: list[bytes | None] = [b"%d" % i for i in range(200)]
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 4)
        columns: list[Any] = [[b"." * 400] * 200, keys, NOW]
        if error is kstore.InvalidRecordError:
            keys[100] = None
            offsets = store.extend("t", *columns)
            following = (next(n for n in offsets for r in store.log("t", n) if r.key is None) + 1) % 4
        else:
            store.extend("t", *columns)
            following = 2
        ends = [store.log("t", n).log_end_offset for n in range(4)]
        strict: Any = store.log("t", following)
        with pytest.warns(UserWarning, match="a store keeps the options"):
            strict.configure(**limit)
        with pytest.raises(error):
            store.extend("t", *columns)
        assert [store.log("t", n).log_end_offset for n in range(4)] == ends
        with pytest.warns(UserWarning, match="a store keeps the options"):
            strict.configure(**dict.fromkeys(limit))
        store.extend("t", *columns)
        assert sum(store.log("t", n).log_end_offset for n in range(4)) == 400


def test_a_call_that_fails_leaves_all_or_nothing_in_each_partition(tmp_path: Path) -> None:
    keys = [b"%d" % i for i in range(2000)]
    with LogStore(tmp_path, mode="a", background=False) as store:
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
            whole = [end - old for end, old in zip(ends, before, strict=True)]
            assert all(grown in (0, count) for grown, count in zip(whole, counts, strict=True))
            partly += 0 < sum(whole) < 2000
            for n in range(4):
                assert [r.value for r in store.log("t", n).records(before[n])] == [b"%d" % nth] * whole[n]
        assert partly
        placed = store.extend("t", [b"again"] * 2000, keys)
        assert [placed[n].start for n in range(4)] == ends
    with LogStore(tmp_path) as store:
        assert sum(len(list(store.log("t", n))) for n in range(4)) == sum(ends) + 2000


CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


def batch_of(codec: str, value: bytes, key: bytes) -> int:
    """How large a batch of one record is, as a log writes it."""
    codec = "none" if codec == "uncompressed" else codec
    return len(kstore.encode_batch([(NOW, key, value, None)], codec=codec))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1500, 40_000])
def test_nothing_is_written_where_a_packed_record_is_too_large(tmp_path: Path, codec: str, size: int) -> None:
    """A record alone in its batch: as large as the limit it is taken, one byte more is refused, whatever packs it."""
    r = random.Random(f"{codec} {size}")
    keys = [b"k%03d" % i for i in range(400)]
    values = [b"v"] * 400
    values[301] = r.randbytes(size)
    limit = batch_of(codec, values[301], keys[301])
    with LogStore(tmp_path / "store", mode="a", background=False, clock=lambda: NOW) as store:
        for topic, most in (("less", limit - 1), ("enough", limit)):
            store.create_topic(topic, partitions=4, max_message_bytes=most, compression_type=codec)
        with pytest.raises(kstore.RecordTooLargeError, match=f"at most {limit - 1}, found {limit}"):
            store.extend("less", values, keys)
        assert [store.log("less", n).log_end_offset for n in range(4)] == [0] * 4
        assert sum(map(len, store.extend("enough", values, keys).values())) == 400


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("headers", [None, [("h", b"x" * 500)]])
def test_a_log_writes_nothing_either(tmp_path: Path, codec: str, headers: Any) -> None:
    """Though the columns before the record are written in several pieces."""
    r = random.Random(codec)
    values = [r.randbytes(900) for _ in range(3000)]
    options: dict[str, Any] = {"compression_type": codec, "max_message_bytes": 30_000, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        for bad in (r.randbytes(29_990), r.randbytes(60_000)):
            with pytest.raises(kstore.RecordTooLargeError, match=r"record 3000 larger .* at most 30000"):
                log.extend([*values, bad], headers=headers)
            assert log.log_end_offset == 0
        log.extend([*values, b"." * 29_000], headers=headers)
        if codec != "uncompressed":
            log.extend([b"." * 60_000], headers=headers)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_packing_makes_larger(tmp_path: Path, codec: str) -> None:
    """Batches of several records keep so far below the limit that none is too large then."""
    r = random.Random(1)
    with LogStore(tmp_path / "store", mode="a", background=False) as store:
        for most in range(700, 720, 4):
            topic = f"t{most}"
            store.create_topic(topic, partitions=2, max_message_bytes=most, compression_type=codec)
            keys = [r.randbytes(8) for _ in range(300)]
            store.extend(topic, [b"." * 20] * 200 + [r.randbytes(9) for _ in range(100)], keys)
            assert max(batch.size for n in range(2) for batch in store.log(topic, n).batches()) > most // 2


LIMITS: dict[str, dict[str, Any]] = {
    "no": {},
    "small segments": {"segment_bytes": 1 << 20},
    "small batches": {"max_message_bytes": 900},
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("hot", [False, True])
def test_what_is_written_does_not_depend_on_threads(
    tmp_path: Path, limits: str, hot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the offsets that are told. `hot`: one key has most of the records."""
    r = random.Random(limits)
    count = 5_000
    keys = [
        None if r.random() < 0.1 else b"%d" % (7 if hot and i % 8 else r.randrange(500)) for i in range(count)
    ]
    values = [
        None if r.random() < 0.1 else r.randbytes(r.choice((0, 1, 63, 64, 65, 300))) for _ in range(count)
    ]
    written = []
    for threads in (1, 2, 3, 8, 64):
        path = tmp_path / f"{threads}"
        with LogStore(path, mode="a", clock=lambda: NOW, background=False) as store:
            store.create_topic("t", 7, **LIMITS[limits])
            found = store._catalog.topic("t")
            monkeypatch.setattr(type(found), "sticky", lambda self: 3)
            placed = [
                store.extend("t", values, keys, times, threads=threads)
                for times in (None, NOW - 5, [NOW - i * 7919 % 10**8 for i in range(count)])
            ]
            nothing = store.extend("t", [], [], threads=threads)
            alone = store.extend("t", values[:1], keys[:1], threads=threads)
        logs = {p.relative_to(path): p.read_bytes() for p in path.glob("t-*/*.log")}
        written.append((placed, nothing, alone, logs))
    assert len(written[0][3]) >= 7
    assert all(each == written[0] for each in written)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_what_one_log_refuses_is_refused_by_any_number_of_threads(tmp_path: Path, threads: int) -> None:
    r = random.Random(threads)
    keys = [b"%d" % i for i in range(3_000)]
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 5, max_message_bytes=900)
        for at in (0, 1_500, 2_999):
            values = [r.randbytes(50) for _ in keys]
            values[at] = bytes(900)
            with pytest.raises(kstore.RecordTooLargeError, match=f"record {at} "):
                store.extend("t", values, keys, threads=threads)
        assert [store.log("t", n).log_end_offset for n in range(5)] == [0] * 5


def test_how_many_threads(tmp_path: Path) -> None:
    """Two for large columns, if there are two processors."""
    few, many = [b"%d" % i for i in range(1_000)], [b"%030d" % i for i in range(100_000)]
    processors = os.sched_getaffinity(0)
    two = len(processors) > 1
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 3)
        logs: Any = {n: store.log("t", n) for n in range(3)}

        def helpers(keys: list[bytes], *threads: int) -> int:
            dealt = DealtBatches(keys, keys, None, 3, 0, *threads)
            assert dealt.encode(logs)
            return dealt.helpers  # to choose, and to deal

        assert [helpers(few, n) for n in (0, 1, 2, 3)] == [0, 0, 2, 4]
        assert helpers(many) == 2 * two
        os.sched_setaffinity(0, {min(processors)})
        try:
            assert helpers(many) == 0
        finally:
            os.sched_setaffinity(0, processors)
        for wrong in (0, 65, -1):
            with pytest.raises(ValueError, match="threads"):
                store.extend("t", few, few, threads=wrong)
        with pytest.raises(TypeError, match="threads"):
            store.extend("t", few, few, threads="2")  # type: ignore[arg-type]


_NO_THREADS = """
#include <errno.h>
#include <pthread.h>
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *p)
{
    (void)t, (void)a, (void)f, (void)p;
    return EAGAIN;
}
"""
_ALONE = """
import sys, kstore
from kstore.engine.append.dealt_batches import DealtBatches
keys = [b"%d" % i for i in range(5000)]
with kstore.LogStore(sys.argv[1], mode="a", background=False) as store:
    store.create_topic("t", 4)
    placed = store.extend("t", keys, keys, threads=4)
    assert sum(map(len, placed.values())) == 5000
    assert [r.value for r in store.log("t", 1)] == [k for k in keys if k in {r.key for r in store.log("t", 1)}]
    dealt = DealtBatches(keys, keys, None, 4, 0, 4)
    assert dealt.encode({n: store.log("t", n) for n in range(4)})
    assert dealt.helpers == 0, dealt.helpers
"""


def test_where_there_can_be_no_more_threads(tmp_path: Path) -> None:
    """The calling thread does it all."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "none.c", tmp_path / "none.so"
    source.write_text(_NO_THREADS)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    subprocess.run(
        [sys.executable, "-c", _ALONE, str(tmp_path / "store")],
        check=True,
        env=environment(LD_PRELOAD=str(library)),
    )
