"""Data, contestants, and the report. Sizes by environment: KSTORE_BENCH_MIB, _SEGMENTS, _ROUNDS,
_WRITTEN_MIB; two more in bench_scaling.py, one in bench_spark.py."""

import gc
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kstore
from benchmarks import data as fixtures
from benchmarks import report
from benchmarks.interleave import Figure, Race
from benchmarks.peers import kafka as kafka_peer
from benchmarks.peers import krabka as krabka_peer
from benchmarks.peers import limits as limits_peer
from benchmarks.peers import store
from benchmarks.peers.process import Absent, Peer, Process
from benchmarks.scaling import Curve
from benchmarks.scaling import table as scaling_table
from benchmarks.stored import Stored

MIB = int(os.environ.get("KSTORE_BENCH_MIB", "1024"))
SEGMENTS = int(os.environ.get("KSTORE_BENCH_SEGMENTS", "10000"))
ROUNDS = int(os.environ.get("KSTORE_BENCH_ROUNDS", "21"))
WRITTEN_MIB = int(os.environ.get("KSTORE_BENCH_WRITTEN_MIB", "2048"))
FIGURES = pytest.StashKey[list[Figure]]()
CURVES = pytest.StashKey[list[Curve]]()
ABOUT = pytest.StashKey[dict[str, str]]()
LEFT_OUT = Absent("only in `make bench-all`")
NOTES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="Kafka on the JVM, krabka and Spark too")
    parser.addoption("--report", metavar="DIR", help="where figures and picture go, also those of a part")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    config.stash[CURVES] = []
    config.stash[ABOUT] = {"kstore": kstore.__version__} | {name: store.about(name) for name in store.NAMES}
    config.stash[NOTES] = []


@pytest.fixture(scope="session")
def data() -> fixtures.Data:
    try:
        return fixtures.make(MIB, SEGMENTS)
    except fixtures.NoCompilerError as e:
        pytest.skip(f"the data cannot be written: {e}")


@pytest.fixture(scope="session")
def limit(data: fixtures.Data, pytestconfig: pytest.Config) -> Iterator[Peer]:
    peer = limits_peer.start(data.root, data.work)
    yield from _kept(peer, "C", pytestconfig)


@pytest.fixture(scope="module")
def kafka(data: fixtures.Data, pytestconfig: pytest.Config) -> Iterator[Peer]:
    """A JVM for each subject: what one has taught the JIT does not slow the next."""
    everything = pytestconfig.getoption("all")
    peer = kafka_peer.start(data.root, data.copy, data.work) if everything else LEFT_OUT
    yield from _kept(peer, "Kafka", pytestconfig)


@pytest.fixture(scope="session")
def krabka(data: fixtures.Data, pytestconfig: pytest.Config) -> Iterator[Peer]:
    peer = krabka_peer.start(data.root, data.work) if pytestconfig.getoption("all") else LEFT_OUT
    yield from _kept(peer, "krabka", pytestconfig)


@pytest.fixture(scope="session")
def stored(data: fixtures.Data) -> Iterator[Stored]:
    stores = Stored(data)
    yield stores
    stores.close()


def _kept(peer: Peer, name: str, config: pytest.Config) -> Iterator[Peer]:
    config.stash[ABOUT][name] = peer.about
    if isinstance(peer, Process):
        with peer:
            yield peer
    else:
        yield peer


@pytest.fixture
def race(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Race:
    counted = inspect.getdoc(request.function) or ""
    gc.collect()
    gc.freeze()  # the heap of pytest is not scanned while objects are made and counted
    return Race(benchmark, request.config.stash[FIGURES], counted, ROUNDS)


@pytest.fixture
def curves(pytestconfig: pytest.Config) -> list[Curve]:
    """Where scaling adds its curves."""
    return pytestconfig.stash[CURVES]


@pytest.fixture(scope="session")
def written_mib() -> int:
    """How much is written where memory is watched meanwhile."""
    return WRITTEN_MIB


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Adds a line below the table."""
    return pytestconfig.stash[NOTES].append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures, curves = config.stash[FIGURES], [curve for curve in config.stash[CURVES] if curve.points]
    say = terminalreporter.write_line
    for line in config.stash[NOTES]:
        say(line)
    if not figures and not curves:
        return
    about = config.stash[ABOUT]
    terminalreporter.section("kstore against its peers and the machine")
    for line in [*report.table(figures), "", *report.summary(figures), "", *scaling_table(curves)]:
        say(line)
    say("; ".join(f"{k}: {v}" for k, v in about.items()))
    full_size = MIB >= 1024 and SEGMENTS >= 10_000
    if not full_size:
        say("Smaller than what the goals are meant for.")
    run = {"mib": MIB, "segments": SEGMENTS, "rounds": ROUNDS, "contestants": about}
    directory = Path(config.getoption("report") or report.HERE / "build")
    for path in report.write(figures, curves, run, directory):
        say(f"written to {path}")
