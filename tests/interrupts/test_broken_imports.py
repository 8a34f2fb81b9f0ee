"""Ctrl-C in the midst of an import that kstore makes: the library can be used all the same afterwards.

numpy refuses to be loaded a second time in a process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import environment

BROKEN = """
import os, signal, sys, time
import kstore

directory, inner = sys.argv[1:]
hits = []


def interrupt(event, args):
    if event == "import" and args[0] == inner and not hits:
        hits.append(args)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # if this is another thread, the main one has its exception meanwhile


def act():
    assert len(log.segments[0].read_headers()) == 1


log = kstore.open(directory, "a")
log.append(b"v")
sys.addaudithook(interrupt)
try:
    act()
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("nothing was interrupted")
assert hits
act()
log.close()
"""


@pytest.mark.parametrize("inner", ["numpy.exceptions", "numpy.dtypes"])
def test_a_broken_import(tmp_path: Path, inner: str) -> None:
    assert _run(BROKEN, tmp_path / "t-0", inner) == ""


def _run(program: str, *arguments: object) -> str:
    """What a Python program of its own says of what went wrong."""
    begin = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job of a shell ignores it
    command = [sys.executable, "-c", begin + program, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    return done.stderr if done.returncode == 0 else f"{done.returncode}: {done.stderr}"


SLOW = """
import time
from pathlib import Path

Path(__file__).with_name("begun").touch()
time.sleep(1)
done = True
"""
FORKED = """
import os, signal, sys, threading, time
from pathlib import Path
from kstore.libraries import library

sys.path.insert(0, sys.argv[1])


def interrupt():
    while not Path(sys.argv[1], "begun").exists():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt).start()
try:
    library("slow_to_import")
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("nothing was interrupted")
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # it would wait for ever for a thread that it has not
    os._exit(not library("slow_to_import").done)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert library("slow_to_import").done
"""


def test_a_fork_while_an_import_goes_on(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    assert _run(FORKED, tmp_path) == ""


IN_A_CIRCLE = """
from kstore.errors import LibraryError
from kstore.libraries import library

try:
    library("in_a_circle")
except LibraryError as e:
    text = str(e)
"""


def test_a_library_that_calls_kstore_while_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "in_a_circle.py").write_text(IN_A_CIRCLE)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import in_a_circle; print(in_a_circle.text, file=sys.stderr)"
    assert _run(program, tmp_path) == (
        "in_a_circle is being imported by the code that called kstore, which cannot use it yet\n"
    )


AT_THE_END = """
import atexit, signal
from contextlib import suppress
from kstore.libraries import library

signal.alarm(20)


class AtTheEnd:
    def __del__(self, library=library, errors=ImportError):
        with suppress(errors):  # whether Python can import now, is its own affair
            library("wave")


kept = AtTheEnd()
atexit.register(lambda: library("colorsys").rgb_to_hsv(0, 0, 0))
"""


def test_the_interpreter_ends() -> None:
    assert _run(AT_THE_END) == ""


WITHOUT_THREADS = """
import _thread, sys
import kstore


def none(*_):
    raise RuntimeError("can't start new thread")


with kstore.open(sys.argv[1], "a") as log:
    log.append(b"v")
log = kstore.open(sys.argv[1])
_thread.start_new_thread = none
assert len(log.segments[0].read_headers()) == 1
"""


def test_there_can_be_no_more_threads(tmp_path: Path) -> None:
    assert _run(WITHOUT_THREADS, tmp_path / "t-0") == ""


MISSING = """
import sys
import kstore

sys.modules["zstandard"] = None
try:
    with kstore.open(sys.argv[1], "a", compression_type="zstd") as log:
        log.append(b"v")
except kstore.LibraryError as e:
    assert (e.name, str(e)) == ("zstandard", "zstandard is not installed: pip install zstandard")
else:
    raise AssertionError
"""


def test_a_library_that_is_not_installed(tmp_path: Path) -> None:
    assert _run(MISSING, tmp_path / "t-0") == ""
