"""What a store counts, against what was done; and its text, as Prometheus's own library reads it."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore import LogStore, StoreMetrics, TopicMetrics
from tests.store.stores import opened, writer

BROKER = Path(__file__).parents[1] / "golden" / "data" / "broker" / "data"
T = 1_700_000_000_000


def of(store: LogStore, topic: str = "t") -> TopicMetrics:
    return store.metrics().topics[topic]


def on_disk(path: Path, topic: str = "t") -> tuple[int, int]:
    """How many segments there are, and their bytes."""
    files = [each for each in path.glob(f"{topic}-*/*.log")]
    return len(files), sum(each.stat().st_size for each in files)


# ---- in and out --------------------------------------------------------------------------------------------


def test_every_way_in_is_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", 3)
        store.create_topic("u")
        for i in range(10):
            store.append("t", b"v" * i, key=b"%d" % i)
        store.extend("t", [b"v"] * 1000, keys=[b"%d" % i for i in range(1000)])
        with writer(store).appender() as appender:
            for _ in range(7):
                appender.append(b"gathered")
        writer(store, "u").append_batches(bytes(writer(store).span(0)), keep_offsets=True)
        found = of(store)
        ends = [store.log("t", number).log_end_offset for number in range(3)]
        assert found.records_in == sum(ends) == 1017
        assert (found.partitions, found.segments, found.size_bytes) == (3, 3, found.bytes_in)
        assert of(store, "u").records_in == ends[0]
        with pytest.raises(kstore.RecordTooLargeError):
            store.append("t", b"v" * 2_000_000)
        with pytest.raises(TypeError):
            store.append("t", "text")
        assert of(store) == found
    assert on_disk(tmp_path) == (3, found.bytes_in)


@pytest.mark.parametrize("opens", [LogStore, opened], ids=["reading", "writing"])
def test_every_way_out_is_counted(tmp_path: Path, opens: Any) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", 2)
        for number in range(2):
            writer(store, "t", number).extend([b"v" * 100] * 100, batch_bytes=1100)
    _, size = on_disk(tmp_path)
    with opens(tmp_path) as store:
        before = of(store)
        assert before[3:] == (0,) * 11

        def read() -> tuple[int, int]:
            """Since it was called last."""
            nonlocal before
            now = of(store)
            more = now.records_out - before.records_out, now.bytes_out - before.bytes_out
            before = now
            return more

        logs = [store.log("t", number) for number in range(2)]
        assert [len(list(log)) for log in logs] == [100, 100]
        assert read() == (200, size)
        assert sum(batch.records_count for batch in logs[0].batches()) == 100
        assert read() == (100, size // 2)
        for threads in (1, 2):
            assert sum(len(batch) for batch in store.scan("t", ["value"], threads=threads)) == 200
            assert read() == (200, size)
        assert len(logs[1].get(5).value or b"") == 100
        assert read() == (1, 100)
        assert len(bytes(logs[0].span(0))) == size // 2
        assert read() == (0, size // 2)
        assert sum(1 for _ in logs[0].follow(0, timeout=0)) == 100
        assert read() == (100, size // 2)
        with store.cursor("g", ["t"]) as cursor:
            assert sum(1 for _ in cursor) == 200
        assert read() == (200, size)
        assert sum(1 for _ in store.open("t", 0)) == 100
        assert read() == (100, size // 2)
        first = next(iter(logs[0].batches()))
        assert read() == (first.records_count, first.size)
        assert of(store)[3:5] == (0, 0)


def test_compressed_and_of_a_broker() -> None:
    store = LogStore(BROKER)
    for topic in store.topics:
        logs = [store.open(topic, number) for number in store.topics[topic]]
        batches = [batch for log in logs for batch in log.batches()]
        assert all(list(log.records()) for log in logs if log.log_end_offset > log.log_start_offset)
        found = of(store, topic)
        assert found.bytes_out == 2 * sum(batch.size for batch in batches)
        if all(batch.magic == 2 for batch in batches):
            assert found.records_out == 2 * sum(batch.records_count for batch in batches)


def test_counts_of_logs_that_were_closed(tmp_path: Path) -> None:
    with opened(tmp_path, max_open_partitions=2) as store:
        store.create_topic("t", 20)
        for turn in range(3):
            for number in range(20):
                writer(store, "t", number).append(b"v")
            found = store.metrics()
            assert found.topics["t"].records_in == 20 * (turn + 1)
            assert (found.topics["t"].segments, found.topics["t"].size_bytes) == on_disk(tmp_path)
            assert found.open_partitions < 10
        writer(store, "t", 3).roll()
        assert of(store).segments == 21


# ---- maintenance -------------------------------------------------------------------------------------------


def test_recovery_retention_compaction(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.create_topic("t")
    log = writer(store)
    log.extend([b"v"] * 10)
    size = log.active.size
    store.abandon()
    path = next((tmp_path / "t-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:size] + b"torn")
    with opened(tmp_path, retention_ms=1, clock=lambda: T) as store:
        found = of(store)
        assert (found.recovered_partitions, found.recovered_segments) == (1, 1)
        assert found.truncated_bytes == 4
        store.create_topic("old", message_timestamp_before_max_ms=2**62)
        for _ in range(3):
            writer(store, "old").append(b"v", timestamp=1)
            writer(store, "old").roll()
        store.retain()
        assert of(store, "old").deleted_segments == 3
        store.create_topic("users", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        users = writer(store, "users")
        for _ in range(10):
            users.append(b"v", b"k", timestamp=T)
        size = users.active.size
        users.roll()
        users.compact(dry_run=True)
        assert of(store, "users").compactions == 0
        users.compact()
        found = of(store, "users")
        assert (found.compactions, found.compacted_records) == (1, 9)
        assert found.compacted_bytes == size - found.size_bytes > 0


def test_times(tmp_path: Path) -> None:
    with opened(tmp_path, durability="each") as store:
        store.create_topic("t")
        store.create_topic("u")
        for topic in "tttu":
            store.append(topic, b"v")
        store.extend("t", [b"v"] * 1000)
        found = store.metrics()
        for times in (found.append_seconds, found.flush_seconds):
            assert times.calls == sum(times.counts) == 5
            assert len(times.counts) == len(times.bounds) + 1
            least = sum(b * c for b, c in zip((0.0, *times.bounds), times.counts, strict=True))
            most = sum(b * c for b, c in zip((*times.bounds, 1e9), times.counts, strict=True))
            assert least <= times.sum <= most
    with opened(tmp_path) as store:  # where no append waits, one in 16 is timed
        for _ in range(33):
            store.append("t", b"v")
        found = store.metrics()
        assert found.append_seconds.calls == 3
        [text] = re.findall("# HELP kstore_append_seconds (.*)", found.prometheus())
        assert "one in 16" in text


# ---- text --------------------------------------------------------------------------------------------------


def families(text: str) -> Any:
    return pytest.importorskip("prometheus_client.parser").text_string_to_metric_families(text)


def parsed(text: str) -> dict[tuple[str, str, str], float]:
    """Samples by name, topic and le; those of partitions by their number in place of le. Each name has one HELP
    and one TYPE, before its samples."""
    samples = {}
    for family in families(text):
        assert family.type in ("counter", "gauge", "histogram")
        assert family.documentation
        for sample in family.samples:
            labels = sample.labels
            key = sample.name, labels.get("topic", ""), labels.get("le", labels.get("partition", ""))
            assert key not in samples
            samples[key] = sample.value
    return samples


def test_text(tmp_path: Path) -> None:
    with opened(tmp_path, durability="each") as store:
        store.create_topic("a.b_c-d", 2)
        store.create_topic("t")
        store.extend("t", [b"v"] * 10)
        found = store.metrics()
    samples = parsed(found.prometheus())
    for topic, metrics in found.topics.items():
        for field, value in metrics._asdict().items():
            name = f"kstore_topic_{field}"
            got = [samples[n, topic, ""] for n in (name, f"{name}_total") if (n, topic, "") in samples]
            assert got == [value]
    assert samples["kstore_open_partitions", "", ""] == found.open_partitions
    for name, times in (("append", found.append_seconds), ("flush", found.flush_seconds)):
        buckets = [v for (n, _, _), v in samples.items() if n == f"kstore_{name}_seconds_bucket"]
        assert buckets == sorted(buckets)
        assert buckets[-1] == samples[f"kstore_{name}_seconds_count", "", ""] == times.calls == 1
        assert samples[f"kstore_{name}_seconds_sum", "", ""] == pytest.approx(times.sum)
        assert samples[f"kstore_{name}_seconds_bucket", "", "+Inf"] == 1
    assert found.prometheus().endswith("\n")
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_store_that_is_open_for_reading_exports_what_it_counts(tmp_path: Path) -> None:
    """A monitor beside the writer would export 0 records appended."""
    with opened(tmp_path) as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 10)
    samples = parsed(LogStore(tmp_path).metrics().prometheus())
    assert {name.removeprefix("kstore_") for name, _, _ in samples} == {
        *("topic_partitions", "topic_segments", "topic_size_bytes"),
        *("topic_records_out_total", "topic_bytes_out_total", "open_partitions", "failures"),
        *("partition_log_start_offset", "partition_log_end_offset", "topic_oldest_record_age_seconds"),
        "free_bytes",
    }


EMPTY = kstore.Histogram((0.1,), (0, 0), 0.0)


@given(st.text())
def test_labels(value: str) -> None:
    metrics = StoreMetrics({"t": TopicMetrics(*range(14))}, EMPTY, EMPTY, 0, 0)
    value = value.replace("\r", " ").replace("\x85", " ").replace("\u2028", " ")  # the parser's own limits
    for family in families(metrics.prometheus(instance=value, _x="")):
        for sample in family.samples:
            assert sample.labels["instance"] == value
            assert sample.labels["_x"] == ""


def test_labels_that_are_refused() -> None:
    metrics = StoreMetrics({}, EMPTY, EMPTY, 0, 0)
    for name in ("topic", "le", "__x", "1a", "a-b", "", "é"):
        with pytest.raises(ValueError, match="cannot be the name of a label"):
            metrics.prometheus(**{name: "x"})
    with pytest.raises(TypeError, match="must be a str"):
        metrics.prometheus(x=1)  # type: ignore[arg-type]


# ---- at the time of the call -------------------------------------------------------------------------------


@pytest.mark.parametrize("opens", [LogStore, opened], ids=["reading", "writing"])
def test_what_is_there_now(tmp_path: Path, opens: Any) -> None:
    with opened(tmp_path, clock=lambda: T) as store:
        store.create_topic("t", 2)
        store.create_topic("u")
        store.create_topic("empty")
        store.extend("t", [b"v"] * 20, keys=[b"%d" % i for i in range(20)], timestamps=[T - 9_000] * 20)
        store.append("u", b"v", timestamp=T - 1_000)
        with store.cursor("billing", ["t"]) as cursor:
            for _ in range(3):
                next(iter(cursor))
            cursor.commit()
        with store.share_group("workers", ["u"]):
            pass
    with opens(tmp_path) as store:
        found, lag = store.metrics(), store.lag("billing")
        assert found.lag["cursor", "billing", "t"] == sum(lag.values()) == 17
        for tp, now in found.partitions.items():
            with store.open(*tp) as log:
                assert now[:2] == (log.log_start_offset, log.log_end_offset)
            assert now.durable_offset == (None if opens is LogStore else now.log_end_offset)
        oldest = {tp.topic: now.oldest_timestamp for tp, now in found.partitions.items()}
        assert oldest == {"t": T - 9_000, "u": T - 1_000, "empty": -1}
        (free,) = found.free_bytes.values()
        assert free > 0
        if opens is not LogStore:
            store.append("u", b"v", timestamp=T)
            log = writer(store, "u")
            assert store.metrics().partitions[("u", 0)].log_end_offset == 2
            assert store.metrics().partitions[("u", 0)].durable_offset == log.durable_offset
            assert store.metrics().partitions[("t", 0)] == found.partitions[("t", 0)]
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(found._replace(time=T).prometheus())
        for sample in family.samples
    }
    assert samples["kstore_group_lag", "cursor", "billing", "t"] == 17
    assert samples["kstore_topic_oldest_record_age_seconds", "t"] == 9
    assert samples["kstore_free_bytes", str(tmp_path)] == free
    assert ("kstore_topic_oldest_record_age_seconds", "empty") not in samples
    assert (("kstore_partition_durable_offset", "u", "0") in samples) == (opens is not LogStore)
    assert samples["kstore_partition_log_end_offset", "u", "0"] == 1


def test_the_page_of_operations_names_metrics_that_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    text = StoreMetrics({}, EMPTY, EMPTY, 0, 0).prometheus()
    known = set(re.findall("^# TYPE (\\S+)", text, re.MULTILINE))
    named = set(re.findall(r"\bkstore_[a-z_]+[a-z]", page))
    assert len(named) > 10
    assert named <= known, named - known
    shortened = set(re.findall("`…(_[a-z_]+)`", page))
    assert all(any(name.endswith(end) for name in known) for end in shortened)


def test_damaged_positions_hide_no_other_metric(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t")
        store.append("t", b"v")
        with store.cursor("billing", ["t"]) as cursor:
            next(iter(cursor))
            cursor.commit()
        (file,) = tmp_path.glob("*billing*")
        if file.is_dir():
            file = next(each for each in file.iterdir() if each.stat().st_size)
        file.write_bytes(b"x" * file.stat().st_size)
        assert store.metrics().lag == {}
        assert store.metrics().partitions[("t", 0)].log_end_offset == 1
