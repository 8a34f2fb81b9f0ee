"""What the modules of the package import, of any kind: read from their text, nothing is run.

Counted are imports at the top, in functions and methods and under TYPE_CHECKING, cimports, relative imports,
and those of stubs. A module of Cython is one node with its .pxd and its .pyi.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "kstore"
_TEXT = re.compile(r"'''.*?'''|\"\"\".*?\"\"\"|#[^\n]*", re.DOTALL)
_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n;]+)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*c?import[ \t]+([^\n;]+)", re.MULTILINE)
Import = tuple[int, str, tuple[str, ...]]  # dots before it, a module, names taken from it

Graph = dict[str, set[str]]


def name_of(path: Path) -> str:
    """The module in a file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_in_python(text: str) -> Iterator[Import]:
    """Of a .py or .pyi."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, ()


def imports_in_cython(text: str) -> Iterator[Import]:
    """Of a .pyx or .pxd."""
    text = _TEXT.sub("", text)
    for found in _FROM.finditer(text):
        module = found[1].lstrip(".")
        yield len(found[1]) - len(module), module, tuple(_first_words(found[2].strip("()")))
    for found in _IMPORT.finditer(text):
        for module in _first_words(found[1]):
            yield 0, module, ()


def _first_words(names: str) -> Iterator[str]:
    for name in names.split(","):
        if name.strip():
            yield name.split()[0]


def modules_meant(importer: str, is_package: bool, found: Import, modules: Iterable[str]) -> set[str]:
    """The modules of ours that an import asks for: a name taken from a package may be a module in it."""
    dots, module, names = found
    if dots:
        parts = importer.split(".")
        base = parts[: len(parts) - dots + is_package]
        module = ".".join([*base, module] if module else base)
    inner = {f"{module}.{name}" for name in names}
    meant = inner & set(modules)
    if (not names or inner - meant) and module in modules:
        meant.add(module)
    return meant - {importer}


def graph() -> Graph:
    """For each module those that it imports."""
    files = sorted(p for p in PACKAGE.rglob("*") if p.suffix in {".py", ".pyi", ".pyx", ".pxd"})
    found: Graph = {name_of(path): set() for path in files if PACKAGE / "include" not in path.parents}
    for path in files:
        name, text = name_of(path), path.read_text("utf-8")
        read = imports_in_python if path.suffix in {".py", ".pyi"} else imports_in_cython
        for each in read(text):
            found[name] |= modules_meant(name, path.stem == "__init__", each, found)
    return found


def circles(imports: Graph) -> list[set[str]]:
    """Sets of modules of which each imports each, directly or not: strongly connected components (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in sorted(imports[module]):
            if target not in order:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], order[target])
        if low[module] == order[module]:
            at = stack.index(module)
            circle = set(stack[at:])
            del stack[at:]
            if len(circle) > 1:
                found.append(circle)

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found


def hooks(below: str, above: str) -> set[str]:
    """Methods that Cython classes in `below` call of themselves and a class in `above` defines."""
    called: set[str] = set()
    bases: dict[str, str] = {}
    methods: dict[str, set[str]] = {}
    for path in sorted((PACKAGE / below).rglob("*.pyx")):
        called |= set(re.findall(r"\bself\.(\w+)\(", path.read_text("utf-8")))
        cls = ""
        for line in path.read_text("utf-8").splitlines():
            if found := re.match(r"cdef class (\w+)(?:\((\w+)\))?:", line):
                cls, bases[found[1]] = found[1], found[2] or ""
                methods[cls] = set()
            elif line and not line[0].isspace() and line[0] not in "@#)":
                cls = ""
            elif cls and (found := re.match(r"    (?:c?p?def)\b[^(=]*?(\w+)\(", line)):
                methods[cls].add(found[1])
    again = set()
    for path in sorted((PACKAGE / above).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                for base in (b.id for b in node.bases if isinstance(b, ast.Name)):
                    ancestor = base
                    while ancestor in methods:
                        again |= {f"{ancestor}.{name}" for name in own & methods[ancestor]}
                        ancestor = bases[ancestor]
    return {name for name in again if name.partition(".")[2] in called}
