"""OffsetCheckpointFileTest, LeaderEpochCheckpointFileTest, PartitionMetadataFileTest and others."""

import json
import uuid
from pathlib import Path

import pytest

import kstore
from kstore import CorruptCheckpointError, TopicPartition
from kstore.log.files.checkpoints import (
    read_epochs,
    read_offsets,
    read_topic_id,
    topic_id_text,
)
from kstore.properties import read_properties
from tests.conformance import forge
from tests.conformance.forge import simple


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_persist_overwrite_and_reload_offsets(file: Path) -> None:
    """What was written is read, and again after it was overwritten."""
    file.write_text(forge.checkpoint([("foo", 1, 5), ("bar", 2, 10)]))
    assert read_offsets(file) == {TopicPartition("foo", 1): 5, TopicPartition("bar", 2): 10}
    file.write_text(forge.checkpoint([("foo", 2, 15)]))
    assert read_offsets(file) == {TopicPartition("foo", 2): 15}


def test_handle_multiple_lines(file: Path) -> None:
    """Ten entries."""
    entries = {TopicPartition("foo", i): 5 * i for i in range(10)}
    file.write_text(forge.checkpoint([(*tp, offset) for tp, offset in entries.items()]))
    assert read_offsets(file) == entries


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n", "0"])
def test_return_empty_map_for_empty_file(file: Path, text: str) -> None:
    """An empty file, or one with the version only, has no entries."""
    file.write_text(text)
    assert read_offsets(file) == {}
    assert read_epochs(file) == []


def test_should_throw_if_version_is_not_recognised(file: Path) -> None:
    """Version 1."""
    file.write_text("1\n1\nfoo 1 5\n")
    with pytest.raises(CorruptCheckpointError) as caught:
        read_offsets(file)
    assert (caught.value.file, caught.value.position) == (str(file), 1)


BROKEN = ("x\n", "0\nx\n", "0\n-1\n", "0\n2\nfoo 1 5\n", "0\n0\nfoo 1 5\n", "0\n1\nfoo 1\n",
          "0\n1\nfoo 1 5 6\n", "0\n1\nfoo x 5\n", "0\n1\n\n", "0\n2\nfoo 1 5\n\n",
          "\n0\n")  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_malformed(file: Path, text: str) -> None:
    """Spec 1.4: version, count, an entry, a blank line, or the number of entries is wrong."""
    file.write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_offsets(file)
    file.write_text(text.replace("foo 1", "1"))
    with pytest.raises(CorruptCheckpointError):
        read_epochs(file)


def test_spaces_and_duplicates(file: Path) -> None:
    """Spec 1.4: split at any run of spaces; of duplicates the last wins."""
    file.write_text("0\n3\nfoo  1\t5\nfoo 1 6\nbar 0 9223372036854775807")
    assert read_offsets(file) == {TopicPartition("foo", 1): 6, TopicPartition("bar", 0): 2**63 - 1}


def test_persist_and_overwrite_epochs(file: Path) -> None:
    """LeaderEpochCheckpointFileTest: entries in the order of the file."""
    file.write_text(forge.checkpoint([(0, 1), (1, 2), (2, 3)]))
    assert read_epochs(file) == [(0, 1), (1, 2), (2, 3)]
    file.write_text(forge.checkpoint([(2, 3), (1, 7)]))
    assert read_epochs(file) == [(2, 3), (1, 7)]


def test_missing_file(file: Path) -> None:
    """A file that is not there is the system's error."""
    with pytest.raises(FileNotFoundError):
        read_offsets(file)


def test_epochs_that_fall_are_cleaned_at_load(tmp_path: Path) -> None:
    """Spec 7.8: entries are assigned in the order of the file."""
    batches = [simple(i) for i in range(9)]
    path = forge.partition(tmp_path, {0: batches}, epochs=[(1, 5), (2, 6), (1, 7)])
    log = kstore.open(path, clean=True)
    assert log.leader_epochs == ((1, 7),)
    assert log.end_offset_for_epoch(1) == (1, 9)
    assert log.end_offset_for_epoch(2) == (-1, -1)


ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize("end", ["", "\n"])
def test_partition_metadata(tmp_path: Path, end: str) -> None:
    """Two lines with the id as 22 characters of URL-safe base64."""
    path = forge.partition(tmp_path, {0: []})
    assert kstore.open(path).topic_id() is None
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id_text(ID)}{end}")
    assert len(topic_id_text(ID)) == 22
    assert kstore.open(path).topic_id() == ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0\n",
        f"topic_id: {'A' * 21}B",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        f"version: -1\ntopic_id: {topic_id_text(ID)}",
        f"version: x\ntopic_id: {topic_id_text(ID)}",
        "version: 0\ntopic_id: tooshort",
    ],
)
def test_malformed_partition_metadata(file: Path, text: str) -> None:
    """Spec 1.5: no version, no id, an id of zero, a negative version."""
    file.write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_topic_id(file)


MARKERS = ('{"version":0,"brokerEpoch":-1}', '{"version":9,"brokerEpoch":5,"more":[1]}', "", "?")


@pytest.mark.parametrize("text", MARKERS)
def test_clean_shutdown_marker(tmp_path: Path, text: str) -> None:
    """CleanShutdownFileHandlerTest: other fields and versions are as good; existence counts."""
    path = forge.partition(tmp_path, {0: [simple(0)]})
    assert not kstore.open(path).recovery.clean
    (tmp_path / ".kafka_cleanshutdown").write_text(text)
    assert kstore.open(path).recovery.clean
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == text


def test_checkpoints_beside_the_partition(tmp_path: Path) -> None:
    """Recovery point and log start are found there; where they cannot be read they are 0."""
    path = forge.partition(tmp_path, {0: [simple(i) for i in range(9)]})
    tp, other = ("topic", 0), ("topic", 1)
    points, starts = (tmp_path / f"{kind}-offset-checkpoint" for kind in ("recovery-point", "log-start"))
    points.write_text(forge.checkpoint([(*other, 99), (*tp, 7)]))
    starts.write_text(forge.checkpoint([(*tp, 3), (*other, 8)]))
    log = kstore.open(path)
    assert (log.recovery.recovery_point, log.log_start_offset) == (7, 3)
    starts.write_text("1\n")
    points.write_text("0\n1\n")
    log = kstore.open(path)
    assert (log.recovery.recovery_point, log.log_start_offset) == (0, 0)
    assert [finding.kind for finding in log.recovery.findings] == ["checkpoint", "checkpoint"]


def test_meta_properties(file: Path) -> None:
    """Spec 1.6: Java's properties syntax."""
    file.write_text(
        "#\n#Tue Nov 14 22:13:20 UTC 2023\n! more\ncluster.id=abc\\=d\n  node.id : 1\n"
        "directory.id  8vUyAfhLQDCYLhZ0U8YW3Q\n\nlong = one \\\n    two\nversion=1\nempty\n"
        "uni=\\u00e9\\t\n"
    )
    assert read_properties(file) == {
        "cluster.id": "abc=d",
        "node.id": "1",
        "directory.id": "8vUyAfhLQDCYLhZ0U8YW3Q",
        "long": "one two",
        "version": "1",
        "empty": "",
        "uni": "é\t",
    }
    assert json.dumps(read_properties(file))
