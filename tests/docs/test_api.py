"""Is docs/api.md what its generator makes of the docstrings?"""

import importlib.util
from pathlib import Path

import kstore

DOCS = Path(__file__).parents[2] / "docs"


def test_it_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_api", DOCS / "generate_api.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    page = generate.page()
    assert page == (DOCS / "api.md").read_text("utf-8"), "run python docs/generate_api.py"
    assert all(f"\n## {name}\n" in page or f"`{name}`" in page for name in kstore.__all__ if name[0] != "_")
