"""Opening for writing after an unclean stop: the last segment is read, checked, and its indexes are made
anew."""

import os
import shutil
from pathlib import Path

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer


def bench_recover(race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer) -> None:
    """A cached segment of 16 KiB batches without its indexes, opened; closing is not counted. kstore:
    open(path, "a"). C: pread of 1 MiB and the CRC of each batch (C folded: by carry-less multiplication, as
    kstore has it), no indexes. Kafka: LogSegment.recover alone (Kafka log: UnifiedLog.create). krabka:
    Segment::open_active, which decodes every record."""
    path = data.work / "kstore" / "log-0"
    [log_file] = data.batched.path.glob("*.log")
    opened: list[kstore.LogWriter] = []

    def prepare(*args: int) -> Path:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.mkdir(parents=True)
        os.link(log_file, path / log_file.name)
        # as each log has it: without this file, the batches are read twice more, for their epochs
        (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        return path

    def work(path: Path) -> tuple[int, int]:
        log = kstore.open(path, "a")
        opened.append(log)
        assert log.log_end_offset == data.batched.end_offset
        return log.active.size, log.active.size

    def clear(path: Path) -> None:
        opened.pop().close()
        shutil.rmtree(path.parent)

    race(
        "recover",
        "byte",
        InProcess("kstore", prepare, work, clear=clear),
        limit.contestant("C", "recover"),
        limit.contestant("C folded", "recover_folded"),
        kafka.contestant("Kafka", "recover"),
        kafka.contestant("Kafka log", "recover_log"),
        krabka.contestant("krabka", "recover"),
        goals=(Goal("C", speed=0.85), Goal("Kafka", speed=1.8)),
        rounds=min(race.rounds, 7),
    )
