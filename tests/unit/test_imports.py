"""What is imported when. numpy starts threads, and takes longer to import than most programs run."""

import sys
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python

PROGRAM = """
import sys
import kstore

with kstore.open(sys.argv[1], "a") as log:
    log.append(b"v")
    log.extend([b"v"] * 10, batch_bytes=0)
    log.roll()
with kstore.open(sys.argv[1], "a") as log:
    assert "numpy" not in sys.modules, "an existing log"
log = kstore.open(sys.argv[1])
log.get(3), log.find(timestamp=1)
assert sum(1 for record in log) == sum(len(batch) for batch in log.scan()) == 11
assert "numpy" not in sys.modules, "numpy"
log.segments[0].read_headers()
assert "numpy" in sys.modules
"""


def test_numpy_is_imported_for_those_who_ask_for_arrays(tmp_path: Path) -> None:
    assert run_python(PROGRAM, tmp_path / "t-0").stderr == ""


BESIDE_AN_IMPORT_OF_SSL = """
import socket, sys, types
import kstore

sys.modules["ssl"] = types.ModuleType("ssl")
with kstore.open(sys.argv[1], "a") as log:
    log.append(b"v")
    ours, theirs = socket.socketpair()
    assert log.send(ours, 0).path == "sendfile"
"""


def test_sending_works_while_another_thread_imports_ssl(tmp_path: Path) -> None:
    done = run_python(BESIDE_AN_IMPORT_OF_SSL, tmp_path / "t-0", options=["-W", "ignore"])
    assert (done.returncode, done.stderr) == (0, "")


BESIDE_AN_IMPORT = """
import sys, types
import kstore

sys.modules["numpy"] = types.ModuleType("numpy")  # what other threads see while one begins to import it
with kstore.open(sys.argv[1], "a") as log:
    log.extend([b"v"] * 3, (b"k" for _ in range(3)), [1, 2, 3])
    sys.modules["numpy"].ndarray = None
    log.extend([b"v"], timestamps=[1])
    assert log.log_end_offset == 4
"""


def test_extend_works_while_another_thread_imports_numpy(tmp_path: Path) -> None:
    assert run_python(BESIDE_AN_IMPORT, tmp_path / "t-0").stderr == ""


FIRST_CALL = """
import sys

before, path = set(sys.modules), sys.argv[1]
import kstore

{}
print("imported", *(set(sys.modules) - before))
"""
APPEND = "log = kstore.open(path, 'a'); log.append(b'v'); log.close()"
READ = "next(iter(kstore.open(path)))"
HELP = """
import contextlib
import kstore.__main__

with contextlib.suppress(SystemExit):
    kstore.__main__.main(["--help"])
"""
# Modules of the standard library. `typing`, `re` and `pathlib` would take half as long as all else together.
TO_READ = {
    "__future__",
    "bisect",
    "collections",
    "contextlib",
    "errno",
    "fcntl",
    "functools",
    "itertools",
    "keyword",
    "operator",
    "reprlib",
    "struct",
    "types",
    "weakref",
}
TO_APPEND = TO_READ | {"atexit", "heapq", "threading", "warnings"}
TO_HELP = TO_READ | {
    "argparse",
    "bz2",
    "copyreg",
    "enum",
    "fnmatch",
    "gettext",
    "importlib",
    "locale",
    "lzma",
    "re",
    "shutil",
    "textwrap",
    "typing",
    "warnings",
    "zlib",
}


@pytest.mark.parametrize(
    ("work", "most", "allowed"), [(READ, 59, TO_READ), (APPEND, 98, TO_APPEND), (HELP, 7, TO_HELP)]
)
def test_a_first_call_imports_what_it_uses(work: str, most: int, allowed: set[str], tmp_path: Path) -> None:
    """No test asserts on time: the number of modules stands for it. Import what few programs use in a function,
    or by kstore.log.later, before you raise a number."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    done = run_python(FIRST_CALL.format(work), tmp_path / "t-0")
    imported = done.stdout.rpartition("imported ")[2].split()
    own = [name for name in imported if name.partition(".")[0] == "kstore"]
    others = {name.partition(".")[0] for name in imported} & sys.stdlib_module_names
    assert {name for name in others if name.strip("_") == name} - allowed == set(), done.stderr
    assert most - 5 < len(own) <= most, own
