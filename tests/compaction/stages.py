"""Logs before and after Kafka's cleaner went over them, and how two logs are compared."""

from pathlib import Path

import kstore
from tests.golden import scenarios
from tests.golden.batches import shape
from tests.golden.scenarios import Scenario


def stage(name: str) -> Scenario:
    """One stage of a story."""
    directory = Path(scenarios.__file__).with_name("data") / name
    partition = next(p.name for p in directory.iterdir() if p.is_dir() and p.name != "expected")
    return Scenario(name, directory, partition, directory / "expected")


def unpacked(scenario: Scenario, into: Path) -> Path:
    """A writable copy in a log directory; the path of the partition."""
    partition = scenario.unpack(into)
    checkpoint = partition.parent / "recovery-point-offset-checkpoint"
    if not checkpoint.exists():
        checkpoint.write_text("0\n0\n")
    return partition


def overflowed(into: Path) -> Path:
    """A segment of Kafka's whose offsets span more than 2^31 - 1, with empty indexes, so that an opening
    after a clean stop does not read it."""
    partition = unpacked(stage("overflow_segment"), into)
    for kind in (".index", ".timeindex"):
        (partition / f"{0:020}{kind}").touch()
    with kstore.open(partition, "a", clean=True) as log:
        log.roll()
        assert len(log.segments) == 2
    return partition


def cleaning(config: dict[str, str]) -> kstore.LogConfig:
    """The configuration of a stage, with which every cleaning is due, as in Kafka's tests of its cleaner."""
    return kstore.LogConfig.from_topic(config | {"min.cleanable.dirty.ratio": "0"})


def check_same(ours: Path, theirs: Path, interval: int) -> None:
    """Both hold the same files, batches and indexes. Bytes differ where one of both packed records anew."""
    assert names(ours) == names(theirs)
    one = kstore.open(ours, clean=True, index_interval_bytes=interval)
    other = kstore.open(theirs, clean=True, index_interval_bytes=interval)
    assert not one.recovery.findings
    for mine, kafkas in zip(one.segments, other.segments, strict=True):
        batches = list(kstore.open(mine.path).batches())
        expected = list(kstore.open(kafkas.path).batches())
        for a, b in zip(batches, expected, strict=True):
            assert shape(a) == shape(b)
            assert a == b or a.codec != "none"
        if all(batch.codec == "none" for batch in batches):
            for kind in (".index", ".timeindex"):
                assert Path(mine.path_of(kind)).read_bytes() == Path(kafkas.path_of(kind)).read_bytes()
        assert [e.offset for e in mine.offset_index] == [e.offset for e in kafkas.offset_index]
        assert list(mine.time_index) == list(kafkas.time_index)
        assert list(mine.transaction_index) == list(kafkas.transaction_index)
    checkpoint = "cleaner-offset-checkpoint"
    assert (ours.parent / checkpoint).read_text() == (theirs.parent / checkpoint).read_text()


def names(directory: Path) -> list[str]:
    """The files in a partition directory, except the log's own options, which Kafka passes over."""
    return sorted(path.name for path in directory.iterdir() if path.name != "kstore.json")
