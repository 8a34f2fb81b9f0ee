"""Checkpoint files, partition.metadata, the clean-shutdown marker: Kafka's tests of small files."""

import uuid
from pathlib import Path

import pytest

import kstore
from kstore import CorruptCheckpointError, LogConfig
from tests.conformance.writing import put, rec
from tests.helpers import forge
from tests.helpers.forge import simple

POINTS = "recovery-point-offset-checkpoint"
ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
ID_TEXT = "ASNFZ4mrze8BI0VniavN7w"


@pytest.fixture
def foo(tmp_path: Path) -> Path:
    """The partition foo-1, with nine records."""
    return forge.partition(tmp_path, {0: [simple(i) for i in range(9)]}, name="foo-1")


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("", 0),
        ("0", 0),
        ("0\n", 0),
        ("0\n0\n", 0),
        ("0\n1\nfoo 1 5", 5),
        ("0\n3\nbar 2 10\nfoo 1 5\nfoo 2 7\n", 5),
        ("0\n3\nfoo  1\t5\nfoo 1 6\nbar 0 9223372036854775807", 6),
        (forge.checkpoint([("foo", i, 5 * i) for i in range(10)]), 5),
    ],
)
def test_read_offsets(foo: Path, text: str, point: int) -> None:
    """Spec 1.4: an empty file has no entries; split at any run of spaces; of duplicates the last wins."""
    (foo.parent / POINTS).write_text(text)
    log = kstore.open(foo)
    assert (log.recovery.recovery_point, log.recovery.findings) == (point, [])


@pytest.mark.parametrize(
    ("text", "entries"),
    [("0\n2\n2 3\n7 6\n", ((2, 3), (7, 6))), *((text, ((0, 0),)) for text in ("", "0\n", "0\n0\n", None))],
)
def test_read_epochs(foo: Path, text: str | None, entries: tuple[tuple[int, int], ...]) -> None:
    """LeaderEpochCheckpointFileTest; contradicting entries are in LeaderEpochFileCacheTest.

    Unlike Kafka, kstore does not believe a file without entries, or a lost one, if the batches have epochs."""
    file = foo / "leader-epoch-checkpoint"
    file.unlink()
    if text is not None:
        file.write_text(text)
    reader, codes = kstore.open(foo, clean=True), ["epochs_damaged"] if entries == ((0, 0),) else []
    assert reader.leader_epochs == entries
    assert [finding.code for finding in reader.recovery.findings] == codes
    with kstore.open(foo, "a", clean=True) as log:
        assert [finding.code for finding in log.recovery.findings] == codes
        assert log.leader_epochs == entries
    assert file.read_text() == ("0\n1\n0 0\n" if codes else text)
    file.write_text("")
    reader.refresh()
    assert reader.leader_epochs == entries


def test_no_epochs_of_records_that_were_deleted(foo: Path) -> None:
    """As Kafka's truncations leave it: the batches that have an epoch are all below the log start."""
    with kstore.open(foo, "a", clean=True) as log:
        log.delete_records(log.log_end_offset)
        log.truncate_to(log.log_end_offset)
    log = kstore.open(foo)
    assert (log.leader_epochs, log.recovery.findings) == ((), [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1\n1\nfoo 1 5\n", 1),
        ("x\n", 1),
        ("\n0\n", 1),
        ("0\nx\n", 2),
        ("0\n-1\n", 2),
        ("0\n2\nfoo 1 5\n", 2),
        ("0\n0\nfoo 1 5\n", 2),
        ("0\n1\nfoo 1\n", 3),
        ("0\n1\nfoo 1 5 6\n", 3),
        ("0\n1\nfoo x 5\n", 3),
        ("0\n1\n\n", 3),
        ("0\n2\nfoo 1 5\n\n", 4),
    ],
)
def test_malformed(foo: Path, text: str, line: int) -> None:
    """Spec 1.4: version, count, an entry, a blank line, or the number of entries is wrong."""
    points, epochs = foo.parent / POINTS, foo / "leader-epoch-checkpoint"
    points.write_text(text)
    epochs.write_text(text.replace("foo 1", "1"))
    log = kstore.open(foo)
    assert log.recovery.recovery_point == (5 if "foo 1 5\n" in text else 0)  # of the lines that can be read
    assert log.leader_epochs == ((0, 0),)  # those of the batches
    assert {finding.file for finding in log.recovery.findings} == {str(points), str(epochs)}
    for finding in log.recovery.findings:
        assert finding.kind == "checkpoint"
        assert f"{finding.file}: at line {line}: " in finding.text


def test_checkpoints_beside_the_partition(foo: Path) -> None:
    """Recovery point and log start are read from there; they are 0 without a file or if it is damaged."""
    log = kstore.open(foo)
    assert (log.recovery.recovery_point, log.log_start_offset, log.topic_id()) == (0, 0, None)
    assert log.recovery.findings == []
    points, starts = foo.parent / POINTS, foo.parent / "log-start-offset-checkpoint"
    points.write_text(forge.checkpoint([("foo", 0, 99), ("foo", 1, 7)]))
    starts.write_text(forge.checkpoint([("foo", 1, 3), ("foo", 0, 8)]))
    log = kstore.open(foo)
    assert (log.recovery.recovery_point, log.log_start_offset) == (7, 3)
    starts.write_text("1\n")
    points.write_text("0\n1\n")
    log = kstore.open(foo)
    assert (log.recovery.recovery_point, log.log_start_offset) == (0, 0)
    assert [finding.kind for finding in log.recovery.findings] == ["checkpoint", "checkpoint"]


def test_persist_overwrite_and_reload(foo: Path) -> None:
    """Offsets, epochs and the id as Kafka writes them, over what was there; no other file is left."""
    points = foo.parent / POINTS
    points.write_text("0\n1\nother 3 17\n")
    for end, epoch in ((10, 2), (11, 5)):
        with kstore.open(foo, "a", topic_id=ID, leader_epoch=epoch) as log:
            put(log, rec())
        assert set(points.read_text().splitlines()) == {"0", "2", "other 3 17", f"foo 1 {end}"}
    assert (foo / "leader-epoch-checkpoint").read_bytes() == b"0\n3\n0 0\n2 9\n5 10\n"
    assert (foo / "partition.metadata").read_bytes() == f"version: 0\ntopic_id: {ID_TEXT}".encode()
    assert kstore.open(foo).leader_epochs == ((0, 0), (2, 9), (5, 10))
    assert [path.name for path in foo.parent.rglob("*.tmp")] == []


@pytest.mark.parametrize("end", ["", "\n"])
def test_partition_metadata(foo: Path, end: str) -> None:
    """Two lines with the id as 22 characters of URL-safe base64."""
    (foo / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID_TEXT}{end}")
    assert kstore.open(foo).topic_id() == ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0\n",
        f"topic_id: {ID_TEXT}",
        f"version: 0\ntopic_id: {'A' * 22}",
        f"version: -1\ntopic_id: {ID_TEXT}",
        f"version: x\ntopic_id: {ID_TEXT}",
        "version: 0\ntopic_id: tooshort",
    ],
)
def test_malformed_partition_metadata(foo: Path, text: str) -> None:
    """Spec 1.5: no version, no id, an id of zero, a negative version."""
    (foo / "partition.metadata").write_text(text)
    with pytest.raises(CorruptCheckpointError) as caught:
        kstore.open(foo).topic_id()
    assert caught.value.file == str(foo / "partition.metadata")


@pytest.mark.parametrize(
    "text", ['{"version":0,"brokerEpoch":-1}', '{"version":9,"brokerEpoch":5,"more":[1]}', "", "?"]
)
def test_clean_shutdown_marker(foo: Path, text: str) -> None:
    """CleanShutdownFileHandlerTest: other fields and versions are as good; existence counts."""
    assert not kstore.open(foo).recovery.clean
    (foo.parent / ".kafka_cleanshutdown").write_text(text)
    assert kstore.open(foo).recovery.clean
    assert (foo.parent / ".kafka_cleanshutdown").read_text() == text


def test_properties(tmp_path: Path) -> None:
    """Spec 1.6: Java's properties syntax, here of a server.properties."""
    file = tmp_path / "server.properties"
    file.write_text(
        "#\n#Tue Nov 14 22:13:20 UTC 2023\n! more\nlog.retention.ms=5\n  log.roll.ms : 6\n"
        "log.segment.bytes  2097152\n\nlog.cleanup.policy = compact,\\\n    delete\nversion=1\nempty\n"
        "compression.type=\\u006cz4\nlog.index.interval.by\\tes=7\nmin.insync.replicas\\=2\n"
    )
    with pytest.warns(UserWarning, match=r"log\.index\.interval\.by\\tes has no effect"):
        config = LogConfig.from_server_properties(file)
    assert config.to_topic() == {
        "retention.ms": "5",
        "segment.ms": "6",
        "segment.bytes": "2097152",
        "cleanup.policy": "compact,delete",
        "compression.type": "lz4",
    }
