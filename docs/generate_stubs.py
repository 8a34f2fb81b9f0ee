"""Writes the docstrings of the compiled modules into their stubs, for editors: python docs/generate_stubs.py

Docstrings come from the objects themselves, so they are those that help() shows. Everything else in a stub
stays as it is. Modules that users meet in no name and no base class go without: what an installed kstore may
take is limited.
"""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
ENGINE = REPOSITORY / "kstore/engine"
STUBS = sorted((REPOSITORY / "kstore").rglob("*.pyi"))
HIDDEN = (
    "append/batch_validation",
    "append/log_end",
    "append/shared_end",
    "columns/binary_input",
    "columns/column_input",
    "compact/",
    "io/",
    "record/codec",
    "record/partitions",
    "scan/column_",
    "segment/active_segment",
    "segment/segment_files",
    "segment/walks",
)
LENT = (object, list, type(iter([])))  # a method that has no docstring of its own shows one of Python's

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def stub(path: Path) -> str:
    """A stub as it should be."""
    module = importlib.import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
    text = without_docstrings(path.read_text("utf-8"))
    if path.is_relative_to(ENGINE) and path.relative_to(ENGINE).as_posix().startswith(HIDDEN):
        return text
    tree = ast.parse(text)
    edits = []
    for node, thing in _public(tree.body, module):
        doc = _own_doc(node.name, thing)
        if doc:
            literal = "\n" + textwrap.indent(
                _literal(doc), " " * (node.col_offset + 4), lambda line: line != "\n"
            )
            first = node.body[0]
            if _is_constant(first, ...):  # the three dots, with the space before them
                start, end = _span(text, first)
                crowded = node.col_offset == 0 and text[end : end + 2] not in ("\n", "\n\n")
                edits.append((start - 1, end, literal + "\n" * crowded))  # an empty line, as ruff wants it
            else:
                start = text.rindex(":\n", 0, _start_with_decorators(text, first)) + 1
                edits.append((start, start, literal + "\n"))
    return _edited(text, edits)


def without_docstrings(text: str) -> str:
    """A stub that has no docstrings: three dots stand where a body was nothing else."""
    edits = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _Definition) and ast.get_docstring(node, clean=False) is not None:
            start, end = _span(text, node.body[0])
            start = len(text[:start].rstrip())
            if len(node.body) == 1:
                edits.append((start, end, " ..."))
            else:
                end += len(text[end:]) - len(text[end:].lstrip("\n"))
                edits.append((start, end - 1, ""))
    return _edited(text, edits)


def _public(body: list[ast.stmt], owner: Any) -> "list[tuple[_Definition, Any]]":
    """Classes, functions, methods and properties, each with the object that it describes."""
    found: list[tuple[_Definition, Any]] = []
    for node in body:
        if isinstance(node, _Definition) and (node.name[0] != "_" or node.name[:2] == "__"):
            thing = inspect.getattr_static(owner, node.name)
            found.append((node, thing))
            if isinstance(node, ast.ClassDef):
                found += _public(node.body, thing)
    return found


def _own_doc(name: str, thing: Any) -> str:
    text = inspect.cleandoc(getattr(thing, "__func__", thing).__doc__ or "").strip()
    made = inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")  # that of a named tuple
    lent = any(text == inspect.cleandoc(getattr(getattr(t, name, None), "__doc__", "") or "") for t in LENT)
    return "" if made or lent else text


def _literal(doc: str) -> str:
    assert '"""' not in doc, doc
    prefix = "r" if "\\" in doc else ""
    before, after = (" " * (doc[at] == '"') for at in (0, -1))
    return f'{prefix}"""{before}{doc}{after}"""'


def _is_constant(node: ast.stmt, value: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is value


def _span(text: str, node: ast.stmt) -> tuple[int, int]:
    """Where a statement starts and ends in the text."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _at(text, node.lineno, node.col_offset), _at(text, node.end_lineno, node.end_col_offset)


def _start_with_decorators(text: str, node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return _at(text, min([node.lineno, *(d.lineno for d in decorators)]), 0)


def _at(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


if __name__ == "__main__":
    for path in STUBS:
        path.write_text(stub(path), "utf-8")
