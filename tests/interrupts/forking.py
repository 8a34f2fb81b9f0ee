"""A process that forks while its threads write a log: python -m tests.interrupts.forking DIRECTORY SEED HOW
COUNT.

HOW is what its threads do: "append", "appender" or "all". Prints "sound" if nothing went wrong.
"""

import faulthandler
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kstore

LIMIT = 60
OPTIONS = {
    "internal_segment_bytes": 3000,
    "segment_index_bytes": 256,
    "index_interval_bytes": 100,
    "file_delete_delay_ms": 0,
    "retention_bytes": 100_000_000,
}
WRITES = ("append", "extend", "append_batches", "roll", "truncate_to")


def calls(log: Any, out: Any, directory: Path) -> dict[str, Callable[[], object]]:
    """Every public call that there is."""
    batch = kstore.encode_batch([(-1, None, b"child", None)])
    # To read all would take as long as the threads have written.
    near = max(log.log_start_offset, log.log_end_offset - 1000)
    return {
        "append": lambda: log.append(b"child"),
        "extend": lambda: log.extend([b"child"] * 3),
        "append_batches": lambda: log.append_batches(batch),
        "flush": log.flush,
        "wait_until_durable": lambda: log.wait_until_durable(log.log_end_offset),
        "roll": log.roll,
        "retain": log.retain,
        "delete_records": lambda: log.delete_records(1),
        "truncate_to": lambda: log.truncate_to(1),
        "truncate_fully_and_start_at": lambda: log.truncate_fully_and_start_at(5),
        "configure": lambda: log.configure(retention_ms=1),
        "assign_leader_epoch": lambda: log.assign_leader_epoch(9),
        "adopt": lambda: log.adopt(directory / "none.log"),
        "refresh": log.refresh,
        "records": lambda: [r.value for r in log.records(near)],
        "get": lambda: log.get(log.log_start_offset),
        "find": lambda: log.find(timestamp=0),
        "scan": lambda: [len(batch) for batch in log.scan(start=near, threads=2)],
        "follow": lambda: [r.offset for r in log.follow(near, timeout=0)],
        "last_stable_offset": log.last_stable_offset,
        "producers": log.producers,
        "repr": lambda: repr(log),
        "appender.append": lambda: out.append(b"child"),
        "appender.flush": out.flush,
        "appender.wait": lambda: out.append(b"child").wait(),
        "appender.close": out.close,
        "new appender": lambda: log.appender().close(),
        "open": lambda: kstore.open(directory / "t-0", "a"),
        "open beside": lambda: kstore.open(directory / "beside-0", "a"),
        "abandon": log.abandon,
        "close": log.close,
    }


def child(log: Any, out: Any, directory: Path, which: int) -> None:
    """What a child of fork does: one call of the list, then close(), then it ends in one of two ways."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=2, chain=True)
    signal.alarm(LIMIT)
    every = calls(log, out, directory)
    name = list(every)[which % len(every)]
    os.write(2, f"in the child: {name}\n".encode())
    for call in (every[name], log.close, log.close):
        try:
            answer = call()
        except (kstore.KstoreError, OSError) as e:
            if not str(e):
                os.write(1, f"{name}: {type(e).__name__} without a message\n".encode())
        except BaseException as e:  # noqa: BLE001
            os.write(1, f"{name}: {type(e).__name__}: {e}\n".encode())
        else:
            if name in WRITES and call is every[name]:
                os.write(1, f"{name} in a forked child gave {answer!r}\n".encode())
    if which % 2:
        os._exit(0)


def main(directory: Path, seed: int, how: str, count: int) -> None:
    rng = random.Random(seed)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    (directory / "meta.properties").write_text("version=1\n")
    log = kstore.open(directory / "t-0", "a", durability="group", **OPTIONS)
    out = log.appender(linger_ms=1)
    acked: dict[int, bytes] = {}
    stopped = threading.Event()
    wrong: list[str] = []

    def work(number: int) -> None:
        own = random.Random(seed * 100 + number)
        n = 0
        try:
            while not stopped.is_set():
                n += 1
                value = b"%d-%d" % (number, n)
                if how == "appender" or (how == "all" and own.random() < 0.4):
                    acked[out.append(value).wait()] = value
                elif own.random() < 0.8:
                    acked[log.append(value)] = value
                else:
                    values = [value + b"-%d" % i for i in range(5)]
                    acked.update(zip(log.extend(values, batch_bytes=100), values, strict=True))
                if how == "all" and own.random() < 0.3:
                    own.choice((log.flush, log.roll, log.retain, out.flush))()
        except BaseException as e:  # noqa: BLE001
            wrong.append(f"a thread of the parent: {type(e).__name__}: {e}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    first = rng.randrange(1000)
    for which in range(first, first + count):
        time.sleep(rng.random() * 0.004)  # to fork at a random moment
        pid = os.fork()
        if pid == 0:
            child(log, out, directory, which)
            return  # and the interpreter ends as it does
        status = os.waitpid(pid, 0)[1]
        if status:
            wrong.append(f"child {which} of fork ended with status {status}")
        elif not (directory / ".lock").exists():
            wrong.append(f"child {which} removed the lock")
    stopped.set()
    for thread in threads:
        thread.join()
    log.close()
    with kstore.open(directory / "t-0") as read:
        there = {r.offset: bytes(r.value) for r in read.records()}
        if not read.recovery.clean or read.recovery.findings:
            wrong.append(f"not clean: {read.recovery}")
    if any(there.get(o) != v for o, v in acked.items()):
        wrong.append(f"lost: {[o for o, v in acked.items() if there.get(o) != v][:9]}")
    if b"child" in there.values():
        wrong.append("a child has written")
    print("\n".join(wrong) or "sound")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
