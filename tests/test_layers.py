"""Imports lead downwards only, and in no circle; what the engine calls upwards has a contract."""

import ast
import re
from importlib import import_module

import pytest

from kstore.log.write.append_hooks import AppendHooks
from tests.helpers.imports import (
    PACKAGE,
    circles,
    graph,
    hooks,
    imports_in_cython,
    imports_in_python,
    modules_meant,
)

# From the bottom. A module belongs to the longest name that it begins with. It may import its own floor and
# those below; names of one floor lie side by side, and do not import each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("kstore._version", "kstore.light_typing"),
    ("kstore.errors", "kstore.typed"),
    ("kstore.properties",),
    ("kstore.arguments", "kstore.libraries", "kstore.page"),
    ("kstore.kinds",),
    ("kstore.config",),
    ("kstore.engine",),
    ("kstore.engine.io",),
    ("kstore.engine.columns",),
    ("kstore.engine.record",),
    ("kstore.engine.segment",),
    ("kstore.engine.scan", "kstore.engine.append", "kstore.engine.compact", "kstore.engine.share"),
    ("kstore.messages",),
    ("kstore.log",),
    ("kstore.log.files", "kstore.log.send", "kstore.log.threads", "kstore.log.worker"),
    ("kstore.log.recovery",),
    ("kstore.log.producers", "kstore.log.read"),
    ("kstore.log.view", "kstore.log.segments"),
    ("kstore.log.follow",),
    ("kstore.log.cursors",),
    ("kstore.log.share",),
    ("kstore.log.partition",),
    ("kstore.log.write", "kstore.log.compact"),
    ("kstore.log.maintenance",),
    ("kstore.log.log_closer",),
    ("kstore.log.writer",),
    ("kstore.broker",),
    ("kstore.remote",),
    ("kstore.descriptors", "kstore.opening", "kstore.store"),
    ("kstore.copying", "kstore.explain"),
    ("kstore.checking", "kstore.shipping"),
    ("kstore.reporting", "kstore.serving"),
    ("kstore.frames",),
    ("kstore.arrow", "kstore.polars"),
    ("kstore",),
    ("kstore.testing", "kstore.spark.errors", "kstore.spark.java", "kstore.spark.schema"),
    ("kstore.spark.arrow", "kstore.spark.logs", "kstore.spark.paths"),
    ("kstore.spark.options",),
    ("kstore.spark.reading", "kstore.spark.writing"),
    ("kstore.spark",),
    ("kstore.tools",),
    ("kstore.__main__",),
)


def floor_of(module: str) -> tuple[int, str]:
    """The number of a module's floor, and the name there that it belongs to."""
    names = [(len(name), i, name) for i, floor in enumerate(FLOORS) for name in floor]
    fitting = [found for found in names if module == found[2] or module.startswith(found[2] + ".")]
    _, number, name = max(fitting)
    return number, name


def test_imports_lead_downwards() -> None:
    wrong = set()
    for module, imported in graph().items():
        number, own = floor_of(module)
        for target in imported:
            below, name = floor_of(target)
            if below > number or (below == number and name != own):
                wrong.add((module, target))
    assert wrong == set()


def test_no_circle() -> None:
    assert circles(graph()) == []


def test_names_that_are_imported_later() -> None:
    """Each name of a table is in its module, and imported from there for type checkers."""
    tables = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.If) and "later(" in "".join(map(ast.unparse, node.orelse))[:6]:
                tables += 1
                imports = [each for each in node.body if isinstance(each, ast.ImportFrom)]
                typed = {(each.module, name.name) for each in imports for name in each.names}
                table = ast.literal_eval(node.orelse[0].value.args[1])  # type: ignore[attr-defined]
                names = {(module, name) for module, words in table.items() for name in words.split()}
                assert names <= typed, path
                assert all(hasattr(import_module(module), name) for module, name in names)
    assert tables


def test_floors_are_there() -> None:
    """A name that no module begins with would keep nobody from anything."""
    modules = graph()
    assert {name for floor in FLOORS for name in floor} == {floor_of(module)[1] for module in modules}
    assert floor_of("kstore.newly_made")[1] == "kstore"
    assert len(modules) > 100


def test_what_the_engine_leaves_to_others() -> None:
    """It calls what AppendHooks has, and one method that a deriving class overrides."""
    text = "".join(path.read_text("utf-8") for path in (PACKAGE / "engine").rglob("*.pyx"))
    own = {name for name in vars(AppendHooks) if not name.startswith("_")}
    assert set(re.findall(r"self\.hooks\.(\w+)\(", text)) == own
    assert hooks("engine", "log") == {"RecordAccumulator._began"}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("from kstore.a import b", {"kstore.a.b"}),
        ("from kstore.a import b, other", {"kstore.a", "kstore.a.b"}),
        ("import kstore.a.b", {"kstore.a.b"}),
        ("import kstore.a as short, os", {"kstore.a"}),
        ("if TYPE_CHECKING:\n    from kstore.a.b import C", {"kstore.a.b"}),
        ("class A:\n    def f(self):\n        from kstore import a", {"kstore.a"}),
        ("from . import a", {"kstore.a"}),
        ("from .a.b import C", {"kstore.a.b"}),
        ("from .. import nothing", set()),
        ("'''\nfrom kstore.a import b\n'''", set()),
    ],
)
@pytest.mark.parametrize("read", [imports_in_python, imports_in_cython])
def test_every_kind_of_import_is_seen(read: object, text: str, meant: set[str]) -> None:
    modules = {"kstore.a", "kstore.a.b", "kstore.importer"}
    found = [modules_meant("kstore.importer", False, each, modules) for each in read(text)]  # type: ignore[operator]
    assert set().union(*found) == meant


def test_cimports_are_seen() -> None:
    text = "from kstore.a cimport (\n    C,\n    d,\n)\ncimport kstore.a.b as short  # comment\n"
    assert set(imports_in_cython(text)) == {(0, "kstore.a", ("C", "d")), (0, "kstore.a.b", ())}


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "f"}, "f": {"e"}}) == [
        {"a", "b", "c"},
        {"e", "f"},
    ]
