"""The page of a log or a store: its numbers are those of the API, and names from outside stay text."""

import os
import shutil
import struct
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from kstore.reporting import gather
from tests.reporting.pages import number, read

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
BROKER = GOLDEN / "broker" / "data"
SECTIONS = ["findings", "partitions", "segments", "rate", "batches", "producers", "groups", "cache"]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=\"alert('2')\">&amp;"
DAY = 86_400_000


def test_a_brokers_directory_has_the_numbers_of_the_api() -> None:
    store = kstore.LogStore(BROKER)
    page = read(store.report())
    assert page.sections == SECTIONS
    rows = {row["partition"]: row for row in page.tables["partitions"]}
    assert set(rows) == {str(tp) for tp in store}
    batches = records = size = 0
    for tp in store:
        with store.open(*tp) as log:
            row, headers = rows[str(tp)], [segment.read_headers() for segment in log.segments]
            here = sum(segment.size for segment in log.segments), sum(map(len, headers))
            assert (number(row["bytes"]), number(row["batches"])) == here
            assert number(row["first offset"]) == log.log_start_offset
            assert number(row["end offset"]) == log.log_end_offset
            size, batches = size + here[0], batches + here[1]
            records += sum(len(list(batch.records())) for batch in log.from_file_start().batches())
            for segment, shown in zip(
                log.segments, (s for s in page.tables["segments"] if s["partition"] == str(tp)), strict=True
            ):
                assert number(shown["bytes"]) == segment.size
    # options in the metadata count; server.properties may have another retention.ms than Kafka's default
    retention = "retention of the broker's server.properties"
    assert rows["bounded-0"]["policy"] == f"delete what is above 6000 bytes; {retention}"
    assert "past retention" not in {segment["state"] for segment in page.tables["segments"]}
    codecs = page.tables["codecs"]
    assert sum(number(each["batches"]) for each in codecs) == batches
    assert sum(number(each["bytes"]) for each in codecs) == size
    assert {each["codec"] for each in codecs} >= {"none", "gzip", "snappy", "lz4", "zstd"}
    sizes = [number(cell) for row in page.tables["batches by size"] for cell in list(row.values())[1:]]
    assert sum(sizes) == batches
    areas = next(each for each in page.pictures if each["kind"] == "areas")
    assert sum(map(sum, (each["values"] for each in areas["series"]))) == size
    assert sum(number(row["records"]) for row in rows.values()) == records
    assert {row["kind"] for row in page.tables["groups"]} == {"Kafka consumer"}
    assert {row["group"] for row in page.tables["groups"]} == {"readers"}


def test_age_counts_only_in_topics_that_were_given_retention_ms(tmp_path: Path) -> None:
    def states(topic: str, **options: int) -> set[str]:
        with kstore.LogStore(tmp_path, mode="a", background=False) as store:
            store.create_topic(topic, **options)
            store.log(topic).append(b"v", timestamp=DAY)
            rows = read(store.report()).tables["segments"]
        return {row["state"] for row in rows if row["partition"] == f"{topic}-0"}

    assert states("given", retention_ms=kstore.LogConfig().retention_ms) == {"past retention"}
    assert states("not-given") == {"active"}  # an equal configuration, judged in the same process


def test_a_store_of_our_own(tmp_path: Path) -> None:
    now = 1_000 * DAY
    with kstore.LogStore(tmp_path, mode="a", background=False, clock=lambda: now) as store:
        store.create_topic("orders", 2, retention_ms=DAY)
        store.create_topic("users", cleanup_policy="compact")
        for topic in ("orders", "users"):
            log = store.log(topic)
            assert isinstance(log, kstore.LogWriter)
            for at in range(3):
                log.extend([b"v"] * 10, keys=[b"k"] * 10, timestamps=[now - (3 - at) * DAY] * 10)
                log.roll()
        log.compact()
        store.append("users", b"v", key=b"k", timestamp=now)
        with store.cursor("billing", ["orders"]) as cursor:
            next(iter(cursor))
            cursor.commit()
        with store.share_group("workers", ["users"]) as jobs, jobs.next(timeout=5):
            pass
        page, lags = read(store.report()), store.lag("billing")
        shares = store.share_groups()["workers"]
    states = {row["state"]: number(row["segments"]) for row in page.tables["states"]}
    assert states["past retention"] == 3
    assert states["active"] == 2  # orders-1 has no file yet
    assert states.get("dirty", 0) == 0
    groups = page.tables["groups"]
    assert {row["partition"]: number(row["lag"]) for row in groups if row["group"] == "billing"} == {
        str(tp): lag for tp, lag in lags.items() if lag or tp.partition == 0
    }
    assert [number(row["lag"]) for row in groups if row["kind"] == "share group"] == [
        state.lag for state in shares.values()
    ]


def test_open_transactions() -> None:
    (found,) = (
        path for path in (GOLDEN / "crash_transactions").iterdir() if path.is_dir() and "-" in path.name
    )
    with kstore.open(found) as log:
        page = read(log.report())
        waiting = {
            (producer, state.current_txn_first_offset)
            for producer, state in log.producers().items()
            if state.current_txn_first_offset is not None
        }
    shown = page.tables["open transactions"]
    assert {(number(row["producer id"]), number(row["first offset"])) for row in shown} == waiting


@pytest.mark.filterwarnings("ignore:.* is not a name that Kafka gives:UserWarning")
def test_names_from_outside_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "a\"b'<i>-0"
    with kstore.open(path, "a") as log:
        log.append(b"secret value", key=HOSTILE.encode())
    assert "<i>" not in kstore.report(path).html
    store = tmp_path / "store"
    group = struct.pack(">hh", 1, len(HOSTILE)) + HOSTILE.encode() + struct.pack(">h1si", 1, b"t", 0)
    with kstore.open(store / "__consumer_offsets-0", "a") as log:  # Kafka's groups may have any name
        log.append(struct.pack(">hqihq", 3, 0, -1, 0, 5), key=group)
    with kstore.open(store / "t-0", "a") as log:
        log.append(b"secret value", key=HOSTILE.encode())
    html = kstore.report(store).html
    page = read(kstore.Page(html))
    assert [(row["group"], row["lag"]) for row in page.tables["groups"]] == [(HOSTILE, "1")]
    assert any(HOSTILE in label for picture in page.pictures for label in picture.get("labels", ()))
    assert (page.scripts, html.count("</script>"), "<img" in html) == (3, 3, False)
    assert "secret" not in html
    with kstore.open(path) as log:
        assert "<i>" not in log._repr_html_()


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_is_damaged(tmp_path: Path, kind: str) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for at in range(3):
            log.extend([b"v"] * 100, batch_bytes=200, timestamps=[at] * 100)
            log.roll()
        files = [segment.path for segment in log.segments]
    with Path(files[1]).open("r+b") as file:  # the length of a batch in the middle
        file.seek(8)
        file.write(b"\x7f")
    shown = Path(files[1]).name if kind == "directory" else files[1]  # below the directory
    page = read(kstore.report(tmp_path / "t-0" if kind == "directory" else files[1]))
    assert any(row["file"] == shown and row["severity"] == "damaged" for row in page.tables["findings"])
    assert [row["state"] for row in page.tables["segments"]].count("damaged") == 1


def test_the_findings_of_a_check(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v" * 100] * 100, batch_bytes=1000)
        log.roll()
        log.append(b"v")
        file = Path(log.segments[0].path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert "findings" not in read(kstore.report(tmp_path / "t-0")).tables
    checked = kstore.check(tmp_path / "t-0")
    page = read(kstore.report(tmp_path / "t-0", checked=checked))
    assert [(row["code"], row["severity"]) for row in page.tables["findings"]] == [
        (each.code, each.severity) for each in checked.findings
    ]
    assert [row["state"] for row in page.tables["segments"]] == ["damaged", "active"]
    assert "<table" in checked._repr_html_()


def test_a_partition_that_cannot_be_opened_hides_no_other(tmp_path: Path) -> None:
    shutil.copytree(BROKER, tmp_path / "data")
    os.truncate(tmp_path / "data" / "events-0" / "leader-epoch-checkpoint", 0)
    for file in (tmp_path / "data" / "codecs-0").iterdir():
        file.unlink()
    page = read(kstore.report(tmp_path / "data"))
    assert len(page.tables["partitions"]) >= len(kstore.LogStore(BROKER)) - 1
    assert page.tables["findings"]


def test_empty_directories(tmp_path: Path) -> None:
    page = read(kstore.report(tmp_path))
    assert (page.sections, page.pictures, page.tables) == (SECTIONS, [], {})
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert read(log.report()).sections == SECTIONS
    with pytest.raises(kstore.LogNotFoundError):
        kstore.report(tmp_path / "nothing")
    with pytest.raises(TypeError, match="subject"):
        kstore.report(5)  # type: ignore[arg-type]


def test_many_segments_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        for topic in range(30):
            store.create_topic(f"topic-{topic}", 2, internal_segment_bytes=200)
            for at in range(20):
                store.append(f"topic-{topic}", b"v" * 100, key=b"%d" % at)
        before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.log"))
        page = read(store.report())
        assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.log")) == before
        assert len(store.report().html) < 1_000_000
        bars = next(each for each in page.pictures if each["kind"] == "bars")
        assert len(bars["labels"]) == 20
        assert "10 smaller topics" in page.text
        monkeypatch.setattr(gather, "MOST_BYTES", 20_000)  # else a test would need more than 64 GiB
        sampled = read(store.report())
    total = sum(number(row["segments"]) for row in page.tables["partitions"])
    unread = total - sum(number(row["batches"]) for row in sampled.tables["partitions"])
    assert 0 < unread < total
    assert f"Of {unread:,} segments only the newest timestamp was read" in sampled.text


def test_notebooks(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 2)
        store.extend("t", [b"v"] * 10, keys=[b"k"] * 10)
        assert "<td" in store._repr_html_()
        assert any(">0 to 10 (exclusive)<" in store.log("t", at)._repr_html_() for at in range(2))
        with store.cursor("g", ["t"]) as cursor:
            assert "t-1" in cursor._repr_html_()
        assert "closed" in cursor._repr_html_()
        with store.open("t").cursor("own") as one:
            assert "position" in one._repr_html_()
        assert one._repr_html_() == repr(one)
        page = store.report()
    assert page._repr_html_().startswith("<iframe")
    assert "<script" not in page._repr_html_()
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == page.html
    log = store.open("t")
    log.close()
    assert log._repr_html_() == repr(log)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v" * 100)
        file = Path(log.segments[0].path)
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "t-0"), "-o", str(out), "--check"]) == 0
    assert str(out) in capsys.readouterr().err
    assert read(kstore.Page(out.read_text("utf-8"))).sections == SECTIONS
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert main(["report", str(tmp_path / "t-0"), "-o", str(out)]) == 0
    assert main(["report", str(tmp_path / "t-0"), "-o", str(out), "--check"]) == 1
    assert main(["report", str(tmp_path / "t-0"), "--also", str(tmp_path)]) == 2
    assert main(["report", str(tmp_path / "none"), "-o", str(out)]) == 1
    inside = tmp_path / "t-0" / "page.html"
    assert (main(["report", str(tmp_path / "t-0"), "-o", str(inside)]), inside.exists()) == (2, False)
