"""kstore.check says of a damage that Kafka does not start on it if and only if Kafka's LogManager does not; and
Kafka opens and reads what a repair leaves."""

import random
import shutil
import warnings
from pathlib import Path

import pytest

import kstore
from tests.checking import damage
from tests.checking.damage import Damage
from tests.checking.sound import KINDS, write_partition, write_store
from tests.golden.scenarios import Scenario, scenarios
from tests.helpers.effort import SEED, times
from tests.kafka.jvm import Kafka, KafkaError, KafkaLog

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")

# A broker reads these after the start of its LogManager. The reading takes the log directory offline.
READ_LATER = ("replication-offset-checkpoint", "cleaner-offset-checkpoint")


def started(kafka: Kafka, directory: Path) -> str:
    """What a start on a copy of a log directory says, "" if all its partitions are there."""
    copy = directory.parent / "started"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy, symlinks=True)
    names = {path.name for path in copy.iterdir() if path.is_dir()}
    try:
        missing = names.difference(kafka.start(copy))
        text = f"not loaded: {sorted(missing)}" if missing else ""
    except KafkaError as e:
        return str(e)
    try:
        kafka.ask("shutdown", copy)
    except KafkaError as e:
        text = text or str(e)
    return text


def says_so(report: kstore.Report) -> list[str]:
    """The findings on which Kafka does not start, except those of files that it reads later."""
    stops = [finding for finding in report.findings if finding.stops_kafka]
    return [str(finding) for finding in stops if Path(finding.file).name not in READ_LATER]


def damaged_store(root: Path, number: int) -> tuple[Path, Damage | None]:
    """A log directory with a damage by chance."""
    rng = random.Random(f"{SEED} {number}")
    sound, older, damaged = root / "sound", root / "older", root / "damaged"
    if number % 10 == 0:
        shutil.rmtree(sound, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)
        write_store(sound, rng)
        shutil.copytree(sound, older)
        for kind in KINDS:
            write_partition(sound / f"{kind}-0", rng, kind)
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(sound, damaged)
    return damaged, damage.do(rng, damaged, older)


def test_random_damages(tmp_path: Path, kafka: Kafka) -> None:
    for number in range(times(10)):
        directory, done = damaged_store(tmp_path, number)
        said = says_so(kstore.check(directory))
        answer = started(kafka, directory)
        assert bool(said) == bool(answer), f"SEED={SEED}, number {number}: {done}: {said}; Kafka: {answer}"


def _rename_log(path: Path) -> None:
    (path / "orders-0" / "copy.log").write_bytes(b"")


def _make_foreign(path: Path) -> None:
    (path / "backup").mkdir()


def _break_epochs(path: Path) -> None:
    (path / "orders-0" / "leader-epoch-checkpoint").write_text("0\nx\n")


def _empty_epochs(path: Path) -> None:
    (path / "orders-0" / "leader-epoch-checkpoint").write_text("")


def _break_topic_id(path: Path) -> None:
    (path / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: ?\n")


@pytest.mark.parametrize(
    ("change", "stops"),
    [
        (_rename_log, True),
        (_make_foreign, True),
        (_break_epochs, True),
        (_empty_epochs, False),
        (_break_topic_id, True),
    ],
)
def test_names_and_small_files(change: object, stops: bool, tmp_path: Path, kafka: Kafka) -> None:
    path = tmp_path / "data"
    with kstore.LogStore(path, mode="a") as store:
        store.create_topic("orders")
        store.append("orders", b"v")
    change(path)  # type: ignore[operator]
    said = says_so(kstore.check(path))
    assert (bool(said), bool(started(kafka, path))) == (stops, stops), said


CRASHED = [each for each in scenarios() if each.name.startswith(("crash_", "clean_", "swap_", "overflow"))]


@pytest.mark.parametrize("scenario", CRASHED, ids=str)
def test_golden(scenario: Scenario, tmp_path: Path, kafka: Kafka) -> None:
    """Kafka starts on all of these; and it reads what a repair leaves, as kstore does."""
    path = scenario.unpack(tmp_path)
    assert says_so(kstore.check(path)) == []
    assert started(kafka, path.parent) == ""
    kstore.repair(path, run=True)
    with kstore.open(path) as log:
        ours = [record.offset for batch in log.from_file_start().batches() for record in batch.records()]
    now = scenario.open()["now_ms"]
    kafka.start(path.parent, {}, now)
    log = KafkaLog(kafka, path)
    theirs = [record["offset"] for record in log.records() if record.get("offset") is not None]
    assert not log.wrong()
    kafka.ask("shutdown", path.parent)
    assert set(theirs) <= set(ours)
    assert len(theirs) == len(ours)


def test_damages_that_were_repaired(tmp_path: Path, kafka: Kafka) -> None:
    warnings.simplefilter("ignore", kstore.DataLossWarning)
    for number in range(times(5)):
        directory, done = damaged_store(tmp_path, number)
        plan = kstore.repair(directory, run=True)
        if not says_so(kstore.check(directory)):
            answer = started(kafka, directory)
            assert answer == "", f"SEED={SEED}, number {number}: {done}: {plan}"
