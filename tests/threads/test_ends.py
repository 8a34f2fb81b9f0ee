"""The interpreter ends while logs, stores, cursors, followers and appenders are in use; other interpreters;
spawned processes.

Nothing hangs, stderr is empty, and what was acknowledged is there afterwards.
"""

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED, some, times
from tests.helpers.processes import environment, run_python

BEGIN = """
import asyncio, atexit, builtins, gc, os, sys, threading, time, types
root = sys.argv[1]


def last():  # runs after all that kstore has registered
    if hasattr(builtins, "last_of_all"):
        builtins.last_of_all()


atexit.register(last)
import kstore

OPTIONS = {"internal_segment_bytes": 2000, "segment_index_bytes": 256}


def do(number, code):
    \"\"\"Runs a part in a module of its own, with a log of its own.\"\"\"
    part = sys.modules[f"part{number}"] = types.ModuleType(f"part{number}")
    vars(part).update(globals(), path=f"{root}/t-{number}")
    vars(part)["say"] = lambda offset: os.write(1, b"%d %d\\n" % (number, offset))
    exec(code, vars(part))
"""
LOG = 'log = kstore.open(path, "a", **OPTIONS)\n'
CASES = {
    "a log": LOG + "say(log.append(b'v'))",
    "a log in a cycle": LOG + "log.itself = log; say(log.append(b'v')); del log",
    "a log that rolls": LOG + "[say(log.append(b'v' * 300)) for _ in range(50)]",
    "an appender": LOG + "out = log.appender(linger_ms=60_000); out.append(b'v'); say(0)",
    "an appender, by itself": LOG + "out = log.appender(linger_ms=60_000); out.append(b'v'); say(0); del log",
    "appends of asyncio": LOG
    + """
async def work():
    say(await log.append_async(b"v"))
    builtins.left = [asyncio.ensure_future(log.append_async(b"w")) for _ in range(50)]
    await asyncio.sleep(0)

loop = asyncio.new_event_loop()
loop.run_until_complete(work())
builtins.loop = loop
loop.set_debug(False)
asyncio.events.BaseDefaultEventLoopPolicy = None
import warnings; warnings.simplefilter("ignore")
for task in builtins.left: task._log_destroy_pending = False
""",
    "a follower": LOG
    + """
follower = kstore.open(path).follow(0)
say(log.append(b"v"))
assert next(follower).value == b"v"
threading.Thread(target=lambda: next(follower), daemon=True).start()
""",
    "followers in threads": LOG
    + """
def follow():
    for record in kstore.open(path).follow(0):
        pass

for _ in range(4):
    threading.Thread(target=follow, daemon=True).start()
[say(log.append(b"v" * 100)) for _ in range(50)]
""",
    "a cursor": LOG
    + """
say(log.append(b"v"))
cursor = log.cursor("group", follow=True)
cursor.commit(next(iter(cursor)))
threading.Thread(target=lambda: next(iter(cursor)), daemon=True).start()
""",
    "a store": """
builtins.store = store = kstore.LogStore(path + ".store", mode="a", file_delete_delay_ms=10, **OPTIONS)
store.create_topic("t", 1)
store.create_topic("gone", 3)
[say(store.append("t", b"v" * 100)[1]) for _ in range(50)]
store.delete_topic("gone")
follower = store.follow(["t"])
os.symlink(path + ".store/t-0", path)
""",
    "threads that append": LOG
    + """
def work():
    while True:
        say(log.append(b"v" * 100))

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
""",
    "threads with appenders": LOG
    + """
def work():
    with log.appender(linger_ms=1) as out:
        while True:
            say(out.append(b"v" * 100).wait())

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
""",
    "a thread that goes on": LOG
    + """
def work():
    time.sleep(0.05)
    [say(log.append(b"v" * 300)) for _ in range(20)]
    log.close()

threading.Thread(target=work).start()
""",
    "an append at the very end": LOG
    + """
def finish():
    [say(log.append(b"v" * 300)) for _ in range(20)]
    log.close()

builtins.last_of_all = finish
""",
    "appends by a finalizer while a thread is stopped inside the log": """
log = kstore.open(path, "a", durability="group")
out = log.appender(linger_ms=1e6)

class Last:
    def __del__(self, log=log, out=out, say=say, refusals=(kstore.LogFailedError, kstore.LogClosedError)):
        for append in (log.append, lambda value: out.append(value) and None):
            try:
                offset = append(b"z")
            except refusals:
                continue
            if offset is not None:
                say(offset)

def busy():
    while True:
        say(log.append(b"by the thread"))

threading.Thread(target=busy, daemon=True).start()
time.sleep(0.05)
builtins.last = Last()
""",
    "an append by a finalizer": LOG
    + """
class Owner:
    def __del__(self):
        self.say(self.log.append(b"v"))
        self.log.close()

builtins.owner = Owner()
owner.log, owner.say = log, say
""",
    "a scan with threads": """
log = kstore.open(path, "a")
say(log.extend([b"." * 1000] * 12_000)[-1])  # several parts for the threads
rows = iter(log.scan(threads=2, batch_rows=10))
next(rows)
""",
}
ENDS = {"return": ("", 0), "exit": ("\nsys.exit(3)", 3), "exception": ("\nraise SystemExit(4)", 4)}


def ended(
    parts: list[str], root: Path, end: str = "", begin: str = BEGIN
) -> tuple[int, list[list[int]], str]:
    """The exit code of a program, what it acknowledged in each part, and what it wrote to stderr."""
    script = begin + "".join(f"do({number}, {part!r})\n" for number, part in enumerate(parts)) + end
    done = run_python(script, root, options=["-W", "ignore::ResourceWarning", "-X", "faulthandler"])
    acknowledged: list[list[int]] = [[] for _ in parts]
    for line in done.stdout.splitlines():
        number, offset = map(int, line.split())
        acknowledged[number].append(offset)
    return done.returncode, acknowledged, done.stderr


@pytest.mark.parametrize("turn", range(times(3)))
def test_an_interpreter_ends(tmp_path: Path, turn: int) -> None:
    """A third of the cases at a time, in any order."""
    names = list(CASES)
    random.Random(f"{SEED} {turn // 3}").shuffle(names)
    names = names[turn % 3 :: 3]
    how = list(ENDS)[(turn + turn // 3) % 3]
    line, code = ENDS[how]
    returned, acknowledged, said = ended([CASES[name] for name in names], tmp_path, line)
    assert (returned, said) == (code, ""), (names, how)
    for number, name in enumerate(names):
        assert acknowledged[number], name
        path = tmp_path / f"t-{number}"
        there = [record.offset for record in kstore.open(path)]
        assert there == list(range(len(there))), name
        assert set(acknowledged[number]) <= set(there), name
        with kstore.open(path, "a") as log:
            assert log.append(b"again") == len(there), name


THINGS = {
    "log": 'kstore.open(path, "a", **OPTIONS)',
    "reader": "kstore.open(path)",
    "out": "log.appender(linger_ms=60_000)",
    "follower": "log.follow(0)",
    "cursor": 'log.cursor("group")',
    "records": "log.records()",
    "batches": "log.batches()",
    "part": "log.read(0)",
    "view": 'memoryview(next(iter(log.scan(["value"]))).column("value").data)',
    "segment": "log.segments[0]",
}


@pytest.mark.parametrize("seed", some(range(100), 3, "finalizers"))
def test_finalizers_in_any_order(tmp_path: Path, seed: int) -> None:
    """At the end things are torn down in the order of names in a module, or by the collector, in any."""
    rng = random.Random(seed)
    names = list(THINGS)
    rng.shuffle(names)
    lines = [f"things = {{}}\nlog = {THINGS['log']}\nlog.extend([b'v'] * 50)"]
    lines += [
        f"things[{name!r}] = log" if name == "log" else f"things[{name!r}] = {THINGS[name]}"
        for name in THINGS
    ]
    lines += ["next(things['records']); next(things['batches']); things['out'].append(b'w')", "del log"]
    for first, second in itertools.pairwise(names):
        if rng.random() < 0.5:  # cycles, which only the collector takes apart
            lines.append(f"box = [things[{first!r}], things[{second!r}]]; box.append(box)")
    where = rng.choice(["globals()", "builtins.__dict__", "sys.modules['threading'].__dict__"])
    lines.append(f"for name in {names}: {where}['a_' + name] = things.pop(name)")
    lines.append(rng.choice(["", "del box" if any("box" in line for line in lines) else "", "gc.disable()"]))
    returned, _, said = ended(["\n".join(lines)], tmp_path)
    assert (returned, said) == (0, ""), f"seed {seed}"
    assert len(list(kstore.open(tmp_path / "t-0"))) >= 50


EMPTIED = """
class Last:
    def __init__(self, things):
        self.things, self.vars = things, vars
        self.modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "kstore"]

    def __del__(self):  # as CPython does at the end: names of a module become None, though they are needed
        for module in self.modules:
            for name in list(self.vars(module)):
                self.vars(module)[name] = None
        self.things.clear()

log = kstore.open(path, "a", **OPTIONS)
say(log.extend([b"v" * 50] * 500)[-1])
store = kstore.LogStore(path + ".store", mode="a")
store.create_topic("t", 2)
[store.append("t", b"v") for _ in range(10)]
cursor, rows = log.cursor("group"), iter(log.scan(batch_rows=10, threads=2))
next(rows)
things = [cursor, log, store, rows, store.log("t", 0), log.follow(0), log.appender(), kstore.open(path)]
log.close()
store.close()
builtins.last = Last(things)
del log, store, cursor, rows, things
"""


def test_finalizers_of_modules_that_are_empty(tmp_path: Path) -> None:
    assert ended([EMPTIED], tmp_path) == (0, [[499]], "")


OTHER_INTERPRETER = """
try:
    from concurrent import interpreters
    run = lambda code: interpreters.create().exec(code)
except ImportError:
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    def run(code):
        error = interpreters.run_string(interpreters.create(), code)
        if error is not None:
            raise RuntimeError(error)
log = kstore.open(path, "a", **OPTIONS)
say(log.append(b"v"))
code = f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import kstore
    kstore.open({path!r}).get(0)
except ImportError as e:
    assert "interpreter" in str(e), e
else:
    raise AssertionError("two interpreters share what is made for one")
'''
for _ in range(3):
    run(code)
say(log.append(b"v"))
log.close()
"""


def test_another_interpreter_is_refused(tmp_path: Path) -> None:
    """Modules of Cython are for one interpreter of a process. The first one goes on."""
    returned, acknowledged, said = ended([OTHER_INTERPRETER], tmp_path)
    if "No module named '_xxsubinterpreters'" in said:
        pytest.skip("this Python cannot make another interpreter")
    assert (returned, acknowledged, said) == (0, [[0, 1]], "")
    assert kstore.open(tmp_path / "t-0").recovery.clean


def test_a_python_without_the_gil_is_refused(tmp_path: Path) -> None:
    """Free-threaded CPython takes it again for kstore's modules, unless PYTHON_GIL=0 forbids that."""
    script = BEGIN.replace("import kstore\n", "sys._is_gil_enabled = lambda: False\nimport kstore\n")
    returned, _, said = ended([], tmp_path, LOG, begin=script)
    assert returned == 1
    assert "ImportError: kstore needs the GIL" in said
    assert not (tmp_path / "t-0").exists()


SPAWNED = """
import multiprocessing, os, sys
import kstore

path = sys.argv[1]

def read_and_try_to_write(path):
    assert [record.value for record in kstore.open(path)] == [b"v"] * 3
    try:
        kstore.open(path, "a")
    except kstore.LogLockedError as e:
        return str(os.getppid()) in str(e)

if __name__ == "__main__":
    log = kstore.open(path, "a")
    out = log.appender(linger_ms=60_000)
    for _ in range(3):
        log.append(b"v")
    for method in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            refused = pool.apply(read_and_try_to_write, (path,))
        assert refused or method == "forkserver", method  # its parent is the server
    try:
        multiprocessing.get_context("spawn").Process(target=print, args=(log,)).start()
    except TypeError as e:
        assert "cannot be pickled" in str(e)
    else:
        raise AssertionError("an open log was given to another process")
    out.append(b"v")
    out.close()
    print(log.append(b"v"))
    log.close()
"""


def test_processes_that_are_spawned(tmp_path: Path) -> None:
    """They open the log by its path; an open log is not handed to them."""
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", str(script), str(tmp_path / "t-0")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["4"], "")
    assert kstore.open(tmp_path / "t-0").recovery.clean
