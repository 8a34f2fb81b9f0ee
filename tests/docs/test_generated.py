"""What is generated is up to date: pages and stubs from the code, pictures and tables of benchmarks."""

import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

import kstore

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
REPORT = REPOSITORY / "benchmarks" / "report"


def generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["configuration.md", "command-line.md", "spark.md"])
def test_a_page_of_the_code(page: str) -> None:
    made = generator("generate_pages").PAGES[page]()
    assert made == (DOCS / page).read_text(encoding="utf-8"), "run: python docs/generate_pages.py"


def test_every_option_is_described() -> None:
    options = kstore.LogConfig.describe()
    assert [option.name for option in options] == list(kstore.ConfigOptions.__annotations__)
    for option in options:
        assert option.text.endswith(".")
        assert option.kafka_name == option.name.replace("_", ".")
        assert option.default == getattr(kstore.LogConfig(), option.name)
        assert f"\n    {option.name}:\n" in (kstore.LogConfig.__doc__ or "")
    assert {option.unit for option in options} == {"bytes", "ms", "records", ""}


# ---- figures -------------------------------------------------------------------------------------


def test_the_picture_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    picture = importlib.import_module("benchmarks.small_picture")
    report = json.loads((REPORT / "figures.json").read_text())
    made = picture.draw(report)
    assert made == (REPORT / "small.svg").read_text(), "run python -m benchmarks.small_picture"
    assert f"![{picture.in_words(report)}](" in (REPOSITORY / "README.md").read_text("utf-8")


def test_the_tables_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    tables = importlib.import_module("benchmarks.tables")
    report = json.loads((REPORT / "figures.json").read_text())
    page = (DOCS / "benchmarks.md").read_text("utf-8").splitlines()
    for lines in (tables.figures_table(report), tables.growth_table(report)):
        at = page.index(lines[0])
        assert page[at : at + len(lines) + 1] == [*lines, ""], "run python -m benchmarks.tables"


# ---- stubs ---------------------------------------------------------------------------------------


def test_stubs_have_the_docstrings_of_the_compiled_modules() -> None:
    stubs = generator("generate_stubs")
    assert len(stubs.STUBS) > 5
    stale = [path.stem for path in stubs.STUBS if stubs.stub(path) != path.read_text("utf-8")]
    assert stale == [], "run: python docs/generate_stubs.py"
