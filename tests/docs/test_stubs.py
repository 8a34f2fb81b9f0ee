"""Do the stubs carry the docstrings of the compiled modules?"""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import kstore

REPOSITORY = Path(__file__).parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_stubs", REPOSITORY / "docs" / "generate_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


@pytest.mark.parametrize("path", GENERATE.STUBS, ids=lambda path: path.stem)
def test_a_stub_is_up_to_date(path: Path) -> None:
    assert GENERATE.stub(path) == path.read_text("utf-8"), "run: python docs/generate_stubs.py"


def test_public_names_have_docstrings() -> None:
    stubs = {path.relative_to(REPOSITORY).as_posix(): path for path in GENERATE.STUBS}
    seen = set()
    for name in kstore.__all__:
        thing = getattr(kstore, name)
        path = stubs.get(f"{getattr(thing, '__module__', '').replace('.', '/')}.pyi")
        if path is not None:
            body = ast.parse(path.read_text("utf-8")).body
            (node,) = (n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name)
            assert ast.get_docstring(node), name
            seen.add(name)
    assert {"Record", "RecordBatch", "Segment", "Ticket", "encode_batch"} <= seen


def test_a_docstring_is_replaced_and_the_rest_is_kept() -> None:
    bare = 'class A:  # one\n    @property\n    def b(self) -> int: ...  # ü\n\ndef c(x: str = "ü") -> None: ...\n'
    told = (
        'class A:  # one\n    """Old.\n\n    More."""\n\n    @property\n    def b(self) -> int:\n'
        '        """Old."""  # ü\n\ndef c(x: str = "ü") -> None:\n    """Old: ü"""\n'
    )
    assert GENERATE.without_docstrings(bare) == bare
    assert GENERATE.without_docstrings(told) == bare
