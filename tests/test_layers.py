"""Imports lead downwards only: engine <- log <- store <- tools <- the command line."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "kstore"
LAYERS = ("engine", "log", "store", "tools", "__main__")
FREE = {"errors", "_version", None}  # importable from everywhere; None: the package itself
IMPORT = re.compile(r"^\s*(?:from|import) kstore(?:\.(\w+))?", re.MULTILINE)


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.partition(".")[0]


def test_imports_lead_downwards() -> None:
    wrong = []
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]:
        layer = layer_of(path)
        if layer not in LAYERS:
            continue
        for found in IMPORT.finditer(path.read_text("utf-8")):
            target = found[1]
            if target in FREE or target not in LAYERS:
                continue
            if LAYERS.index(target) > LAYERS.index(layer):
                wrong.append(f"{path.relative_to(PACKAGE)} imports kstore.{target}")
    assert wrong == []
    assert layer_of(PACKAGE / "engine" / "batch.pyx") == "engine"
