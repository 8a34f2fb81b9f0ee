"""Writes docs/api.md from the docstrings: python docs/generate_api.py

Signatures come from the source, or from the stub of a compiled module. Docstrings come from the objects themselves, so they
are those that help() shows.
"""

import ast
import inspect
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from kstore import arguments

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "api.md"
WIDTH = 110
HEAD = """# API

Made from the docstrings by `python docs/generate_api.py`; please edit those. kstore.testing has [a page of its own](testing.md).
What is in neither is internal and may change.

"""
OPENING = ("open", "LogStore", "PartitionLog", "LogWriter", "Appender", "Ticket")
MADE = (
    "LogStore",
    "PartitionLog",
    "LogWriter",
    "Record",
    "RecordBatch",
    "Sink",
)  # by users; others come from calls
DATA = ("Record", "RecordBatch", "encode_batch")
MORE = {  # objects that have no public name: what gives one
    "Scan": "log.scan()",
    "ColumnBatch": "next(iter(log.scan()))",
    "Column": "next(iter(log.scan())).columns[0]",
    "RecordReader": "log.records()",
    "BatchReader": "log.batches()",
    "Recovery": "log.recovery",
}
ELSEWHERE = {"LogConfig": "configuration.md", "ConfigOptions": "configuration.md"}


_DEFAULTS: dict[str, ast.expr] = {
    node.targets[0].id: node.value
    for node in ast.parse(Path(str(arguments.__file__)).read_text("utf-8")).body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
}


class Module:
    """What the source of a module, or its stub, says about its names."""

    _known: ClassVar["dict[str, Module]"] = {}

    def __init__(self, name: str) -> None:
        source = Path(str(sys.modules[name].__file__))
        if source.suffix != ".py":
            source = source.with_name(source.name.partition(".")[0] + ".pyi")
        self._body = ast.parse(source.read_text("utf-8")).body
        self._aliases = {
            node.target.id: node.value
            for node in self._body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
            if node.target.id.startswith("_") and ast.unparse(node.annotation) == "TypeAlias"
        } | _DEFAULTS
        for node in self._body:  # private names for types that another stub has
            if isinstance(node, ast.ImportFrom) and any(alias.name[0] == "_" for alias in node.names):
                self._aliases = Module(str(node.module))._aliases | self._aliases

    @classmethod
    def of(cls, thing: Any) -> "Module":
        """The module in which a class or function was defined."""
        name = thing.__module__
        if name not in cls._known:
            cls._known[name] = cls(name)
        return cls._known[name]

    def functions(self, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The definitions of a function: several if it has overloads."""
        return _functions(self._body, name)

    def class_body(self, name: str) -> list[ast.stmt]:
        """The statements of a class."""
        return next((n.body for n in self._body if isinstance(n, ast.ClassDef) and n.name == name), [])

    def text(self, node: ast.AST) -> str:
        """Source of an annotation or signature, with private names for types and named defaults written out."""
        aliases = self._aliases

        class WriteOut(ast.NodeTransformer):
            def visit_Name(self, name: ast.Name) -> ast.AST:
                return self.visit(aliases[name.id]) if name.id in aliases else name

        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # a name that comes later
            return self.text(ast.parse(node.value, mode="eval").body)
        return ast.unparse(WriteOut().visit(ast.parse(ast.unparse(node)))).replace("kstore.", "")


def _functions(body: list[ast.stmt], name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    found = [n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == name]
    overloads = [n for n in found if any(ast.unparse(d) == "overload" for d in n.decorator_list)]
    return overloads or found[-1:]


def signature(
    module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, *, bound: bool
) -> str:
    """A call as text, one argument a line if it is long."""
    arguments = node.args
    if bound and not any(ast.unparse(d) == "staticmethod" for d in node.decorator_list):
        first = arguments.posonlyargs or arguments.args
        del first[:1]
    returns = module.text(node.returns) if node.returns else "None"
    name = owner if node.name in ("__init__", "__new__") else f"{owner}.{node.name}" if owner else node.name
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    result = "" if node.name in ("__init__", "__new__") else f" -> {returns}"
    call = f"def f({ast.unparse(arguments)}): pass"
    parsed = ast.parse(module.text(ast.parse(call))).body[0]
    assert isinstance(parsed, ast.FunctionDef)
    parts = _split(parsed.args)
    whole = f"{prefix}{name}({', '.join(parts)}){result}"
    if len(whole) <= WIDTH:
        return whole
    lines = "".join(f"    {argument},\n" for argument in parts)
    return f"{prefix}{name}(\n{lines}){result}"


def _split(arguments: ast.arguments) -> list[str]:
    """The arguments one by one."""
    text, parts, depth, start = ast.unparse(arguments), [], 0, 0
    quoted = ""
    for at, letter in enumerate(text):
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "'\"":
            quoted = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    # ast writes "name: type=default"
    return [part.replace("=", " = ", 1) if ": " in part else part for part in parts if part]


def document(name: str, thing: Any, public: set[str], level: str = "##") -> list[str]:
    """The lines about one public name."""
    if inspect.isclass(thing):
        return _class(name, thing, public, level)
    if callable(thing):
        module = Module.of(thing)
        calls = [signature(module, node, "", bound=False) for node in module.functions(thing.__name__)]
        return [f"{level} {name}", "", *_code(calls), *_doc(thing)]
    return []


def _class(name: str, cls: type, public: set[str], level: str) -> list[str]:
    module = Module.of(cls)
    body = module.class_body(cls.__name__)
    made = [n for n in ("__init__", "__new__") if _functions(body, n)] if name in MADE else []
    calls = [signature(module, n, name, bound=True) for kind in made[:1] for n in _functions(body, kind)]
    lines = [f"{level} {name}", "", *_code(calls), *_doc(cls)]
    fields = [n for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    named = [f"`{n.target.id}: {module.text(n.annotation)}`" for n in fields if n.target.id[0] != "_"]
    if named and name not in ELSEWHERE:
        lines += [f"Fields: {', '.join(named)}.", ""]
    for base in cls.__mro__[1:-1]:
        if base.__name__ in public:
            lines += [f"It has all that [{base.__name__}](#{base.__name__.lower()}) has.", ""]
            break
    seen: set[str] = set()
    attributes: list[str] = []
    methods: list[str] = []
    for owner in cls.__mro__[:-1]:
        if owner is not cls and (owner.__name__ in public or not owner.__module__.startswith("kstore")):
            break
        more = _members(name, owner, seen)
        attributes += more[0]
        methods += more[1]
    return [*lines, *(["Attributes:", "", *attributes, ""] if attributes else []), *methods]


def _members(name: str, owner: type, seen: set[str]) -> tuple[list[str], list[str]]:
    """The attributes of a class as items of a list, and its methods."""
    module = Module.of(owner)
    body = module.class_body(owner.__name__)
    attributes: list[str] = []
    methods: list[str] = []
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or node.name in seen:
            continue
        seen.add(node.name)
        doc = _doc(inspect.getattr_static(owner, node.name))
        if any(ast.unparse(d) in ("property", "cached_property") for d in node.decorator_list):
            kind = module.text(node.returns) if node.returns else "object"
            attributes.append(" ".join([f"- `{node.name}: {kind}`", *doc]).rstrip())
        else:
            calls = [signature(module, n, name, bound=True) for n in _functions(body, node.name)]
            methods += [f"### {name}.{node.name}", "", *_code(calls), *doc]
    return attributes, methods


def _code(calls: list[str]) -> list[str]:
    return ["```text", *"\n".join(calls).split("\n"), "```", ""] if calls else []


def _doc(thing: Any) -> list[str]:
    inner = getattr(thing, "__func__", thing)
    text = inspect.cleandoc(inner.__doc__ or "")
    return [*(line.rstrip() for line in text.split("\n")), ""] if text else []


def _errors(names: list[str], module: Any) -> list[str]:
    lines = ["## Errors", "", "| name | also | |", "|---|---|---|"]
    for name in names:
        cls = getattr(module, name)
        bases = [
            b.__name__ for b in cls.__bases__ if b.__name__ not in ("KstoreError", "Exception", "UserWarning")
        ]
        text = " ".join(" ".join(_doc(cls)).split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {', '.join(f'`{b}`' for b in bases)} | {text} |")
    return [*lines, ""]


def _constants(names: list[str], module: Any) -> list[str]:
    values = ", ".join(f"`{name}` ({getattr(module, name)})" for name in names)
    return [
        "## Constants",
        "",
        f"For `log.find(timestamp=…)`, the numbers that Kafka's protocol has: {values}.",
        "",
    ]


def page() -> str:
    """docs/api.md as it should be."""
    import kstore
    import kstore.spark

    public = set(kstore.__all__) - {"__version__"}
    things = {name: getattr(kstore, name) for name in public}
    errors = [n for n, t in things.items() if inspect.isclass(t) and issubclass(t, Exception)]
    constants = [n for n, t in things.items() if isinstance(t, int)]
    first = [*OPENING, *DATA]
    rest = sorted(public - set(first) - set(errors) - set(constants) - set(ELSEWHERE))
    lines = []
    for name in [*first, *rest]:
        lines += document(name, things[name], public)
    with tempfile.TemporaryDirectory() as directory:
        with kstore.open(f"{directory}/any-0", "a") as log:
            log.append(b"")
        with kstore.open(f"{directory}/any-0") as log:
            for name, expression in MORE.items():
                lines += document(name, type(eval(expression, {"log": log})), public)
    for name, where in ELSEWHERE.items():
        lines += [
            f"## {name}",
            "",
            *_doc(things[name])[:1],
            "",
            f"All names, with types and defaults: [{where}]({where}).",
            "",
        ]
    lines += _errors(sorted(errors), kstore) + _constants(sorted(constants), kstore)
    lines += ["# kstore.spark", ""]
    for name in ("rdd", "plan_splits", "partition_reader", "Sink"):
        lines += document(f"spark.{name}" if name in public else name, getattr(kstore.spark, name), {"Sink"})
    return HEAD + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
