"""After a crash, Kafka's recovery and kstore's leave the same log: the same records, the same files."""

import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED, some, times
from tests.helpers.processes import environment
from tests.kafka.compare import Account, check_same_files
from tests.kafka.jvm import NOW, Kafka, KafkaLog
from tests.kafka.shapes import SHAPES, Shape, smoke

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here

LATER = NOW + 10**6


def copied(log_directory: Path, name: str) -> Path:
    """A copy of a log directory, with holes and file times."""
    target = log_directory.parent / name
    subprocess.run(["cp", "-a", "--sparse=always", str(log_directory), str(target)], check=True)
    (target / ".lock").unlink(missing_ok=True)
    return target


def check_recovery(kafka: Kafka, log_directory: Path, config: kstore.LogConfig) -> Account:
    """Recovers copies by both, and returns what kstore's reader says of the directory as it is."""
    theirs, ours = copied(log_directory, "theirs"), copied(log_directory, "ours")
    with kstore.open(log_directory / "orders-0", index_interval_bytes=config.index_interval_bytes) as log:
        assert not log.recovery.clean
        account = Account(log)
    kafka.start(theirs, config.to_topic(), LATER)
    begun = ("Recovering 1 logs", "clean shutdown file was not found")
    assert any(text in line for line in kafka.log for text in begun), kafka.log
    account.check(KafkaLog(kafka, theirs / "orders-0"))
    kafka.ask("shutdown", theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)
        log = kstore.open(ours / "orders-0", "r+", config=config, clock=lambda: LATER)
    assert not log.recovery.clean
    assert log.log_end_offset == account.summary["log_end_offset"]
    log.close()
    check_same_files(ours / "orders-0", theirs / "orders-0")
    return account


@pytest.mark.parametrize("shape", smoke(SHAPES, "transactions_left_open"), ids=str)
def test_abandoned(shape: Shape, kafka: Kafka, log_directory: Path) -> None:
    shape.write(log_directory / "orders-0", stop="abandon")
    check_recovery(kafka, log_directory, shape.config)


def _last_log(directory: Path) -> Path:
    return max(path for path in directory.glob("*.log") if path.stat().st_size)


def _tail(cut: int) -> Callable[[Path, random.Random], None]:
    def cut_tail(directory: Path, rnd: random.Random) -> None:
        path = _last_log(directory)
        os.truncate(path, max(0, path.stat().st_size - cut))

    return cut_tail


def _behind(data: bytes) -> Callable[[Path, random.Random], None]:
    def add(directory: Path, rnd: random.Random) -> None:
        with _last_log(directory).open("ab") as file:
            file.write(data)

    return add


def _turned_bits(count: int) -> Callable[[Path, random.Random], None]:
    """In batches past their offset and size, which no checksum covers."""

    def turn(directory: Path, rnd: random.Random) -> None:
        for _ in range(count):
            path = rnd.choice(sorted(p for p in directory.glob("*.log") if p.stat().st_size))
            data = bytearray(path.read_bytes())
            starts, at = [], 0
            while at < len(data):
                starts.append(at)
                at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
            data[rnd.choice(starts) + rnd.randrange(21, 61)] ^= 1 << rnd.randrange(8)
            path.write_bytes(data)

    return turn


def _without(pattern: str) -> Callable[[Path, random.Random], None]:
    def remove(directory: Path, rnd: random.Random) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return remove


def _filled(pattern: str) -> Callable[[Path, random.Random], None]:
    def fill(directory: Path, rnd: random.Random) -> None:
        for path in directory.glob(pattern):
            path.write_bytes(rnd.randbytes(240))

    return fill


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "one_byte_short": _tail(1),
    "bytes_short": _tail(500),
    "much_short": _tail(3000),
    "zeros_behind": _behind(bytes(5000)),
    "few_zeros_behind": _behind(bytes(7)),
    "garbage_behind": _behind(random.Random(1).randbytes(3000)),
    "turned_bit": _turned_bits(1),
    "many_turned_bits": _turned_bits(3),
    "no_indexes": _without("*.*index"),
    "no_time_indexes": _without("*.timeindex"),
    "no_snapshots": _without("*.snapshot"),
    "no_epochs": _without("leader-epoch-checkpoint"),
    "broken_indexes": _filled("*.index"),
    "broken_time_indexes": _filled("*.timeindex"),
    "broken_snapshots": _filled("*.snapshot"),
}
BELOW = [name for name in DAMAGES if "short" in name or "behind" in name or "snapshots" in name]
DAMAGED = list(product(DAMAGES, ("segments", "leader_epochs", "reopened_transactions"), range(times(1))))


@pytest.mark.parametrize(("damage", "name", "turn"), some(DAMAGED, 30, "damaged"))
def test_damaged(damage: str, name: str, turn: int, kafka: Kafka, log_directory: Path) -> None:
    rnd = random.Random(f"{SEED} {name} {damage} {turn}")
    directory = log_directory / "orders-0"
    SHAPES[name].write(directory, stop="abandon")
    DAMAGES[damage](directory, rnd)
    if damage not in BELOW or rnd.random() < 0.5:  # kstore trusts what is not recovered less than Kafka does
        (log_directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    check_recovery(kafka, log_directory, SHAPES[name].config)


@pytest.mark.parametrize(
    ("durability", "appends"), [("none", 150), ("none", 101), ("group", 40), ("each", 30)]
)
def test_killed(durability: str, appends: int, kafka: Kafka, log_directory: Path) -> None:
    command = [sys.executable, "-m", "tests.kafka.writer", str(log_directory / "orders-0"), durability]
    child = subprocess.Popen(
        [*command, f"{SEED} {durability} {appends}"], stdout=subprocess.PIPE, env=environment()
    )
    assert child.stdout is not None
    seen = b"".join(child.stdout.readline() for _ in range(appends))
    child.kill()
    seen += child.communicate()[0]
    assert child.returncode == -signal.SIGKILL
    acknowledged = [int(line) for line in seen.splitlines(keepends=True) if line.endswith(b"\n")]
    config = kstore.LogConfig(internal_segment_bytes=200_000, index_interval_bytes=500)
    account = check_recovery(kafka, log_directory, config)
    assert account.summary["log_end_offset"] >= acknowledged[-1]
    assert len(acknowledged) >= appends
