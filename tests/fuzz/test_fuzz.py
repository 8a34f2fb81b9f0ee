"""The corpora of the fuzzers, and what fuzzing has found, go through the fuzzers again; `make fuzz` looks for
more.

A finding becomes a test: its file goes to tests/fuzz/corpus/NAME, or its case to FOUND below.
"""

import importlib
import subprocess
from pathlib import Path

import cramjam
import pytest

from kstore.engine.record.codec import decompress
from kstore.store import consumer_offsets
from tests.fuzz import codecs, positions, seeds, targets
from tests.helpers.effort import SEED, some, times

FOUND: dict[str, tuple[str, ...]] = {"codecs": (), "directories": (), "positions": ()}


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tests.fuzz.driver.FINDINGS", tmp_path / "findings")
    return tmp_path / "findings"


@pytest.mark.parametrize("target", some(targets.TARGETS, 1, "corpora"))
def test_the_corpus_of_a_header(target: str, tmp_path: Path) -> None:
    try:
        program = targets.with_replay(target, tmp_path)
    except targets.CannotFuzzError as e:
        pytest.skip(str(e))
    seeds.write(target, tmp_path / "seeds")
    files = [*(tmp_path / "seeds").iterdir(), *targets.kept(target)]
    assert len(files) >= 10
    done = subprocess.run([program, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(files)} files\n"


@pytest.mark.timeout(times(300))
@pytest.mark.parametrize("name", FOUND)
def test_cases_of_a_fuzzer_in_python(name: str, findings: Path) -> None:
    """A few new ones, and those that have failed before."""
    module = importlib.import_module(f"tests.fuzz.{name}")
    material = {"codecs": "cases", "directories": "contents", "positions": "contents"}[name]
    for case in (*[f"{SEED}.{number}" for number in range(times(8))], *FOUND[name]):
        assert module.drive(name, list(getattr(module, material)()), module.try_one, [case]) == 0
    assert not findings.exists()


def test_positions_find_an_aborted_transaction_that_counts(
    findings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_offsets, "commits", lambda batch: True)
    seeds_of_it = list(positions.contents())
    cases = (f"found.{number}" for number in range(40))
    assert any(positions.drive("positions", seeds_of_it, positions.try_one, [case]) for case in cases)


def test_codecs_find_a_library_that_guesses(findings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cramjam takes a sound block of lz4 for one with its size before it, if it can: kstore unpacked blocks
    with it."""

    def guessing(codec: int, magic: int, payload: bytes, limit: int) -> bytes:
        out = bytearray(limit)
        size = int.from_bytes(payload[7:11], "little")
        if codec != 3 or payload[4] != 0x60 or len(payload) != size + 15:
            return bytes(decompress(codec, magic, payload, limit))
        done = cramjam.lz4.decompress_block_into(payload[11:-4], out)
        return bytes(out[:done])

    monkeypatch.setattr(codecs, "decompress", guessing)
    seeds_of_it = list(codecs.cases())
    cases = (f"found.{number}" for number in range(1000))
    assert any(codecs.drive("codecs", seeds_of_it, codecs.try_one, [case]) for case in cases)


SPOILT = {
    "a size that is not checked": (
        "batches",
        "if (size >= 0 && (size_t)size > (size_t)(end - q))",  # of a message's key or value
        "if (0)",
    ),
    "a bound off by one": ("records", "end - q >= 2 && q[1] < 0x80", "end - q >= 1 && q[1] < 0x80"),
    "a loop past its end": ("indexes", "if (q == end || shift > 63)", "if (shift > 63)"),
}


def spoilt(name: str, directory: Path) -> tuple[str, Path]:
    """A fuzzer, and the directory of headers with this defect."""
    target, right, wrong = SPOILT[name]
    headers = Path(targets.kstore.get_include()) / "kstore"
    assert any(right in path.read_text("utf-8") for path in headers.glob("*.h"))
    (directory / "kstore").mkdir()
    for path in headers.glob("*.h"):
        (directory / "kstore" / path.name).write_text(path.read_text("utf-8").replace(right, wrong), "utf-8")
    return target, directory


@pytest.mark.nightly
@pytest.mark.parametrize("name", SPOILT)
def test_the_corpus_finds_what_it_is_for(name: str, tmp_path: Path) -> None:
    """A defect in a header is met by the corpus of its fuzzer."""
    target, include = spoilt(name, tmp_path)
    try:
        program = targets.with_replay(target, tmp_path, include=include)
    except targets.CannotFuzzError as e:
        pytest.skip(str(e))
    seeds.write(target, tmp_path / "seeds")
    files = [*(tmp_path / "seeds").iterdir(), *targets.kept(target)]
    done = subprocess.run([program, *files], capture_output=True, text=True, check=False)
    assert done.returncode != 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", SPOILT)
def test_a_fuzzer_finds_what_it_is_for(name: str, tmp_path: Path) -> None:
    """libFuzzer meets it without the corpus, from a single seed."""
    target, include = spoilt(name, tmp_path)
    try:
        program = targets.with_libfuzzer(target, tmp_path, include=include)
    except targets.CannotFuzzError as e:
        pytest.skip(str(e))
    seeds.write(target, tmp_path / "seeds")
    one = tmp_path / "one"
    one.mkdir()
    first = min((tmp_path / "seeds").iterdir())
    (one / first.name).write_bytes(first.read_bytes())
    command = [str(program), "-max_total_time=60", "-seed=1", f"-artifact_prefix={tmp_path}/", str(one)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert list(tmp_path.glob("crash-*"))
