"""Directories of a version before the manifest: they are read as they are, and converted by the first opening for
writing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files import manifest
from kstore.testing import Recorder, crash_states, failing
from tests.helpers.reading import cursor_at_end

EARLIER = Path(__file__).with_name("earlier")
OLDER = {"kstore-config.json", "kstore-truncations.json", "kstore-cursors.id", "kstore-topics.json"}
VALUES = [b"old %d" % i for i in range(6)] + [b"new %d" % i for i in range(6, 12)]


@pytest.fixture(params=["lone", "store/events-0"])
def path(request: pytest.FixtureRequest, ram: Path) -> Path:
    """A copy of an earlier partition."""
    shutil.copytree(EARLIER, ram / "earlier")
    return ram / "earlier" / str(request.param)


def older_in(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.rglob("*") if file.name in OLDER)


def detected(path: Path) -> int:
    """The offset of the truncation that a cursor at offset 10 reports."""
    with kstore.open(path).cursor("beyond") as jobs:
        assert jobs.position == 10
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(jobs)
    return caught.value.end


def test_reading_converts_nothing(path: Path) -> None:
    before = older_in(path.parent)
    log = kstore.open(path)
    assert [record.value for record in log] == VALUES
    log.refresh()
    assert {group: at.offset for group, at in log.cursors().items()}["beyond"] == 10
    assert detected(path) == 6
    assert (older_in(path.parent), (path / "kstore.json").exists()) == (before, False)


def test_the_first_opening_for_writing_converts(path: Path) -> None:
    reader = kstore.open(path)
    with reader.cursor("beyond") as jobs, kstore.open(path, "a") as log:
        assert log.config.given_options() == (
            {"retention_ms": -1, "segment_bytes": 2 << 20} if path.name == "lone" else {"retention_ms": -1}
        )
        assert older_in(path) == []
        reader.refresh()
        assert [record.value for record in reader] == VALUES
        assert jobs.position == 10
        jobs.seek(10)
        jobs.commit(10)  # the partition has the id of before
        assert log.cursors()["beyond"].offset == 10
        log.truncate_to(8)
    with kstore.open(path).cursor("beyond") as jobs, pytest.raises(kstore.OffsetOutOfRangeError) as caught:
        list(jobs)
    assert caught.value.end == 8


def test_a_cursor_that_needs_an_id_converts(path: Path) -> None:
    """And the next opening for writing removes the files of before."""
    (path / "kstore-cursors.id").unlink()
    with cursor_at_end(path, "new") as jobs:
        jobs.commit(3)
    assert (path / "kstore.json").exists()
    assert older_in(path)
    with kstore.open(path, "a") as log:
        assert older_in(path) == []
        assert log.config.retention_ms == -1
        assert log.cursors()["new"].offset == 3
        assert log.snapshot.truncations.offset == 6


def test_a_store(ram: Path) -> None:
    shutil.copytree(EARLIER / "store", ram / "store")
    reader = kstore.LogStore(ram / "store")
    before = {topic: (reader.topics[topic], reader.describe(topic).options) for topic in reader.topics}
    assert before == {
        "events": ([0], {"retention_ms": -1}),
        "orders": ([0, 1], {"retention_ms": -1, "segment_bytes": 2 << 20}),
    }
    table = json.loads((ram / "store" / "kstore-topics.json").read_text())
    with kstore.LogStore(ram / "store", mode="a", background=False) as store:
        assert older_in(ram / "store") == sorted(OLDER - {"kstore-config.json", "kstore-topics.json"})
        for log in (store.log("events"), store.log("orders", 0), store.log("orders", 1)):
            assert log.config.retention_ms == -1
    assert older_in(ram / "store") == []
    converted = json.loads((ram / "store" / "kstore.json").read_text())
    assert {name: converted[name] for name in ("number", "topics", "change")} == {
        name: table[name] for name in ("number", "topics", "change")
    }
    found = kstore.LogStore(ram / "store")
    assert before == {topic: (found.topics[topic], found.describe(topic).options) for topic in found.topics}


def test_a_change_that_an_earlier_version_did_not_finish(ram: Path) -> None:
    shutil.copytree(EARLIER / "store", ram / "store")
    path = ram / "store" / "kstore-topics.json"
    table = json.loads(path.read_text())
    del table["crc32c"], table["topics"]["orders"]
    table["change"] = {"topic": "orders", "delete": True, "make": {}}
    path.write_text(json.dumps(table))
    with pytest.raises(kstore.LogNotFoundError, match="is being deleted"):
        kstore.open(ram / "store" / "orders-0", "a")
    with kstore.LogStore(ram / "store", mode="a", background=False) as store:
        assert store.topics == {"events": [0]}


def test_a_truncation_that_an_earlier_version_did_not_finish(ram: Path) -> None:
    shutil.copytree(EARLIER / "lone", ram / "lone")
    content: dict[str, Any] = {"version": 1, "truncations": [[1, 5, 5]], "pending": "records"}
    (ram / "lone" / "kstore-truncations.json").write_text(json.dumps(content))
    with kstore.open(ram / "lone", "a") as log:
        assert log.log_end_offset == 5


def damage(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-4] + bytes([data[-4] ^ 1]) + data[-3:])


@pytest.mark.parametrize("name", ["kstore-config.json", "kstore-truncations.json", "kstore-cursors.id"])
def test_a_damaged_file(ram: Path, name: str) -> None:
    """The error names it. If the user moves it away, the rest is converted."""
    path = ram / "lone"
    shutil.copytree(EARLIER / "lone", path)
    damage(path / name)
    assert [record.value for record in kstore.open(path)] == VALUES
    with pytest.raises(kstore.CorruptCheckpointError, match=name) as caught:
        kstore.open(path, "a")
    assert "move it away" in str(caught.value.__notes__)
    assert not (path / "kstore.json").exists()
    (path / name).unlink()
    with kstore.open(path, "a") as log:
        assert bool(log.config.given_options()) == ("config" not in name)
        known = log.snapshot.truncations.since(0, "read_uncommitted")
        assert (known == 6) == ("truncations" not in name)
        assert bool(log.cursors()) == ("id" not in name)


def test_a_damaged_table(ram: Path) -> None:
    shutil.copytree(EARLIER / "store", ram / "store")
    damage(ram / "store" / "kstore-topics.json")
    with pytest.raises(kstore.CorruptCheckpointError, match=r"kstore-topics\.json") as caught:
        kstore.LogStore(ram / "store", mode="a", background=False)
    assert "move it away" in str(caught.value.__notes__)


def convert(path: Path) -> None:
    if path.name == "lone":
        kstore.open(path, "a").close()
    else:
        with kstore.LogStore(path.parent, mode="a", background=False) as store:
            store.log("events")


def shown(path: Path) -> object:
    """What the files of kstore's own say."""
    log = kstore.open(path)
    positions = {group: at.offset for group, at in log.cursors().items()}
    topics = None
    if path.name != "lone":
        found = kstore.LogStore(path.parent)
        topics = {topic: found.describe(topic).options for topic in found.topics}
    return (
        [record.value for record in log],
        positions,
        log.snapshot.truncations.since(0, "read_uncommitted"),
        topics,
    )


@pytest.mark.parametrize("model", ["strict", "ordered", "pages"])
def test_a_power_cut_while_it_is_converted(path: Path, ram: Path, model: Any) -> None:
    before = shown(path)
    root = ram / "earlier"
    with Recorder(root) as recorder:
        convert(path)
    count = 0
    for count, state in enumerate(crash_states(recorder.trace, models=[model], seed=1), 1):
        place = ram / str(count)
        place.mkdir()
        state.image.write_to(place)
        there = place / path.relative_to(root)
        assert shown(there) == before, state.text
        convert(there)
        assert (shown(there), older_in(there)) == (before, []), state.text
        shutil.rmtree(place)
    assert count > 5


def test_a_call_that_fails_while_it_is_converted(path: Path, ram: Path) -> None:
    before = shown(path)
    nth, done = 0, False
    while not done:
        nth += 1
        place = ram / str(nth)
        shutil.copytree(ram / "earlier", place)
        there = place / path.relative_to(ram / "earlier")
        try:
            with failing(nth):
                convert(there)
            done = True
        except OSError:
            assert shown(there) == before, nth
        convert(there)
        assert (shown(there), older_in(there)) == (before, []), nth
        shutil.rmtree(place)
    assert nth > 3


def test_a_cursor_and_a_writer_make_the_manifest_at_the_same_time(
    ram: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them creates it; the other one uses its id."""

    def beside(other: Callable[[], None]) -> None:
        """Run `other` once, after the next manifest is made and before it gets its name."""
        write = manifest.write_whole

        def late(path: str, data: bytes, **options: bool) -> None:
            monkeypatch.setattr(manifest, "write_whole", write)
            other()
            write(path, data, **options)

        monkeypatch.setattr(manifest, "write_whole", late)

    def commit(path: Path) -> None:
        with cursor_at_end(path) as jobs:
            jobs.commit(2)

    for name in ("writer", "cursor"):
        path = ram / f"{name}-0"
        with kstore.open(path, "a") as log:
            log.extend([b"v"] * 10)
            if name == "writer":
                beside(lambda path=path: commit(path))  # type: ignore[misc]
                log.truncate_to(5)
            else:
                beside(lambda log=log: log.truncate_to(5))  # type: ignore[misc]
                commit(path)
            assert {group: at.offset for group, at in log.cursors().items()} == {"g": 2}
        assert kstore.open(path).snapshot.truncations.offset == 5
        assert not list(path.glob("*.tmp"))
