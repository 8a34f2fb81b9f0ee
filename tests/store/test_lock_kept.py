"""The lock of a store, when its own process opens and closes the lock file once more."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kstore
from tests.helpers.processes import environment

OTHER = """
import sys, kstore
try:
    kstore.LogStore(sys.argv[1], mode="a").close()
except kstore.LogLockedError:
    print("locked")
"""


def asked(path: Path) -> str:
    command = [sys.executable, "-c", OTHER, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment()
    ).stdout.strip()


def test_a_copy_of_the_directory_leaves_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("t")
        # this closes a descriptor of .lock, and the system drops an fcntl lock then
        shutil.copytree(path, tmp_path / "copy")
        assert asked(path) == "locked"
    assert asked(path) == ""


def test_a_child_that_outlives_the_writer_has_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "data"
    program = """
import os, sys, time, kstore
store = kstore.LogStore(sys.argv[1], mode="a", background=False)
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
time.sleep(0.2)
print(child, flush=True)
os._exit(1)  # as a kill does it
"""
    made = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert made.stdout is not None
    child = int(made.stdout.readline())
    try:
        made.wait()
        until = time.monotonic() + 60
        while asked(path) == "locked" and time.monotonic() < until:
            time.sleep(0.05)
        assert asked(path) == ""
    finally:
        os.kill(child, 9)
        made.stdout.close()
