"""kstore copy, and the manifest of its copies."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from tests.copying.test_copies import described, make_log, make_store, rows
from tests.helpers.processes import run_command

NOT_AS_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")


def test_a_store(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    done = run_command("copy", tmp_path / "data", tmp_path / "backup")
    assert (done.returncode, done.stderr) == (0, "")
    assert "users-0: offsets 0 to 500 (exclusive)\n" in done.stdout
    assert f"4 partitions in {tmp_path}/backup: " in done.stdout
    again = run_command("copy", tmp_path / "data", tmp_path / "backup", "--json")
    told = json.loads(again.stdout)
    assert told["partitions"]["users-0"] | {"copied_bytes": 0} == {
        "start": 0,
        "end": 500,
        "copied_bytes": 0,
        "reused_bytes": 0,
        "gaps": [],
    }
    assert told["manifest"] == str(tmp_path / "backup" / "kstore-copy.jsonl")


def test_the_manifest_has_each_file(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    report = kstore.copy(tmp_path / "data", tmp_path / "backup")
    lines = [json.loads(line) for line in report.manifest.read_text().splitlines()]
    assert lines[0] == {"version": 0, "source": str(tmp_path / "data")}
    found = {
        str(path.relative_to(tmp_path / "backup")): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (tmp_path / "backup").rglob("*")
        if path.is_file() and path != report.manifest
    }
    assert {line["path"]: line["sha256"] for line in lines[1:]} == found


def test_options(tmp_path: Path) -> None:
    make_log(tmp_path / "t-0")
    words = ["--start", "100", "--stop", "200", "--compression", "zstd"]
    done = run_command("copy", tmp_path / "t-0", tmp_path / "part-0", *words)
    assert done.stdout.startswith("t-0: offsets 100 to 200 (exclusive)\n")
    assert [row[0] for row in rows(tmp_path / "part-0")] == list(range(100, 200))
    words = ["--since", "1700000000900", "--renumber"]
    run_command("copy", tmp_path / "t-0", tmp_path / "late-0", *words)
    assert [row[0] for row in rows(tmp_path / "late-0")] == list(range(100))


def test_damage(tmp_path: Path) -> None:
    make_log(tmp_path / "t-0")
    with kstore.open(tmp_path / "t-0") as log:
        path = Path(log.segments[1].path)
        at = log.segments[1].batch_at(0).size + 70
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    done = run_command("copy", tmp_path / "t-0", tmp_path / "copy-0")
    assert done.returncode == 1
    assert f"{path}: at byte" in done.stderr
    done = run_command("copy", tmp_path / "t-0", tmp_path / "copy-0", "--on-error", "skip")
    assert done.returncode == 1
    assert done.stderr.startswith(f"kstore: {path}: ")
    assert "were left out" in done.stderr
    assert len(rows(tmp_path / "copy-0")) == 999


def test_wrong_usage(tmp_path: Path) -> None:
    make_log(tmp_path / "t-0", 1)
    assert run_command("copy", tmp_path / "t-0", tmp_path / "c-0", "--topic", "t").returncode == 2
    assert run_command("copy", tmp_path / "none", tmp_path / "c-0").returncode == 1
    assert run_command("copy", tmp_path / "t-0", tmp_path / "c-0", "--compression", "zip").returncode == 2
    assert not (tmp_path / "c-0").exists()


def test_check_against_the_manifest(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    report = kstore.copy(tmp_path / "data", tmp_path / "backup")
    words = ("check", tmp_path / "backup", "--manifest", report.manifest, "--problems")
    assert run_command(*words).returncode == 0
    log = tmp_path / "backup" / "users-0" / "00000000000000000000.log"
    index = tmp_path / "backup" / "users-0" / "00000000000000000000.timeindex"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    index.unlink()
    (tmp_path / "backup" / "orders-0" / "00000000000000009999.log").write_bytes(b"")
    found = kstore.check(tmp_path / "backup", manifest=report.manifest).findings
    codes = {(each.code, Path(each.file).name) for each in found if each.code.startswith("copy_")}
    assert codes == {
        ("copy_file_differs", log.name),
        ("copy_file_missing", index.name),
        ("copy_file_unlisted", "00000000000000009999.log"),
    }
    assert run_command(*words).returncode == 1
    report.manifest.write_text("no manifest\n")
    done = run_command(*words)
    assert (done.returncode, "manifest of a copy" in done.stderr) == (1, True)


def _fifo(data: Path) -> None:
    path = data / "orders-1" / "00000000000000000000.log"
    path.unlink()
    os.mkfifo(path)


def _sealed(name: str) -> Callable[[Path], None]:
    def seal(data: Path) -> None:
        (data / name).touch()
        (data / name).chmod(0)

    return seal


@pytest.mark.parametrize(
    ("damage", "left_out"),
    [
        (_fifo, "orders-1"),
        (lambda data: os.truncate(data / "orders-1" / "00000000000000000000.log", 1 << 31), "orders-1"),
        pytest.param(_sealed("orders-1/00000000000000000000.log"), "orders-1", marks=NOT_AS_ROOT),
        pytest.param(_sealed("orders-1"), "orders-1", marks=NOT_AS_ROOT),
        pytest.param(_sealed("meta.properties"), "meta.properties", marks=NOT_AS_ROOT),
    ],
)
def test_what_cannot_be_opened(damage: Callable[[Path], None], left_out: str, tmp_path: Path) -> None:
    """--on-error skip copies the rest."""
    make_store(tmp_path / "data")
    damage(tmp_path / "data")
    assert run_command("copy", tmp_path / "data", tmp_path / "none").returncode == 1
    done = run_command("copy", tmp_path / "data", tmp_path / "backup", "--on-error", "skip")
    assert (done.returncode, done.stderr.startswith(f"kstore: {left_out} was not copied: ")) == (1, True)
    assert len(rows(tmp_path / "backup" / "users-0")) == 500
    assert (tmp_path / "backup" / "orders-1").exists() == (left_out != "orders-1")


def test_names_that_kafka_would_not_use(tmp_path: Path) -> None:
    """A directory with records that are not copied is missing; one that Kafka has set aside is not."""
    make_store(tmp_path / "data")
    (tmp_path / "data" / f"gone-0.{'0' * 32}-delete").mkdir()
    assert run_command("copy", tmp_path / "data", tmp_path / "before").returncode == 0
    with pytest.warns(UserWarning, match="store, which passes over 'größe-0'"):
        kstore.open(tmp_path / "data" / "größe-0", "a").close()
    with pytest.warns(UserWarning, match=r"is not a name that Kafka gives .* pass over it"):
        kstore.open(tmp_path / "new" / "größe-0", "a").close()
    done = run_command("copy", tmp_path / "data", tmp_path / "backup")
    reason = "its name is not that of a partition of Kafka, such as orders-0: copy it by itself"
    assert (done.returncode, f"größe-0 was not copied: {reason}\n" in done.stderr) == (1, True)


def test_several_topics(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("third")
    words = ("--topic", "orders", "--topic", "users")
    done = run_command("copy", tmp_path / "data", tmp_path / "two", *words)
    assert done.stdout.startswith("orders-0: ")
    assert list(described(tmp_path / "two")["topics"]) == ["orders", "users"]
    done = run_command("copy", tmp_path / "data", tmp_path / "none", *words, "--topic", "n")
    assert (done.returncode, "no partition of topic 'n'" in done.stderr) == (1, True)
    with pytest.raises(TypeError, match="topic"):
        kstore.copy(tmp_path / "data", tmp_path / "none", topic=["orders", 1])  # type: ignore[list-item]
