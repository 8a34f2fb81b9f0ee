"""Positions of a real broker's groups are taken over, and given back in its own records."""

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.faults import fail_call
from kstore.log.cursors.offset_commits import Commit, encode_key, encode_value
from kstore.log.files.layout import TopicPartition
from kstore.store.consumer_offsets import commit_of, committed_in, partition_of
from tests.helpers.forge import message, wrapper
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import Program, run_command

BROKER = Path(__file__).parents[1] / "golden" / "data" / "broker"
COMMIT = re.compile(
    r'key: \{"type":"1","data":(\{"group":"[^"]*","topic":"[^"]*","partition":\d+\})\} payload: (.*)$',
    re.MULTILINE,
)
READERS = {("codecs", 0): (52, 0, ""), ("events", 0): (48, 0, ""), ("events", 1): (16, 0, "")}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(BROKER / "data", tmp_path / "data")
    return tmp_path / "data"


def last_commits(text: str) -> dict[str, str]:
    """The last value of each key of a commit, as a dump prints them."""
    found = dict(COMMIT.findall(text))
    return {key: value for key, value in found.items() if value != "<DELETE>"}


def dump(*files: Path) -> str:
    return run_command("dump", "--offsets-decoder", *files).stdout


def run(*args: object) -> "subprocess.CompletedProcess[str]":
    return run_command("cursors", *args)


def shown(store: kstore.LogStore) -> dict[str, dict[tuple[str, int], tuple[int, int, str]]]:
    return {
        group: {tuple(tp): p[:3] for tp, p in theirs.items()} for group, theirs in store.cursors().items()
    }


def golden_dump() -> str:
    dumps = (BROKER / "expected" / "__consumer_offsets-0").glob("dump-*.log.txt.gz")
    return "".join(gzip.decompress(dump.read_bytes()).decode() for dump in dumps)


def test_there_and_back(data: Path, tmp_path: Path) -> None:
    """What comes out is what the broker's own tool has printed of what went in, word for word."""
    store = kstore.LogStore(data)
    assert store.cursors() == {}
    preview = store.import_cursors(data, dry_run=True)
    assert store.cursors() == {}
    assert store.import_cursors(data) == preview
    assert preview.left_out == {}
    assert shown(store) == {"readers": READERS}
    with store.cursor("readers", ["events"]) as cursor:
        assert cursor.positions() == {("events", 0): 48, ("events", 1): 16}

    target = tmp_path / "back"
    given = store.export_cursors(target, partitions=2)
    assert given.positions == preview.positions
    wanted = last_commits(golden_dump())
    assert len(wanted) == 3
    file = target / f"__consumer_offsets-{partition_of('readers', 2)}" / "00000000000000000000.log"
    assert last_commits(dump(file)) == wanted
    again = store.export_cursors(target)
    assert again.positions == {}
    assert set(again.left_out.values()) == {"it is there already"}

    other = tmp_path / "other"
    shutil.copytree(BROKER / "data", other)
    with kstore.LogStore(other, mode="a", retention_ms=-1) as writing:
        assert writing.import_cursors(target, ["readers"]).positions == preview.positions
        assert shown(writing) == {"readers": READERS}
        assert shown(writing) == shown(kstore.LogStore(other))


def test_what_is_committed_here_goes_to_the_broker(data: Path) -> None:
    """Into the partition in which the broker keeps the group, beside what is there."""
    store = kstore.LogStore(data)
    store.import_cursors(data)
    with store.cursor("readers", ["events"]) as cursor:
        for record in cursor:
            last = record
        cursor.commit(last, metadata="from here")
    assert run(data, "--export", data, "--dry-run").stdout.count("readers") == 1
    assert "by hand" not in run(data, "--export", data).stdout
    found = committed_in(data)["readers"][last.topic, last.partition]  # type: ignore[index]
    assert found[:3] == (last.offset + 1, 0, "from here")
    # A week after the first record of the first segment, another one is begun.
    text = dump(*sorted((data / "__consumer_offsets-0").glob("*.log")))
    before = last_commits(golden_dump())
    after = last_commits(text)
    changed = [key for key in before if after[key] != before[key]]
    assert len(changed) == 1
    topic_id = re.search('"topicId":"[^"]*"', before[changed[0]])
    assert topic_id is not None
    assert topic_id.group() in after[changed[0]]
    assert kstore.open(data / "__consumer_offsets-0").recovery.findings == []


def test_what_is_left_out(tmp_path: Path) -> None:
    source = kstore.LogStore(tmp_path / "source", mode="a")
    with source:
        source.create_topic("t", 2)
        for number in range(2):
            source.log("t", number).append(b"v")
    with kstore.LogStore(tmp_path / "source").cursor("g", ["t"]) as cursor:
        list(cursor)
        cursor.commit()
    kstore.LogStore(tmp_path / "source").export_cursors(tmp_path / "broker", partitions=1)
    with kstore.open(tmp_path / "broker/__consumer_offsets-0", "a") as log:
        key = next(iter(log)).key
        assert key is not None
        value = next(iter(log)).value
        log.append(value, key=key.replace(b"\0\1g", b"\0\1/"))
        log.append(value, key=b"\0\2\0\1g")  # the group itself
        log.append(b"", key=b"\0\x63")  # unknown
    with kstore.LogStore(tmp_path / "here", mode="a") as store:
        store.create_topic("t", 1)
        with pytest.raises(kstore.LogNotFoundError, match="__consumer_offsets"):
            store.import_cursors(tmp_path / "here")
        done = store.import_cursors(tmp_path / "broker/__consumer_offsets-0")
        assert {group: list(found) for group, found in done.positions.items()} == {"g": [("t", 0)]}
        assert done.left_out == {
            ("/", "t", 0): "the name of the group cannot be that of a file",
            ("g", "t", 1): "no such partition here",
        }
        with store.cursor("g", ["t"]), pytest.raises(kstore.CursorLockedError):
            store.import_cursors(tmp_path / "broker")
        for wrong in ("g", [1], 1):
            with pytest.raises(TypeError, match="groups"):
                store.import_cursors(tmp_path / "broker", wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="partitions"):
            store.export_cursors(tmp_path / "broker", partitions=0)
        before = committed_in(tmp_path / "broker")
        with kstore.LogStore(tmp_path / "broker", mode="a"):
            done_by = run(tmp_path / "here", "--export", tmp_path / "broker")
        assert done_by.returncode != 0 or "left out, it is there already" in done_by.stderr
        assert committed_in(tmp_path / "broker") == before
    result = run(tmp_path / "here", "--import", tmp_path / "broker", "--group", "g")
    assert result.returncode == 0
    assert "t-1 of group g: left out, no such partition here" in result.stderr


def test_a_record_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    """Of a version that is not known yet, cut off, or with a key that says nothing; one that was replaced is
    no matter."""
    future = b"\0\5" + bytes(30)
    with kstore.open(tmp_path / "broker/__consumer_offsets-0", "a") as log:
        for group in ("good", "future", "cut", "replaced"):
            log.append(value_of(2), key=key_of(group))
        log.append(future, key=key_of("future"))
        log.append(value_of(3)[:9], key=key_of("cut"))
        log.append(future, key=key_of("replaced"))
        log.append(value_of(20), key=key_of("replaced"))
        for key in (b"", b"\0", b"\0\1\0\5g"):
            log.append(b"x", key=key)
    with kstore.LogStore(tmp_path / "here", mode="a") as store:
        store.create_topic("t", 1)
        store.extend("t", [b"v"] * 10)
        done = store.import_cursors(tmp_path / "broker")
        assert {group: theirs["t", 0].offset for group, theirs in done.positions.items()} == {  # type: ignore[index]
            "good": 2,
            "replaced": 20,
        }
        assert {group: "cannot be read" in reason for (group, *_), reason in done.left_out.items()} == {
            "cut": True,
            "future": True,
        }
        assert "version 5" in done.left_out["future", "t", 0]
        assert len(done.unreadable) == 3
        assert all("__consumer_offsets-0" in text for text in done.unreadable)
        assert store.import_cursors(tmp_path / "broker", ["good"]).left_out == {}
        # what is beyond the end shows it
        assert [store.lag(group) for group in ("good", "replaced")] == [{("t", 0): 8}, {("t", 0): -10}]
    result = run(tmp_path / "here", "--import", tmp_path / "broker")
    assert result.returncode == 0
    assert result.stderr.count("cannot be read") == 2
    assert result.stderr.count("names no group") == 3
    assert re.search(r"replaced .* -10 ", run(tmp_path / "here").stdout)
    # nor does such a record keep positions from being given back
    given = kstore.LogStore(tmp_path / "here").export_cursors(tmp_path / "broker")
    assert {*given.positions, *(group for group, *_ in given.left_out)} == {"good", "replaced"}


def test_the_positions_that_only_a_broker_has_are_pointed_to(data: Path) -> None:
    result = run(data)
    assert (result.returncode, result.stdout.count("\n")) == (0, 1)
    assert result.stderr.count("\n") == 1
    assert (
        f"in the topic __consumer_offsets: kstore cursors {data} --import {data} --dry-run" in result.stderr
    )
    preview = run(data, "--import", data, "--dry-run", "--json")
    shown = [json.loads(line) for line in preview.stdout.splitlines()]
    ends = {
        ("codecs", 0): kstore.open(data / "codecs-0").log_end_offset,
        ("events", 0): kstore.open(data / "events-0").log_end_offset,
        ("events", 1): kstore.open(data / "events-1").log_end_offset,
    }
    assert {
        (each["topic"], each["partition"]): (each["position"], each["log_end_offset"], each["lag"])
        for each in shown
        if each["group"] == "readers"
    } == {tp: (READERS[tp][0], end, end - READERS[tp][0]) for tp, end in ends.items()}
    assert run(data, "--import", data).stdout.split()[:6] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "POSITION",
        "END",
        "LAG",
    ]
    assert run(data).stderr == ""


def test_a_running_broker_is_left_alone(data: Path, tmp_path: Path) -> None:
    store = kstore.LogStore(data)
    store.import_cursors(data)
    store.export_cursors(tmp_path / "broker")
    with store.cursor("readers", ["events"], start="earliest") as cursor:
        cursor.seek("earliest")
        cursor.commit()
    code = (
        "import kstore, sys; s = kstore.LogStore(sys.argv[1], mode='a'); print('open', flush=True); "
        "sys.stdin.read(); s.close()"
    )
    with Program(code, tmp_path / "broker"), pytest.raises(kstore.LogLockedError):
        store.export_cursors(tmp_path / "broker")


def committed_by(path: Path, group: str, offset: int) -> kstore.LogStore:
    """A store with one topic, of which the group has committed an offset."""
    with kstore.LogStore(path, mode="a", background=False) as store:
        if "t" not in store.topics:
            store.create_topic("t")
            store.extend("t", [b"v"] * 10)
    store = kstore.LogStore(path)
    with store.open("t", 0).cursor(group) as cursor:
        cursor.seek(offset)
        cursor.commit()
    return store


def offsets_in(target: Path, group: str) -> dict[int, int]:
    """What a group has in each partition of __consumer_offsets."""
    parts = {int(path.name.rpartition("-")[2]): path for path in target.glob("__consumer_offsets-*")}
    found = {
        number: committed_in(path).get(group) for number, path in parts.items() if any(path.glob("*.log"))
    }
    return {number: theirs["t", 0].offset for number, theirs in found.items() if theirs}  # type: ignore[index]


def test_each_export_finds_the_partition_of_the_group(tmp_path: Path) -> None:
    """The first one makes all partitions, so the second one counts as many. "g9" is kept in partition 0 of
    50."""
    target = tmp_path / "broker"
    places = {"mailer": 12, "billing": 9, "a": 47, "g9": 0}
    for group, number in places.items():
        assert partition_of(group, 50) == number
        for offset in (2, 9):
            store = committed_by(tmp_path / "data", group, offset)
            store.export_cursors(target, [group])
            assert offsets_in(target, group) == {number: offset}
            assert len(list(target.glob("__consumer_offsets-*"))) == 50
    found = store.import_cursors(target, dry_run=True).positions
    assert {group: theirs["t", 0].offset for group, theirs in found.items()} == dict.fromkeys(
        sorted(places), 9
    )  # type: ignore[index]


def test_an_export_goes_where_the_partitions_are(tmp_path: Path) -> None:
    """In another log directory of the same store; the partition of "mailer" is 12, and one of another store
    is none of ours."""
    here, other, foreign = tmp_path / "data", tmp_path / "other", tmp_path / "foreign"
    for directory in (other, foreign):
        kstore.open(directory / "__consumer_offsets-12", "a").close()
    committed_by(here, "mailer", 2)
    store = kstore.LogStore(here, other)
    store.export_cursors(here, partitions=50)
    assert offsets_in(other, "mailer") == {12: 2}
    assert offsets_in(here, "mailer") == {}
    done = run(here, "--also", other, "--export", other, "--offsets-partitions", 50)
    assert "left out, it is there already" in done.stderr
    store.export_cursors(foreign, partitions=50)
    assert offsets_in(foreign, "mailer") == {12: 2}


@pytest.mark.parametrize(
    ("version", "made_by_broker", "refusal"),
    [
        ("1", (), "__consumer_offsets-12 is not in"),
        ("0", (), "__consumer_offsets-12 is not in"),
        ("1", (11,), "__consumer_offsets-12 is not in"),
        ("1", (12,), ""),
    ],
)
def test_no_partition_is_made_for_a_broker(
    tmp_path: Path, version: str, made_by_broker: tuple[int, ...], refusal: str
) -> None:
    """It would set it aside: whether the topic is missing, or the partition only."""
    target = tmp_path / "broker"
    target.mkdir()
    (target / "meta.properties").write_text(f"version={version}\nnode.id=1\n")
    for number in made_by_broker:
        partition = target / f"__consumer_offsets-{number}"
        kstore.open(partition, "a").close()
        shutil.copy(BROKER / "data" / "__consumer_offsets-0" / "partition.metadata", partition)
    before = sorted(target.rglob("*"))
    store = committed_by(tmp_path / "data", "mailer", 2)
    if not refusal:
        store.export_cursors(target, partitions=50)
        assert offsets_in(target, "mailer") == {12: 2}
        (target / "__consumer_offsets-12/partition.metadata").unlink()
        before, refusal = sorted(target.rglob("*")), "no partition.metadata"
        store = committed_by(tmp_path / "data", "mailer", 3)
    for dry_run in (True, False):
        with pytest.raises(ValueError, match=refusal):
            store.export_cursors(target, partitions=50, dry_run=dry_run)
    assert sorted(target.rglob("*")) == before


@pytest.mark.parametrize("there", [[1], [0, 49]])
def test_the_number_of_partitions_is_not_guessed(tmp_path: Path, there: list[int]) -> None:
    """A broker of a cluster has only some of them, and so has one of a broker's directories."""
    target = tmp_path / "broker"
    for number in there:
        kstore.open(target / f"__consumer_offsets-{number}", "a").close()
    before = sorted(target.rglob("*"))
    store = committed_by(tmp_path / "data", "mailer", 2)
    for dry_run in (True, False):
        with pytest.raises(ValueError, match="give `partitions`"):
            store.export_cursors(target, dry_run=dry_run)
    with pytest.raises(ValueError, match=f"at least {there[-1] + 1}"):
        store.export_cursors(target, partitions=there[-1])
    assert sorted(target.rglob("*")) == before
    result = run(tmp_path / "data", "--export", target)
    assert result.returncode != 0
    assert "--offsets-partitions" in result.stderr
    assert run(tmp_path / "data", "--export", target, "--offsets-partitions", 50).returncode == 0
    assert offsets_in(target, "mailer") == {12: 2}
    with pytest.raises(ValueError, match="one partition of __consumer_offsets"):
        store.export_cursors(target / "__consumer_offsets-12", partitions=50)


def test_an_export_that_was_told_the_number_does_not_mislead_the_next(tmp_path: Path) -> None:
    """With partition 0 alone, the next one would take it for all there are."""
    group = next(name for name in map(str, range(1000)) if partition_of(name, 50) == 0)
    store = committed_by(tmp_path / "data", group, 2)
    store.export_cursors(tmp_path / "broker", partitions=50)
    committed_by(tmp_path / "data", "mailer", 2)
    with pytest.raises(ValueError, match="give `partitions`"):
        store.export_cursors(tmp_path / "broker")
    store.export_cursors(tmp_path / "broker", partitions=50)
    assert offsets_in(tmp_path / "broker", "mailer") == {12: 2}


def test_an_export_that_failed_does_not_mislead_the_next(tmp_path: Path) -> None:
    """Whichever call fails, the next one finds the partition of the group, or says that it needs the
    number."""
    store = committed_by(tmp_path / "data", "mailer", 2)
    done = nth = 0
    while not done:
        nth += 97
        target = tmp_path / str(nth)
        fail_call(nth, own=True)
        try:
            store.export_cursors(target)
            done = nth
        except OSError:
            pass
        finally:
            fail_call(0)
        if len(list(target.glob("__consumer_offsets-*"))) in (0, 50):
            store.export_cursors(target)
        else:
            with pytest.raises(ValueError, match="give `partitions`"):
                store.export_cursors(target)
            store.export_cursors(target, partitions=50)
        assert offsets_in(target, "mailer") == {12: 2}
        assert list(committed_in(target)) == ["mailer"]
    assert done > 97


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # -2^31, of which the absolute value is no int
        ("billing", 109829509),
        ("mailer", 1081573212),
        ("statistics", 94588637),
        ("readers", 0),
    ],
)
def test_the_partition_of_a_group(group: str, code: int) -> None:
    """Kafka's Utils.abs("…".hashCode()); the broker of the golden data had two partitions."""
    assert partition_of(group, 2) == code % 2
    if group != "readers":
        assert partition_of(group, 50) == code % 50
        assert partition_of(group, 2**31 - 1) == code


def record(key: bytes, value: bytes | None) -> kstore.Record:
    return next(iter(kstore.RecordBatch(kstore.encode_batch([(0, key, value, None)])).records()))


def test_all_versions_of_a_commit() -> None:
    key = b"\0\1\0\1g\0\1t\0\0\0\7"
    tail = b"\0\0\0\0\0\0\0\5"
    versions = {
        0: b"\0\0" + tail + b"\0\2hi" + tail,
        1: b"\0\1" + tail + b"\0\2hi" + tail + tail,
        2: b"\0\2" + tail + b"\0\2hi" + tail,
        3: b"\0\3" + tail + b"\0\0\0\4" + b"\0\2hi" + tail,
        4: b"\0\4" + tail + b"\0\0\0\4" + b"\3hi" + tail + b"\0",
    }
    for version, value in versions.items():
        found = commit_of(record(key, value))
        assert found == ("g", ("t", 7), (5, 4 if version >= 3 else -1, "hi", 5))
        for end in range(len(value) - (10 if version == 1 else 2 if version == 4 else 1)):
            with pytest.raises(kstore.CorruptRecordError):
                commit_of(record(key, value[:end]))
    assert commit_of(record(key, None)) == ("g", ("t", 7), None)
    assert commit_of(record(b"\0\2\0\1g", b"")) is None
    for wrong in (b"", b"\0", b"\0\1\0\5g", b"\0\1\xff\xffg"):
        with pytest.raises(kstore.CorruptRecordError):
            commit_of(record(wrong, b""))
    with pytest.raises(kstore.CorruptRecordError):
        commit_of(record(key, b"\0\5" + tail))


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 4096, 16382])
def test_what_is_written_is_read(size: int) -> None:
    """Around the sizes at which a length takes one byte more, with a topic id and without."""
    key = b"\0\1\0\1g\0\1t\0\0\0\7"
    position = kstore.OffsetAndMetadata(2**40, -1, "x" * size, 1_700_000_000_000)
    for topic_id in (b"", b"0123456789abcdef"):
        value = encode_value(Commit(position, topic_id))
        assert commit_of(record(key, value)) == ("g", ("t", 7), position)
        assert value.endswith(topic_id)
    with pytest.raises(ValueError, match="16383"):
        encode_value(Commit(position._replace(metadata="x" * 16383), b""))
    with pytest.raises(ValueError, match="id"):
        encode_value(Commit(position, b"short"))


def key_of(group: str, partition: int = 0) -> bytes:
    return encode_key(group, TopicPartition("t", partition))


def value_of(offset: int) -> bytes:
    return encode_value(Commit(kstore.OffsetAndMetadata(offset, -1, "", 1), b""))


class Coordinator:
    """Writes a partition of __consumer_offsets as a broker does."""

    def __init__(self, log: kstore.LogWriter) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def commit(self, group: str, offset: int | None, producer: int = -1) -> None:
        pair = (1, key_of(group), None if offset is None else value_of(offset), None)
        if producer < 0:
            self.log.append(pair[2], key=pair[1], timestamp=1)
            return
        sequence = self.sequences[producer] = self.sequences.get(producer, -1) + 1
        batch = transactional(pair, producer=producer, sequence=sequence)
        self.log.append_batches(batch, origin="coordinator")

    def end(self, kind: str, producer: int) -> None:
        end_transaction(self.log, kind, 1, producer)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with kstore.open(tmp_path / "broker/__consumer_offsets-0", "a", producer_id_expiration_ms=2**62) as log:
        yield Coordinator(log)


def all_offsets_in(directory: Path) -> dict[str, int]:
    return {
        group: theirs["t", 0].offset  # type: ignore[index]
        for group, theirs in committed_in(directory).items()
    }


def test_transactions(tmp_path: Path, coordinator: Coordinator) -> None:
    """Each counts at its end, one that is open not yet; other groups' commits behind it count all the
    same."""
    directory = tmp_path / "broker"
    coordinator.commit("plain", 1)
    coordinator.commit("open", 1)
    coordinator.commit("open", 2, producer=1)
    coordinator.commit("plain", 3)
    coordinator.commit("aborted", 1)
    coordinator.commit("aborted", 9, producer=2)
    coordinator.commit("later", 5, producer=3)
    coordinator.commit("later", 6)  # it comes later, though the transaction ends later still
    coordinator.commit("removed", 5, producer=3)
    coordinator.commit("removed", None)
    coordinator.commit("new", 7, producer=3)
    assert all_offsets_in(directory) == {"plain": 3, "open": 1, "aborted": 1, "later": 6}
    coordinator.end("ABORT", 2)
    coordinator.end("COMMIT", 3)
    assert all_offsets_in(directory) == {"plain": 3, "open": 1, "aborted": 1, "later": 6, "new": 7}
    coordinator.commit("plain", 4, producer=2)
    coordinator.end("COMMIT", 2)
    coordinator.end("COMMIT", 1)
    assert all_offsets_in(directory) == {"plain": 4, "open": 2, "aborted": 1, "later": 6, "new": 7}
    with kstore.LogStore(tmp_path / "here", mode="a", background=False) as store:
        store.create_topic("t", 1)
        store.import_cursors(directory)
        assert {g: p["t", 0].offset for g, p in store.cursors().items()} == all_offsets_in(directory)  # type: ignore[index]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_messages_of_old_formats(tmp_path: Path, magic: int, packed: bool) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(key_of("g", n), value_of(n + 5)) for n in range(3)]
    pairs += [(key_of("g", 1), None), (b"\0\2\0\1g", b"")]
    messages = [message(o, value, key, magic=magic, timestamp=1) for o, (key, value) in enumerate(pairs)]
    path = tmp_path / "__consumer_offsets-3"
    path.mkdir()
    data = wrapper(4, messages, magic=magic, timestamp=1) if packed else b"".join(messages)
    (path / "00000000000000000000.log").write_bytes(data)
    found = committed_in(tmp_path)
    assert {tuple(tp): position.offset for tp, position in found["g"].items()} == {("t", 0): 5, ("t", 2): 7}
