"""The pages that are made from the code say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import kstore
from kstore.config import LogConfig

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["configuration.md", "command-line.md"])
def test_a_page_is_up_to_date(page: str) -> None:
    made = generator().PAGES[page]()
    assert made == (DOCS / page).read_text(encoding="utf-8"), "run: python docs/generate_pages.py"


def test_every_option_is_described() -> None:
    options = LogConfig.describe()
    assert [option.name for option in options] == list(kstore.ConfigOptions.__annotations__)
    for option in options:
        assert option.text.endswith(".")
        assert option.kafka_name == option.name.replace("_", ".")
        assert option.default == getattr(LogConfig(), option.name)
        assert f"\n    {option.name}:\n" in (LogConfig.__doc__ or "")
    assert {option.unit for option in options} == {"bytes", "ms", "records", ""}
