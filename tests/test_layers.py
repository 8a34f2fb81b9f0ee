"""Imports lead downwards only: engine <- log <- store <- tools, spark <- the command line."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "kstore"
LAYERS = ("engine", "log", "store", "tools", "spark", "__main__")
FREE = {"errors", "properties", "kinds", "config", "_version"}  # importable from everywhere
IMPORT = re.compile(r"^\s*(?:from|import) kstore(?:\.(\w+))?", re.MULTILINE)


def imports_of(path: Path) -> set[str]:
    """The parts of the package that a file imports; "" for the package itself."""
    return {found[1] or "" for found in IMPORT.finditer(path.read_text("utf-8"))}


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.partition(".")[0]


def test_imports_lead_downwards() -> None:
    wrong: list[str] = []
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]:
        layer = layer_of(path)
        if layer not in LAYERS:
            continue
        above = LAYERS[LAYERS.index(layer) + 1 :]
        wrong += [f"{path.relative_to(PACKAGE)}: {t}" for t in sorted(imports_of(path) & set(above))]
        if layer == "spark" and "tools" in imports_of(path):  # they lie side by side
            wrong.append(f"{path.relative_to(PACKAGE)}: tools")
    assert wrong == []
    assert layer_of(PACKAGE / "engine" / "record" / "batch.pyx") == "engine"


def test_what_is_free_to_all_needs_no_layer() -> None:
    for name in FREE:
        assert imports_of(PACKAGE / f"{name}.py") <= FREE, name
