"""Is the README short, and are its picture and the tables of docs/benchmarks.md those of the figures?"""

import importlib
import json
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
REPORT = REPOSITORY / "benchmarks" / "report"


def test_it_is_short() -> None:
    lines = (REPOSITORY / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 120
    assert not any(line.lstrip().startswith("make ") for line in lines)  # that is for CONTRIBUTING.md


def test_it_needs_nothing_that_a_new_user_lacks() -> None:
    """Its blocks run one after another in an empty directory: no broker's directory is there (see test_code_blocks)."""
    assert "kafka-data" not in (REPOSITORY / "README.md").read_text("utf-8")


def test_its_picture_is_of_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    picture = importlib.import_module("benchmarks.small_picture")
    report = json.loads((REPORT / "figures.json").read_text())
    assert picture.draw(report) == (REPORT / "small.svg").read_text(), (
        "run python -m benchmarks.small_picture"
    )
    assert f"![{picture.in_words(report)}](" in (REPOSITORY / "README.md").read_text("utf-8")


def test_the_tables_are_of_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    tables = importlib.import_module("benchmarks.tables")
    report = json.loads((REPORT / "figures.json").read_text())
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text("utf-8").splitlines()
    for lines in (tables.figures_table(report), tables.growth_table(report)):
        at = page.index(lines[0])
        assert page[at : at + len(lines) + 1] == [*lines, ""], "run python -m benchmarks.tables"
