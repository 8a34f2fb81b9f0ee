"""A broker's group coordinator reads the positions that it is given back, and a group's file."""

import re
import shutil
import subprocess
from pathlib import Path

import kstore
from tests.kafka.jvm import CLASSES, JARS, Kafka

BROKER = Path(__file__).parents[1] / "golden" / "data" / "broker" / "data"
COMMIT = re.compile(
    r"OffsetCommitKey\(group='(.*)', topic='(.*)', partition=(\d+)\), value=(?:null|.*OffsetCommitValue\("
    r"offset=(\d+), leaderEpoch=(-?\d+), metadata='(.*)', commitTimestamp=(\d+), expireTimestamp=-1, topicId=(.*)\) at)"
)


def read_by_kafka(*files: Path) -> dict[tuple[str, str, int], kstore.OffsetAndMetadata]:
    done = subprocess.run(
        ["java", "-Dstdout.encoding=UTF-8", "-cp", f"{CLASSES}:{JARS}/*", "Positions", *files],
        capture_output=True,
        check=True,
    )
    found = {}
    for group, topic, partition, offset, epoch, metadata, time, _ in COMMIT.findall(done.stdout.decode()):
        found.pop((group, topic, int(partition)), None)
        if offset:
            position = kstore.OffsetAndMetadata(int(offset), int(epoch), metadata, int(time))
            found[group, topic, int(partition)] = position
    return found


def test_there_and_back(kafka: Kafka, tmp_path: Path) -> None:
    """The fixture has built what it takes."""
    data = tmp_path / "data"
    shutil.copytree(BROKER, data)
    store = kstore.LogStore(data)
    store.import_cursors(data)
    with store.cursor("readers", ["events"]) as cursor:
        for _ in cursor:
            pass
        cursor.commit(metadata="grüße")
    store.export_cursors(data)
    # A week after the first record of the first segment, another one is begun.
    segments = sorted((data / "__consumer_offsets-0").glob("*.log"))
    mine = {
        (group, *tp): position for group, theirs in store.cursors().items() for tp, position in theirs.items()
    }
    assert mine["readers", "events", 0].offset == 104
    assert read_by_kafka(*segments) == mine
    assert read_by_kafka(data / "kstore-cursors-readers.positions") == mine
