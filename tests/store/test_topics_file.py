"""kstore.json: damaged, of several directories, and with a change that a process did not finish."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import UUID

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.testing import count_calls, failing
from tests.helpers.effort import SEED, some
from tests.helpers.murmur2 import partition_of
from tests.store.stores import opened, writer

TABLE = "kstore.json"


def a_and_b(root: Path) -> LogStore:
    """A store of two directories."""
    return opened(root / "a", root / "b", retention_ms=-1, file_delete_delay_ms=0)


def make(root: Path) -> None:
    """A store of two directories with the topic `old`, which has two partitions and a record in each."""
    with a_and_b(root) as store:
        store.create_topic("old", 2)
        for number in range(2):
            writer(store, "old", number).append(b"old")


# ---- damage ------------------------------------------------------------------------------------------------

T = {"partitions": 1, "config": {}}
ENTRIES: list[tuple[str, dict[str, object], dict[str, object] | None]] = [
    ("t", {"partitions": -1, "config": {}}, None),
    ("t", {"partitions": 2**40, "config": {}}, None),
    ("t", {"partitions": 2**31 - 1, "config": {}}, None),
    ("t", {"partitions": 1, "config": {"a": "b"}}, None),
    ("t", {"partitions": 1, "config": {"segment.bytes": 1}}, None),
    ("t", T | {"id": 1}, None),
    ("t", T | {"id": "1a"}, None),
    ("../t", T, None),
    ("t", T, {"topic": "../x", "delete": True, "make": {}}),
    ("t", T, {"topic": "x", "delete": False, "make": {"-1": "x"}}),
    ("t", T, {"topic": "x", "delete": False, "make": {"1": 1}}),
    ("t", T, {"topic": "x", "delete": 0, "make": {}}),
]
DAMAGED = ["", "{}", "[]", "1", '{"version": 2}', "\xff", "[" * 100_000] + [
    json.dumps({"version": 1, "number": 1, "change": change, "topics": {name: entry}})
    for name, entry, change in ENTRIES
]


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t")
    table = tmp_path / TABLE
    sound = table.read_text()
    for text in DAMAGED:
        table.write_text(text)
        with pytest.raises(kstore.CorruptCheckpointError, match=r"kstore\.json") as caught:
            opened(tmp_path)
        assert "move it away" in "".join(caught.value.__notes__), text
        with pytest.warns(kstore.DataLossWarning, match="partitions may be missing unnoticed"):
            reader = LogStore(tmp_path)
        with pytest.raises(kstore.CorruptCheckpointError):
            reader.describe("t")
        with pytest.raises(kstore.CorruptCheckpointError):
            kstore.open(tmp_path / "t-0", "a")
        assert reader.open("t").log_end_offset == 0
        assert list(reader.topics) == ["t"]
    table.unlink()
    table.symlink_to("nowhere")
    with pytest.raises(kstore.CorruptCheckpointError, match="leads nowhere"):
        opened(tmp_path)
    table.unlink()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with opened(tmp_path) as store:  # no failed opening has kept the lock
        assert store.topics == {"t": [0]}
    table.write_text(sound)
    with opened(tmp_path) as store:
        assert store.log("t").recovery.clean


def test_a_bit_is_turned(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", retention_ms=10)
    path = tmp_path / TABLE
    data, described = path.read_bytes(), LogStore(tmp_path).describe("t")
    bits = some(range(8 * len(data)), 100, "bits")
    refused = 0
    for bit in bits:
        path.write_bytes(data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :])
        try:
            with opened(tmp_path) as store:
                assert store.describe("t") == described, f"bit {bit}, SEED={SEED}"
        except kstore.CorruptCheckpointError:
            refused += 1
    assert refused > 0.8 * len(bits)


def test_the_id_of_a_topic(tmp_path: Path) -> None:
    """It stays as long as the topic is there; another topic of the name has another."""

    with opened(tmp_path) as store:

        def id_of(topic: str) -> UUID | None:
            return store.describe(topic).id

        store.create_topic("t")
        store.create_topic("u")
        first = id_of("t")
        assert first != id_of("u")
        store.add_partitions("t", 3)
        store.alter_topic("t", retention_ms=1)
        assert id_of("t") == first
        store.delete_topic("t")
        store.create_topic("t")
        assert id_of("t") != first


def test_a_stray_partition_changes_nothing(tmp_path: Path) -> None:
    """The table says how many partitions a topic has: keys stay, and a stray one changes nothing."""
    with opened(tmp_path) as store:
        store.create_topic("t", 3)
    (tmp_path / "t-2147483646").mkdir()
    for _ in range(2):
        with opened(tmp_path) as store:
            for key in (b"%d" % number for number in range(20)):
                assert store.append("t", b"v", key)[0] == partition_of(key, 3)
            store.alter_topic("t", retention_ms=1)
            assert store.health().ok
            assert store.log("t", 2147483646).log_end_offset == 0
    assert LogStore(tmp_path).describe("t").options == {"retention_ms": 1}


# ---- several directories -----------------------------------------------------------------------------------


def test_one_of_two_tables_is_damaged(tmp_path: Path) -> None:
    make(tmp_path)
    with a_and_b(tmp_path) as store:
        store.alter_topic("old", segment_bytes=1 << 22)
    (tmp_path / "a" / TABLE).write_bytes(b"\0" * 100)
    with pytest.warns(kstore.DataLossWarning, match="newest sound copy"):
        store = a_and_b(tmp_path)
    assert store.describe("old").options == {"segment_bytes": 1 << 22}
    store.close()
    a_and_b(tmp_path).close()


def test_directories_of_two_stores(tmp_path: Path) -> None:
    for name, topic in (("a", "one"), ("b", "two"), ("c", "one")):
        with opened(tmp_path / name) as store:
            store.create_topic(topic, segment_bytes=1 << 22)
    with a_and_b(tmp_path) as store:
        for topic in ("one", "two"):
            assert store.describe(topic).options == {"segment_bytes": 1 << 22}
        store.delete_topic("two")
    with a_and_b(tmp_path) as store:
        assert store.topics == {"one": [0]}
    with pytest.raises(kstore.KstoreError, match="remove one of them"):
        opened(tmp_path / "a", tmp_path / "c")


def test_partitions_that_are_in_none_of_the_directories(tmp_path: Path) -> None:
    """One was not mounted, say, and is empty: nothing that needs all partitions passes over those."""
    make(tmp_path)
    (tmp_path / "b").rename(tmp_path / "away")
    (here,) = LogStore(tmp_path / "a").topics["old"]
    key = next(key for key in (b"%d" % i for i in range(99)) if partition_of(key, 2) == here)
    for store in (LogStore(tmp_path / "a"), a_and_b(tmp_path)):
        with store:
            assert store.health().missing == [TopicPartition("old", 1 - here)]
            assert not store.health().ok
            assert store.metrics().failures == 1
            with pytest.raises(kstore.LogFailedError, match="are in none of the directories"):
                store.scan("old")
            assert len(list(store.scan("old", partitions=[here]))) == 1
    with a_and_b(tmp_path) as store:
        for refused in (store.delete_topic, lambda topic: store.add_partitions(topic, 3)):
            with pytest.raises(kstore.LogFailedError, match="are in none of the directories"):
                refused("old")
        assert store.health().unfinished == ""
        assert store.append("old", b"v", key)[0] == here
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "away").rename(tmp_path / "b")
    with a_and_b(tmp_path) as store:
        assert store.health().ok
        assert store.topics == {"old": [0, 1]}


# ---- a change that was not finished ------------------------------------------------------------------------


def write_table(directory: Path, change: dict[str, object] | None, **topics: int) -> None:
    """The table of a store's directory, as a process has left it."""
    path = directory / TABLE
    table = json.loads(path.read_text())
    table.pop("crc32c", None)
    table["change"] = change
    table["number"] += 1
    if change and change["delete"]:
        del table["topics"][change["topic"]]
    for topic, partitions in topics.items():
        table["topics"][topic] = {"partitions": partitions, "config": {}}
    path.write_text(json.dumps(table, indent=1) + "\n")


def leave_unfinished(root: Path, topic: str, numbers: Iterable[int], total: int) -> None:
    """The process died when partitions were decided on, and none of them was made."""
    make(root)
    made = {str(number): str(root / "ab"[number % 2]) for number in numbers}
    write_table(root / "a", {"topic": topic, "delete": False, "make": made}, **{topic: total})


def test_a_deletion_waits_for_a_directory_that_failed(tmp_path: Path) -> None:
    """Nothing is written to what the next opening deletes."""
    make(tmp_path)
    write_table(tmp_path / "a", {"topic": "old", "delete": True, "make": {}})
    for place in (tmp_path / "a").glob("old-*"):  # the other directory knows nothing of the deletion
        with pytest.raises(kstore.LogNotFoundError, match="is being deleted"):
            kstore.open(place, "a")
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").touch()
    with a_and_b(tmp_path) as store:
        assert "deletion" in store.health().unfinished
        assert store.topics == {}
        with pytest.raises(kstore.LogFailedError, match="out of use until"):
            store.append("old", b"v", b"k")
        with pytest.raises(kstore.LogFailedError, match="out of use until"):
            store.log("old")
        assert LogStore(tmp_path / "a").topics == {}
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    with a_and_b(tmp_path) as store:
        assert store.health().ok
        assert store.topics == {}
        assert store.create_topic("old", 2).partitions.keys() == {0, 1}
        assert store.append("old", b"v", b"k")[1] == 0


def test_a_deletion_waits_for_a_directory_that_is_not_named(tmp_path: Path) -> None:
    """Half of the topic would come back when the other directory is named again."""
    make(tmp_path / "tried")
    with a_and_b(tmp_path / "tried") as store:
        calls = count_calls(lambda: store.delete_topic("old"))
    for nth in range(1, calls + 1):  # until a deletion is decided, and not carried out
        root = tmp_path / str(nth)
        make(root)
        with a_and_b(root) as store:
            with failing(nth, this_thread=True), pytest.raises(OSError, match="Input/output"):
                store.delete_topic("old")
            if unfinished := store.health().unfinished:
                break
    assert "deletion" in unfinished
    with opened(root / "a") as store:
        assert "b is not in use" in store.health().unfinished
    with a_and_b(root) as store:
        assert store.health().ok
        assert "old" not in store.topics


def test_an_unfinished_creation_is_not_read(tmp_path: Path) -> None:
    make(tmp_path)
    for name in ("new-0", "old-2"):
        (tmp_path / "a" / name).mkdir()
    for directory in (tmp_path / "a", tmp_path / "b"):
        made = {"0": str(tmp_path / "a"), "1": str(tmp_path / "b")}
        write_table(directory, {"topic": "new", "delete": False, "make": made}, new=2)
    found = LogStore(tmp_path / "a", tmp_path / "b")
    assert "new" not in found.topics
    assert found.health().unfinished == ""
    for directory in (tmp_path / "a", tmp_path / "b"):
        change = {"topic": "old", "delete": False, "make": {"2": str(tmp_path / "a")}}
        write_table(directory, change, old=3, new=0)
    found = LogStore(tmp_path / "a", tmp_path / "b")
    assert found.topics["old"] == [0, 1]
    assert len(list(found.scan("old"))) == 2


def move(root: Path) -> list[Path]:
    root.rename(root.with_name("y"))
    return [root.with_name("y") / name for name in "ab"]


def exchange(root: Path) -> list[Path]:
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (root / old).rename(root / new)
    return [root / name for name in "ab"]


def link(root: Path) -> list[Path]:
    paths = [root.with_name(f"link-{name}") for name in "ab"]
    for path, name in zip(paths, "ab", strict=True):
        path.symlink_to(root / name)
    return paths


def copy(root: Path) -> list[Path]:
    shutil.copytree(root, root.with_name("y"))
    return [root.with_name("y") / name for name in "ab"]


@pytest.mark.parametrize("how", [move, exchange, link, copy])
@pytest.mark.parametrize(
    ("topic", "numbers", "made"),
    [("new", (0, 1, 2), ()), ("new", (0, 1, 2), (0, 1, 2)), ("old", (2, 3), (3,))],
)
def test_the_directories_have_other_paths(
    tmp_path: Path,
    topic: str,
    numbers: tuple[int, ...],
    made: tuple[int, ...],
    how: Callable[[Path], list[Path]],
) -> None:
    """The change is finished where they are. What the process made before it died is not made twice."""
    root = tmp_path / "x"
    leave_unfinished(root, topic, numbers, numbers[-1] + 1)
    for number in made:
        (root / "ab"[number % 2] / f"{topic}-{number}").mkdir()
    paths = how(root)
    for _ in range(2):
        with opened(*paths) as store:
            assert store.health().ok
            assert store.topics[topic] == list(range(numbers[-1] + 1))
            assert all(store.log(topic, number).log_end_offset == 0 for number in numbers)
            assert len(list(store.scan("old"))) == 2
    found = [list(path.glob(f"{topic}-{number}")) for number in numbers for path in paths]
    assert sum(map(len, found)) == len(numbers)
    if how is copy:
        assert len(list(root.glob(f"*/{topic}-*"))) == len(made) + 2 * (topic == "old")


def test_the_directories_were_renamed(tmp_path: Path) -> None:
    leave_unfinished(tmp_path / "x", "new", (0, 1), 2)
    (tmp_path / "x" / "a").rename(tmp_path / "c")
    (tmp_path / "x" / "b").rename(tmp_path / "d")
    with opened(tmp_path / "c", tmp_path / "d") as store:
        assert "are not in use. Name all directories" in store.health().unfinished
        with pytest.raises(kstore.LogFailedError, match="by a link at its old path"):
            store.create_topic("another")
        with pytest.raises(kstore.LogFailedError, match="out of use until"):
            store.append("new", b"v", b"k")
        assert not list(tmp_path.glob("*/new-*"))
    (tmp_path / "x" / "a").symlink_to(tmp_path / "c")
    (tmp_path / "x" / "b").symlink_to(tmp_path / "d")
    with a_and_b(tmp_path / "x") as store:
        assert store.health().ok
        assert store.topics["new"] == [0, 1]
