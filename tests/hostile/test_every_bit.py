"""A directory with all kinds of files, in which one bit is turned, or one file is cut short or lost: an error
or a warning that says where, or the same answers.

The formats have places without a checksum. What is believed there is counted by place, in
docs/recovery-and-durability.md too. At EFFORT=1 some bits are turned; once EFFORT is large enough for every
bit (60), the counts are compared.
"""

import json
import re
import shutil
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.checked_json import encode
from tests.helpers.effort import SEED, some, times
from tests.helpers.markers import end_transaction, transactional
from tests.hostile.material import turned

TIME = 1_700_000_000_000
PAGE = Path(__file__).parents[2] / "docs" / "recovery-and-durability.md"
OPTIONS: dict[str, Any] = {
    "internal_segment_bytes": 420,
    "segment_index_bytes": 256,
    "index_interval_bytes": 100,
    "message_timestamp_before_max_ms": 2**63 - 1,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log directory with one partition, closed cleanly."""
    ram = Path("/dev/shm")
    home = tmp_path_factory.mktemp("bits") if not ram.is_dir() else ram / f"kstore-bits-{uuid.uuid4()}"
    home.mkdir(exist_ok=True)
    (home / "meta.properties").write_text("version=1\nnode.id=1\n")
    topic = uuid.UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)
    log = kstore.open(home / "t-0", "a", leader_epoch=3, topic_id=topic, **OPTIONS)
    at = 0
    for part in range(3):
        for _ in range(4):
            log.append(b"value %d" % at, b"k%d" % at, TIME + at, {"h": b"v"})
            at += 1
        for kind in ("ABORT", "COMMIT"):
            record = (TIME + at, b"k%d" % at, b"value %d" % at, None)
            log.append_batches(transactional(record, producer=100 + at))
            log.append(b"between", b"k", TIME + at + 1)
            end_transaction(log, kind, TIME + at + 2, 100 + at)
            at += 3
        log.assign_leader_epoch(4 + part)
    log.delete_records(2)
    log.close()
    manifest = home / "t-0" / "kstore.json"
    content = json.loads(manifest.read_text())
    del content["crc32c"]
    manifest.write_bytes(encode(content | {"id": topic.hex}))  # a random id gives checksums of other lengths
    yield home
    shutil.rmtree(home)


def answers(partition: Path) -> dict[str, Any]:
    """All that a log answers."""
    with kstore.open(partition) as log:
        told: dict[str, Any] = {
            "bounds": (log.log_start_offset, log.log_end_offset),
            "records": [
                (r.offset, r.timestamp, r.key, r.value, r.headers) for r in log.records(control=True)
            ],
            "committed": [r.offset for r in log.records(isolation="read_committed")],
            "batches": [
                (b.base_offset, b.producer_id, b.producer_epoch, b.is_control) for b in log.batches()
            ],
            "epochs of batches": [b.leader_epoch for b in log.batches()],
            "rows": [len(rows) for rows in log.scan()],
        }
        start, end = told["bounds"]
        told["read committed"] = [r.offset for r in log.read(start, 1 << 20, "read_committed")]
        told["get"] = [log.get(offset).value for offset in range(start, end) if offset % 5 == 2]
        told["find"] = [log.find(timestamp=TIME + at) for at in range(0, 33, 4)]
        told["find"] = [found and (found.offset, found.timestamp) for found in told["find"]]
        told["stable"] = log.last_stable_offset()
        told["producers"] = [  # the time of a batch is not in a snapshot
            (p, s.producer_epoch, s.current_txn_first_offset, [b[:3] for b in s.batches])
            for p, s in sorted(log.producers().items())
        ]
        told["leader epochs"] = log.leader_epochs
        told["topic id"] = log.topic_id()
        told["findings"] = [(finding.kind, finding.file) for finding in log.recovery.findings]
    return told


def place(path: Path, bit: int, batches: list[tuple[int, int]]) -> str:
    """What is at this bit, as the table of the page calls it."""
    if path.suffix != ".log":
        return path.suffix if path.suffix and path.name[:1].isdigit() else path.name
    at = next(bit // 8 - position for position, size in batches if position <= bit // 8 < position + size)
    names = ((8, "base offset"), (12, "size"), (16, "leader epoch"), (17, "magic"), (21, "checksum"))
    return f".log, {next((name for end, name in names if at < end), 'what the checksum covers')} of a batch"


def outcome(partition: Path, right: dict[str, Any], path: Path) -> str:
    """ "same", "reported", or "believed" with what is answered otherwise."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = answers(partition)
        except kstore.KstoreError as e:
            assert str(e), "an error says what is wrong"
            return "reported"
    if any(issubclass(w.category, kstore.DataLossWarning) for w in caught):
        return "reported"
    if found == right:
        return "same"
    named = {Path(file).name for _, file in found["findings"]} | {
        Path(file).stem for _, file in found["findings"]
    }
    if found["findings"] != right["findings"] and (path.name in named or path.stem in named):
        return "reported"
    return "believed: " + ", ".join(sorted(key for key in right if found[key] != right[key]))


def bits(home: Path) -> list[tuple[Path, int, str]]:
    """Every bit of every file, and its place."""
    found = []
    for path in sorted(p for p in home.rglob("*") if p.is_file()):
        batches = []
        if path.suffix == ".log":
            batches = [(batch.position, batch.size) for batch in kstore.open(path).batches()]
        found += [(path, bit, place(path, bit, batches)) for bit in range(8 * path.stat().st_size)]
    return found


def believed_by_the_page() -> dict[str, tuple[int, int]]:
    """place -> (bits there, bits that are believed), from the table of the page."""
    rows = re.findall(r"^\| `?([^`|]+?)`? \| ([\d,]+) \| ([\d,]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: (int(there.replace(",", "")), int(wrong.replace(",", ""))) for name, there, wrong in rows}


@pytest.mark.timeout(times(300))
def test_every_bit(home: Path, tried: Callable[[int], None]) -> None:
    partition = home / "t-0"
    right = answers(partition)
    assert right["findings"] == []
    there: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    details: Counter[tuple[str, str]] = Counter()
    every = bits(home)
    chosen = some(every, 550, "bits")
    for path, bit, name in chosen:
        whole = path.read_bytes()
        path.write_bytes(turned(whole, bit))
        there[name] += 1
        how = outcome(partition, right, path)
        if how.startswith("believed"):
            wrong[name] += 1
            details[name, how] += 1
        path.write_bytes(whole)
    tried(len(chosen))
    page = believed_by_the_page()
    print(*(f"| `{name}` | {there[name]:,} | {wrong[name]:,} |" for name in sorted(there)), sep="\n")
    print(*(f"{count:6} {name}: {how}" for (name, how), count in sorted(details.items())), sep="\n")
    if len(chosen) == len(every):
        assert {name: (there[name], wrong[name]) for name in there} == page
    else:
        assert set(there) <= set(page)
        assert {name for name in wrong} <= {name for name, (_, count) in page.items() if count}, f"{SEED=}"


# What docs/recovery-and-durability.md says of files that have lost entries or are lost: they fit their log.
BELIEVED = {
    ".timeindex": {"find"},
    ".txnindex": {"committed", "read committed"},
    "leader-epoch-checkpoint": {"leader epochs"},
    "log-start-offset-checkpoint": {
        "bounds",
        "records",
        "committed",
        "read committed",
        "batches",
        "epochs of batches",
        "rows",
        "find",
    },
    "partition.metadata": {"topic id"},
    "recovery-point-offset-checkpoint": {"findings"},
}


def test_truncated_and_lost_files(home: Path) -> None:
    partition = home / "t-0"
    right = answers(partition)
    files = sorted(p for p in home.rglob("*") if p.is_file())
    sizes = [(path, size) for path in files for size in range(-1, path.stat().st_size)]  # -1: it is lost
    lost = [case for case in sizes if case[1] == -1]
    for path, size in lost + some(sizes, 250, "sizes"):
        whole = path.read_bytes()
        if size < 0:
            path.unlink()
        else:
            path.write_bytes(whole[:size])
        how, _, keys = outcome(partition, right, path).partition(": ")
        path.write_bytes(whole)
        if how == "believed":
            assert set(keys.split(", ")) <= BELIEVED.get(place(path, 0, [(0, 1)]), set()), (
                SEED,
                path.name,
                size,
            )
