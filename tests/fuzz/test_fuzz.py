"""The corpora of the fuzzers, and what fuzzing has found, go through the fuzzers again; `make fuzz SECONDS=…` looks for more.

A finding becomes a test: its file goes to tests/fuzz/corpus/NAME, or its case to FOUND below.
"""

import importlib
import subprocess
from pathlib import Path

import pytest

from tests.fuzz import seeds, targets

FOUND: dict[str, tuple[str, ...]] = {"codecs": (), "directories": (), "arguments": ()}


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tests.fuzz.driver.FINDINGS", tmp_path / "findings")
    return tmp_path / "findings"


@pytest.mark.parametrize("target", targets.TARGETS)
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


@pytest.mark.parametrize("name", FOUND)
def test_cases_of_a_fuzzer_in_python(name: str, findings: Path) -> None:
    """A few of them, and those that have failed before."""
    module = importlib.import_module(f"tests.fuzz.{name}")
    material = {"codecs": "cases", "directories": "contents", "arguments": "texts"}[name]
    for case in (*[f"ci.{number}" for number in range(15)], *FOUND[name]):
        assert module.drive(name, list(getattr(module, material)()), module.try_one, [case]) == 0
    assert not findings.exists()


def test_a_fuzzer_finds_what_it_is_for(tmp_path: Path) -> None:
    """A bound that is left out of a header is met by the corpus of its fuzzer."""
    header = (Path(targets.kstore.get_include()) / "kstore" / "format.h").read_text("utf-8")
    right = "if (size >= 0 && (size_t)size > (size_t)(end - q))"  # of a message's key or value
    assert header.count(right) == 1
    spoilt = tmp_path / "kstore"
    spoilt.mkdir()
    for path in (Path(targets.kstore.get_include()) / "kstore").glob("*.h"):
        (spoilt / path.name).write_text(path.read_text("utf-8"), "utf-8")
    (spoilt / "format.h").write_text(header.replace(right, "if (0)"), "utf-8")
    try:
        program = targets.with_replay("batches", tmp_path, include=tmp_path)
    except targets.CannotFuzzError as e:
        pytest.skip(str(e))
    seeds.write("batches", tmp_path / "seeds")
    files = [*(tmp_path / "seeds").iterdir(), *targets.kept("batches")]
    done = subprocess.run([program, *files], capture_output=True, text=True, check=False)
    assert done.returncode != 0
