"""Every code block of README and docs runs, and prints what the page says.

The blocks of a page run in order in one empty directory. `python` and `sh` blocks are run, and an `output`
block is what
the one before it must have printed ("..." stands for anything). `text` is neither. `<!-- skip: next
"reason" -->` before a
block leaves it out. A page that speaks of `kafka-data` finds a log directory there that a real broker wrote.
"""

import contextlib
import difflib
import doctest
import importlib.util
import io
import logging
import os
import re
import shutil
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.spark.java import provide

pytest.importorskip("sybil")  # environments for other versions of Spark do without

from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

REPOSITORY = Path(__file__).parents[2]
BROKER = REPOSITORY / "tests" / "golden" / "data" / "broker" / "data"
LANGUAGES = ("python", "sh", "output")
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
NOT_CODE = ("text",)
ALONE = ("spark.md",)  # in a process of its own: Java and the session stay as long as the process does
NIGHTLY = ("spark.md", "testing.md")  # a minute: Java, and every state of a disk after a power cut
NEEDS = {  # page: what its blocks import besides kstore
    "README.md": ("pyarrow",),
    "columns.md": ("pyarrow", "polars", "duckdb", "pandas"),
    "serving.md": ("confluent_kafka", "aiokafka", "kafka"),
    "spark.md": ("pyspark", "pyarrow", "pandas"),
}
FENCE = re.compile(r"^ *```(.*)$", re.MULTILINE)


class Page:
    """The blocks of one page and what the last of them printed."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._printed = ""
        self._path = path
        self._directory = directory
        self._python = PythonEvaluator()
        evaluators = {"python": self._run_python, "sh": self._run_shell, "output": self._compare}
        parsers = [CodeBlockParser(language, evaluators[language]) for language in LANGUAGES]
        self._document = Sybil([*parsers, SkipParser()]).parse(path)

    def run(self) -> int:
        """Runs all blocks and returns their number. AssertionError if an output differs from the page."""
        ran = 0
        for example in self._document.examples():
            try:
                example.evaluate()
            except unittest.SkipTest:
                continue
            ran += isinstance(example.parsed, str)  # a skip is no block
        return ran

    def _run_python(self, example: Example) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self._python(example)
        self._printed = out.getvalue()

    def _run_shell(self, example: Example) -> None:
        done = subprocess.run(
            ["sh", "-e", "-c", str(example.parsed)],
            check=False,
            cwd=self._directory,
            env=_environment(self._directory.parent / "bin"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"line {example.line}: exit code {done.returncode}\n{done.stdout}"
        self._printed = done.stdout

    def _compare(self, example: Example) -> None:
        wanted, printed = str(example.parsed), _without_trailing_spaces(self._printed)
        if not doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS):
            lines = difflib.unified_diff(
                wanted.splitlines(), printed.splitlines(), "page", "run", lineterm=""
            )
            raise AssertionError("\n".join([f"{self._path.name}, line {example.line}:", *lines]))


def _without_trailing_spaces(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def _environment(bin_: Path) -> dict[str, str]:
    """The environment for a shell, in which `kstore` is the command line of the kstore that is tested."""
    bin_.mkdir(exist_ok=True)
    for name, arguments in (("kstore", "-P -m kstore"), ("python", "")):
        script = bin_ / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    package = str(Path(kstore.__file__).parents[1])
    paths = [package, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
    }


def run_page(path: Path, directory: Path) -> int:
    """Runs the blocks of a page in an empty directory and returns how many there were."""
    work = directory / "work"
    work.mkdir()
    if "kafka-data" in path.read_text("utf-8"):
        shutil.copytree(BROKER, work / "kafka-data")
    with contextlib.chdir(work):
        return Page(path, work).run()


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Pages show how to listen to loggers; tests that come later in this process must not."""
    loggers = [logging.getLogger(name) for name in (None, "kstore", "kstore.store", "audit")]
    before = [(each, each.level, each.handlers.copy()) for each in loggers]
    yield
    for each, level, handlers in before:
        each.setLevel(level)
        for handler in {*each.handlers} - {*handlers}:
            handler.close()
        each.handlers[:] = handlers


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    spark = [pytest.mark.spark] if page.name in ALONE else []
    return [*spark, pytest.mark.nightly] if page.name in NIGHTLY else spark


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks_of(page), id=page.name) for page in PAGES])
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    for name in NEEDS.get(page.name, ()):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    blocks = sum(language in LANGUAGES for language in FENCE.findall(page.read_text("utf-8")))
    ran = _run_alone(page, tmp_path) if page.name in ALONE else run_page(page, tmp_path)
    assert ran == blocks - _skipped(page)


def test_blocks_say_what_they_are() -> None:
    """A block without a language would be run by nobody."""
    for page in [*PAGES, REPOSITORY / "CONTRIBUTING.md"]:
        text = page.read_text("utf-8")
        opening = FENCE.findall(text)[::2]
        assert "```output\n...\n```" not in text, page.name  # an output that anything matches
        assert set(opening) <= {*LANGUAGES, *NOT_CODE}, page.name


def _skipped(page: Path) -> int:
    return len(re.findall(r"<!-- skip: next \"[^\"]+\" -->", page.read_text("utf-8")))


def _run_alone(page: Path, directory: Path) -> int:
    if provide() is not None:
        pytest.skip("there is no Java")
    done = subprocess.run(
        [sys.executable, __file__, str(page), str(directory)],
        check=False,
        cwd=directory,
        env=_environment(directory / "bin"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return int(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(run_page(Path(sys.argv[1]), Path(sys.argv[2])))
