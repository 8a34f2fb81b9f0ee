"""kstore check: each damage once, nothing wrong where nothing is, and exit codes for cron."""

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.files import flip
from tests.helpers.reading import cursor_at_end
from tests.hostile.material import resealed
from tests.tools.conftest import Run, T

BROKER = Path(__file__).parents[1] / "golden/data/broker/data"


def findings(run: Run, *words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("check", *words, "--json")[1])["findings"]
    return found


def four_segments(path: Path) -> list[Path]:
    """A log that was closed cleanly; the .log files."""
    with kstore.open(path, "a", internal_segment_bytes=600) as log:
        log.extend([b"%03d" % i * 15 for i in range(20)], batch_bytes=0)
    return sorted(path.glob("*.log"))


@pytest.mark.parametrize(
    ("segment", "byte", "code", "position"),
    [
        (1, 80, "corrupt_batch", 0),
        (1, 16, "corrupt_batch", 0),
        (1, 10, "corrupt_batch", 0),
        (1, 3, "corrupt_batch", 0),
        (3, 9, "corrupt_batch", 0),
        (1, 15, "epoch_falls", 113),
        (1, 113 * 4 + 15, "epoch_falls", 0),
    ],
)
def test_one_damage_is_found(
    tmp_path: Path, segment: int, byte: int, code: str, position: int, run: Run
) -> None:
    flip(four_segments(tmp_path / "t-0")[segment], byte, 0x41)
    found = [each for each in findings(run, tmp_path / "t-0") if each["code"] == code]
    assert position in [each["position"] for each in found]
    assert run("check", tmp_path / "t-0")[0] == 1


@pytest.mark.parametrize("at", [1, -1])
def test_a_file_that_is_too_large(tmp_path: Path, at: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    files = four_segments(tmp_path / "t-0")
    os.truncate(files[at], 2**31)
    flip(files[2], 80)
    found = {each["file"]: each["code"] for each in findings(run, tmp_path / "t-0")}
    assert found == {str(files[at]): "too_large", str(files[2]): "corrupt_batch"}
    monkeypatch.chdir(tmp_path / "t-0")
    assert [each["code"] for each in findings(run, files[at].name)] == ["too_large"]
    assert run("check", files[0].name)[0] == 0


def test_what_is_no_log(tmp_path: Path, run: Run) -> None:
    index = four_segments(tmp_path / "t-0")[0].with_suffix(".index")
    empty, link = tmp_path / "empty", tmp_path / "link"
    empty.touch()
    link.symlink_to("nowhere")
    for path in (index, empty, link, "/dev/null"):
        for command in ("check", "repair"):
            code, out, err = run(command, path)
            assert (code, out, str(path) in err, "permissions" in err) == (2, "", True, False)


@pytest.mark.filterwarnings("ignore:.*is not a name that Kafka gives:UserWarning")
@pytest.mark.parametrize("name", ["größe-0", "two words-0"])
def test_a_log_whose_name_kafka_refuses(tmp_path: Path, name: str, run: Run) -> None:
    data = tmp_path / "data"
    flip(four_segments(data / name)[0], 80)
    for _ in range(2):  # alone, and beside another
        codes = {each["code"]: each["severity"] for each in findings(run, data)}
        assert codes == {"corrupt_batch": "damaged", "foreign_directory": "suspicious"}
        four_segments(data / "orders-0")


def test_a_partition_without_its_topic_id(tmp_path: Path, run: Run) -> None:
    """Kafka takes it for a stray one: TopicsImage.isStrayReplica()."""
    data = Path(shutil.copytree(BROKER, tmp_path / "data"))
    file = data / "events-0" / "partition.metadata"
    topic_id = file.read_text().split()[-1]
    file.unlink()
    (found,) = findings(run, data)
    assert (found["code"], found["file"], topic_id in found["remedy"]) == (
        "topic_id_differs",
        str(file),
        True,
    )
    file.write_text(f"version: 0\ntopic_id: {'A' * 21}Q\n")
    assert [each["code"] for each in findings(run, data)] == ["topic_id_differs"]
    file.write_text(f"version: 0\ntopic_id: {topic_id}")
    assert findings(run, data) == []


def test_a_log_start_offset_is_lost(tmp_path: Path, run: Run) -> None:
    """The leader epochs show it, so a repair must leave them as they are."""
    data = Path(shutil.copytree(BROKER, tmp_path / "data"))
    (data / "log-start-offset-checkpoint").unlink()
    epochs = data / "trimmed-0" / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    (found,) = findings(run, data)
    assert (found["code"], found["file"]) == ("epochs_begin_later", str(epochs))
    assert "delete_records" in found["remedy"]
    assert "trimmed" not in run("repair", data, "--run")[1].split("does not treat")[0]
    assert epochs.read_bytes() == before


def test_every_wrong_checksum_is_found(tmp_path: Path, run: Run) -> None:
    file = four_segments(tmp_path / "t-0")[1]
    for byte in (80, 3 * 113 + 80):
        flip(file, byte)
    assert [each["position"] for each in findings(run, tmp_path / "t-0")] == [0, 3 * 113]


def test_exit_codes_and_options(partition: Path, run: Run) -> None:
    code, out, err = run("check", partition)
    assert (code, err) == (0, "")
    assert out.startswith(f"{partition}: whole")
    (partition / "00000000000000000000.log.deleted").write_bytes(b"")
    assert run("check", partition)[0] == 0
    assert run("check", partition, "--severity", "note")[0] == 1
    assert "removal_under_way" in run("check", partition)[1]
    assert run("check", partition, "--problems") == (0, "", "")
    flip(partition / f"{0:020d}.log", -2)
    code, out, err = run("check", partition)
    assert (code, err) == (1, "")
    assert out.splitlines()[0].startswith(f"{partition}: 1 damaged, 1 note")
    assert run("check", partition, "--severity", "lost")[0] == 0
    nothing = partition / "nothing"
    assert run("check", nothing)[::2] == (2, f"kstore: nothing is at {nothing}\n")


def test_a_check_is_resumed(tmp_path: Path, run: Run) -> None:
    files = four_segments(tmp_path / "t-0")
    state = tmp_path / "state"
    assert run("check", tmp_path / "t-0", "--resume", state)[0] == 0
    assert len(state.read_text().splitlines()) == 5
    flip(files[1], 80)
    for _ in range(2):
        found = findings(run, tmp_path / "t-0", "--resume", state)
        assert [each["code"] for each in found] == ["corrupt_batch"]
    state.write_text("something else\n")
    assert run("check", tmp_path / "t-0", "--resume", state)[0] == 1


def test_beside_a_writer(tmp_path: Path, run: Run) -> None:
    options: Any = {"internal_segment_bytes": 200, "retention_bytes": 200, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        log.append(b"x")
        log.roll()
        assert run("check", tmp_path / "t-0")[1].startswith(f"{tmp_path}/t-0: whole (")
        for i in range(5):
            log.append(b"x" * 50, timestamp=T + i)
        log.retain()
        assert {each["code"] for each in findings(run, tmp_path / "t-0")} == {"removal_under_way"}


def test_room_that_was_set_aside(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    log = kstore.open(path, "a", preallocate=True, internal_segment_bytes=2000)
    for step in (lambda: log.append(b"v"), log.roll, lambda: log.append(b"v"), log.abandon):
        step()
        assert run("check", path)[::2] == (0, "")
    assert [each["code"] for each in findings(run, path)] == ["not_closed", "spare_room"]
    flip(path / f"{1:020d}.log", -1)
    assert run("check", path)[0] == 1


def test_a_header_whose_largest_timestamp_is_too_small(tmp_path: Path, run: Run) -> None:
    """Lookups by time trust it, and miss the later records."""
    path = tmp_path / "t-0"
    sound = kstore.encode_batch([(T, None, b"v", None), (T + 2, None, b"w", None)], base_offset=1)
    with kstore.open(path, "a") as log:
        log.append(b"first", timestamp=T)
        log.append_batches(sound, keep_offsets=True)
    file = path / f"{0:020d}.log"
    file.write_bytes(
        file.read_bytes().replace(sound, resealed(sound[:35] + struct.pack(">q", T + 1) + sound[43:]))
    )
    [late] = [each for each in findings(run, path) if each["code"] == "late_record"]
    assert late["offsets"] == [1, 2]


def test_what_a_recovery_has_cut_off(tmp_path: Path, run: Run) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3)
    (file,) = (tmp_path / "t-0").glob("*.log")
    flip(file, -2)
    with pytest.warns(kstore.DataLossWarning):
        kstore.open(tmp_path / "t-0", "a", clean=False, recovery_point=0).close()
    (cut,) = (tmp_path / "t-0").glob("*.cut")
    [found] = findings(run, tmp_path / "t-0")
    assert (found["code"], found["severity"], found["file"]) == ("cut_off", "lost", str(cut))
    cut.unlink()
    assert run("check", tmp_path)[0] == 0


def test_a_log_directory(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    with kstore.LogStore(data, mode="a") as store:
        store.create_topic("orders", partitions=3)
        for number in range(3):
            store.log("orders", number).extend([b"1", b"2", b"3"])
    for number in range(2):
        with cursor_at_end(data / f"orders-{number}", "worker") as jobs:
            jobs.commit(1)
    assert findings(run, data) == []
    (data / "link-0").symlink_to("/nonexistent")
    (data / "lost+found").mkdir()
    (data / "old-3.d0cd1b8a5f4e4a12b6e5a6f2c9b31c7e-stray").mkdir()
    shutil.rmtree(data / "orders-1")
    flip(data / "kstore-cursors-worker.positions", 40)
    codes = {each["code"]: each for each in findings(run, data)}
    assert {"dangling_link", "foreign_directory", "stray_partition", "partition_missing"} <= set(codes)
    assert codes["positions_damaged"]["severity"] == "damaged"
    assert codes["partition_missing"]["file"] == f"{data}/orders-1"
    assert (codes["foreign_directory"]["severity"], codes["foreign_directory"]["stops_kafka"]) == (
        "note",
        True,
    )
    shutil.copyfile(BROKER / "meta.properties", data / "meta.properties")
    foreign = [each for each in findings(run, data) if each["code"] == "foreign_directory"]
    assert [each["severity"] for each in foreign] == ["damaged"]
    (data / "kstore.json").write_text("")
    assert "manifest_damaged" in {each["code"] for each in findings(run, data)}
    assert run("check", data)[2] == ""  # a finding, and no warning


def test_a_partition_in_two_directories(tmp_path: Path, run: Run) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    with kstore.LogStore(*paths, mode="a") as store:
        store.create_topic("t", partitions=2)
        store.extend("t", [b"v"] * 10)
    assert [each["code"] for each in findings(run, *paths)] == []
    [here] = [path for path in paths if (path / "t-0").exists()]
    [there] = [path for path in paths if path != here]
    shutil.copytree(here / "t-0", there / "t-0")
    double = [each for each in findings(run, *paths) if each["code"] == "duplicate_partition"]
    assert len(double) == 2
    assert double[0]["stops_kafka"]


def test_a_position_beyond_the_end(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 10)
    shutil.copytree(path, tmp_path / "older")
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 10)
    with cursor_at_end(path, "group") as cursor:
        cursor.commit(20)
    for file in (tmp_path / "older").iterdir():
        if not file.name.startswith("kstore"):
            shutil.copyfile(file, path / file.name)
    for file in path.iterdir():
        if not (tmp_path / "older" / file.name).exists() and not file.name.startswith("kstore"):
            file.unlink()
    assert "position_beyond_end" in {each["code"] for each in findings(run, path)}


@pytest.mark.parametrize("content", [b"\x1f\x8b" * 100, b"some text " * 100, bytes(1000)])
def test_files_that_are_no_logs(tmp_path: Path, content: bytes, run: Run) -> None:
    files = four_segments(tmp_path / "t-0")
    files[1].write_bytes(content)
    found = {each["code"]: each for each in findings(run, tmp_path / "t-0")}
    assert found["not_a_log"]["file"] == str(files[1])
