"""Libraries that kstore imports when they are first needed: Ctrl-C, forks, threads and the end of the
interpreter.

numpy refuses to be loaded a second time in a process, so signals wait until its import has ended.
"""

from pathlib import Path

import pytest

from tests.helpers.processes import run_python

# A background job of a shell ignores SIGINT. `pack` makes kstore import zstandard, or what stands in its
# place.
BEGIN = """
import os, signal, sys, threading, time
from pathlib import Path
import kstore

signal.signal(signal.SIGINT, signal.default_int_handler)
directory = Path(sys.argv[1])
sys.path.insert(0, sys.argv[1])


def pack(encode=kstore.encode_batch):
    return len(encode([(0, None, b"v", None)], codec="zstd")) > 0
"""
# of zstandard
IN_PLACE = """
class ZstdCompressionParameters:
    from_level = staticmethod(int)


class ZstdCompressor:
    def __init__(self, compression_params):
        pass

    def compress(self, data):
        return b"packed"

    def memory_size(self):
        return 0
"""

BROKEN = """
hits = []


def interrupt(event, args):
    if event == "import" and args[0] == sys.argv[2] and not hits:
        hits.append(args)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)


def act():
    assert len(log.segments[0].read_headers()) == 1


log = kstore.open(directory / "t-0", "a")
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
SLOW = """
import time
from pathlib import Path

Path(__file__).with_name("begun").touch()
time.sleep(1)
"""
FORKED = """
thread = threading.Thread(target=pack)
thread.start()
while not (directory / "begun").exists():
    time.sleep(0.001)
pid = os.fork()
if pid == 0:
    signal.alarm(60)  # it would wait for ever for a thread that it has not
    os._exit(not pack())
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
thread.join()
assert pack()
"""
CIRCLE = """
import kstore

try:
    kstore.encode_batch([(0, None, b"v", None)], codec="zstd")
except kstore.LibraryError as e:
    text = str(e)
"""
IN_A_CIRCLE = """
import zstandard

expected = "zstandard is being imported by the code that called kstore, which cannot use it yet"
assert zstandard.text == expected, zstandard.text
"""
AT_THE_END = """
import atexit
from contextlib import suppress

signal.alarm(60)


class AtTheEnd:
    def __del__(self, pack=pack, errors=ImportError):
        with suppress(errors):  # whether Python can still import is its own affair
            pack()


kept = AtTheEnd()
atexit.register(pack)
"""
MISSING = """
sys.modules["zstandard"] = None
try:
    with kstore.open(directory / "t-0", "a", compression_type="zstd") as log:
        log.append(b"v")
except kstore.LibraryError as e:
    assert (e.name, str(e)) == ("zstandard", "zstandard is not installed: pip install zstandard")
else:
    raise AssertionError("it is there")
"""


@pytest.mark.parametrize(
    ("program", "zstandard", "more"),
    [
        pytest.param(BROKEN, "", ["numpy.exceptions"], id="interrupted"),
        pytest.param(BROKEN, "", ["numpy.dtypes"], id="interrupted late", marks=pytest.mark.nightly),
        pytest.param(FORKED, SLOW + IN_PLACE, [], id="a fork while an import goes on"),
        pytest.param(IN_A_CIRCLE, CIRCLE, [], id="a library that calls kstore while it is imported"),
        pytest.param(AT_THE_END, IN_PLACE, [], id="the interpreter ends"),
        pytest.param(MISSING, "", [], id="a library that is not installed"),
    ],
)
def test_imports(tmp_path: Path, program: str, zstandard: str, more: list[str]) -> None:
    if zstandard:
        (tmp_path / "zstandard.py").write_text(zstandard)
    done = run_python(BEGIN + program, tmp_path, *more)
    assert (done.returncode, done.stderr) == (0, "")
