"""help() of what kstore offers: it begins with an example that runs, and every text stands by itself."""

import inspect
import logging
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import kstore
from tests.helpers.processes import environment

# words that point outside the text, or that are none of plain English
UNCLEAR = re.compile(r"^The same\b|\(?\bspec \d|\banew\b|\blook again\b|in the midst|on its word|\bso many\b")


def test_the_example_in_the_help_of_kstore_runs_in_an_empty_directory(tmp_path: Path) -> None:
    summary, example, *_ = (kstore.__doc__ or "").split("\n\n    ", 1)
    assert summary.count("\n") == 0
    program = textwrap.dedent("    " + example.split("\n\nStart with")[0])
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 b'a' b'first'\n1 b'b' b'second'\nb'second'\n"


def test_dir_shows_the_public_names() -> None:
    assert dir(kstore) == sorted(kstore.__all__)
    assert all(hasattr(kstore, name) for name in dir(kstore))


def test_logging_is_silent_by_default(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        log.roll()  # which is reported
    handlers = logging.getLogger("kstore").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]


def texts() -> Iterator[tuple[str, object]]:
    """What help() shows of the public names: of functions, classes and their public methods."""
    yield "kstore", kstore
    for name in kstore.__all__:
        public = getattr(kstore, name)
        if isinstance(public, int | str):
            continue
        yield name, public
        for own in sorted(vars(public)) if inspect.isclass(public) else ():
            member = inspect.getattr_static(public, own)
            if not own.startswith("_") and (
                inspect.isroutine(member) or isinstance(member, property | classmethod)
            ):
                yield f"{name}.{own}", member


def test_every_text_stands_by_itself() -> None:
    wrong = []
    for name, what in texts():
        text = inspect.getdoc(what)
        if not text or UNCLEAR.search(text):
            wrong.append((name, text and UNCLEAR.findall(text)))
    assert wrong == []
