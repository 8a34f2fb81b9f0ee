"""Run as `python -m tests.fuzz.directories SEED SECONDS`: whole directories with damage of every kind.

A directory is read and written, or an error says what is wrong with it. What opens for writing can be
appended to, closed, and is clean then.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import kstore
from tests.fuzz.driver import Case, drive
from tests.fuzz.mutations import changed
from tests.hostile.material import GOLDEN

MOST = 40_000  # bytes of a directory
_Act = Callable[[kstore.PartitionLog], object]
ACTS: tuple[_Act, ...] = (
    lambda log: [record.headers for record in log.records(on_error="skip")],
    lambda log: list(log.records(control=True)),
    lambda log: list(log.records(isolation="read_committed")),
    lambda log: [len(batch) for batch in log.scan(on_error="skip")],
    lambda log: [len(batch) for batch in log.scan(threads=2)],
    lambda log: [batch.records() for batch in log.batches()],
    lambda log: [log.get(offset) for offset in places(log)],
    lambda log: [log.find(timestamp=t) for t in (0, 1_711_530_458_631, 2**62, "max", "earliest", "latest")],
    lambda log: [bytes(log.read(offset)) for offset in places(log)],
    lambda log: [segment.read_headers() for segment in log.segments],
    lambda log: (str(log.recovery), log.recovery.findings, log.last_stable_offset(), log.producers()),
    lambda log: (log.topic_id(), log.leader_epochs, log.refresh(), repr(log)),
    lambda log: log.aborted_transactions(0, log.log_end_offset),
)


def places(log: kstore.PartitionLog) -> list[int]:
    """Some offsets of a log, its ends among them."""
    start, end = log.log_start_offset, log.log_end_offset
    return [start, end - 1, end, *range(start, end, max(1, (end - start) // 20))]


def originals() -> list[Path]:
    """Partitions that Kafka wrote, which are not large."""
    found = [path.parent for path in sorted(GOLDEN.glob("*/*/*.log"))] + [
        path.parent for path in sorted(GOLDEN.glob("broker/data/*/*.log"))
    ]
    sizes = {d: sum(p.stat().st_size for p in d.iterdir() if p.is_file()) for d in dict.fromkeys(found)}
    return [directory for directory, size in sizes.items() if size < MOST]


def damage(root: Path, case: Case, others: list[bytes]) -> str:
    """Changes some of the files; what was done, in words."""
    done = []
    for _ in range(case.chance.randint(1, 3)):
        path = case.chance.choice(sorted(p for p in root.rglob("*") if p.is_file()))
        kind = case.chance.randrange(12)
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.write_bytes(b"")
        elif kind == 2:
            path.rename(
                path.with_name(path.name + case.chance.choice((".swap", ".cleaned", ".deleted", ".x")))
            )
        elif kind == 3:
            target = case.chance.randrange(200)
            path.rename(path.with_name(f"{target:020}{path.suffix}"))
        elif kind == 4:
            path.write_bytes(path.read_bytes()[: case.chance.randrange(path.stat().st_size + 1)])
        elif kind == 5:
            path.write_bytes(path.read_bytes() + bytes(case.chance.randrange(200)))
        else:
            path.write_bytes(changed(path.read_bytes(), case.chance, case.chance.choice(others)))
        done.append(f"{path.name} {kind}")
        if not any(p.is_file() for p in root.rglob("*")):
            break
    return ", ".join(done)


def allowed(work: Callable[[], object]) -> object:
    """What it returns, or None where it ends with an error as it may."""
    try:
        return work()
    except (kstore.KstoreError, OSError):
        return None


def read(directory: Path, case: Case) -> None:
    for recover in (True, False):
        log = allowed(
            lambda recover=recover: kstore.open(directory, recover=recover, max_decompressed_bytes=1 << 22)
        )
        if isinstance(log, kstore.PartitionLog):
            for act in ACTS:
                allowed(lambda act=act, log=log: act(log))


def write(directory: Path, case: Case) -> None:
    log = allowed(
        lambda: kstore.open(directory, "a", segment_index_bytes=256, retention_ms=-1, file_delete_delay_ms=0)
    )
    if not isinstance(log, kstore.LogWriter):
        return
    try:
        for act in ACTS:
            allowed(lambda act=act: act(log))
        end = log.log_end_offset
        assert log.append(b"value", b"key") == end
        assert log.get(end).value == b"value"
        if case.chance.random() < 0.3:
            log.truncate_to(case.chance.randint(max(log.log_start_offset, end - 3), end))
        if case.chance.random() < 0.3:
            log.delete_records(case.chance.randint(log.log_start_offset, log.log_end_offset))
        log.retain()
        end = log.log_end_offset
    except (kstore.KstoreError, OSError):
        log.abandon()
        return
    log.close()
    with kstore.open(directory) as again:
        # Raft asks for no marker
        assert again.recovery.clean or directory.name.startswith("__cluster_metadata")
        assert again.log_end_offset == end


def try_one(case: Case) -> None:
    original = case.chance.choice(_ORIGINALS)
    root = case.scratch / "root"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(original, root / original.name)
    for path in original.parent.iterdir():  # checkpoints of the log directory
        if path.is_file() and path.stat().st_size < MOST:
            shutil.copy(path, root / path.name)
    case.keep(f"{original}: {damage(root, case, list(case.seeds))}".encode())
    if (root / original.name).is_dir():
        read(root / original.name, case)
        write(root / original.name, case)


def contents() -> Iterator[bytes]:
    for directory in _ORIGINALS:
        for path in sorted(directory.iterdir()):
            if path.is_file() and path.stat().st_size:
                yield path.read_bytes()


_ORIGINALS = originals()

if __name__ == "__main__":
    sys.exit(drive("directories", list(contents()), try_one, sys.argv[1:]))
