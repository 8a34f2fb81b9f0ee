"""A process with both coordinators is killed at a random moment: transactions are whole or absent."""

import random
import time
from pathlib import Path

import pytest

import kstore
from kstore.serving.groups.coordinator import GroupCoordinator
from kstore.serving.transactions.coordinator import TransactionCoordinator
from tests.helpers.clock import T0, Clock
from tests.helpers.effort import SEED, times
from tests.helpers.processes import Program
from tests.serving.requests import call

# Two producers, each in a thread: a transaction writes its number to three partitions and commits it as an offset.
# Each line that is written is a number whose end was acknowledged.
PROGRAM = """
import sys, threading
from pathlib import Path
from tests.helpers.clock import T0, Clock
from tests.serving.test_transaction_coordinator import Client, Server

server = Server(Path(sys.argv[1]), Clock())
seed = int(sys.argv[2])
if "orders" not in server.store.topics:
    server.store.create_topic("orders", 3)
print("ready", flush=True)

def work(name):
    client = Client(server, name)
    while client.init():
        pass
    group = "g-" + name
    number = max([int(each.split()[1]) for each in values() if each.startswith(name)], default=0)
    while True:
        number += 1
        commits = (number + seed) % 4 != 0
        assert client.add(0, 1, 2) == [0, 0, 0]
        for partition in range(3):
            assert client.send(f"{name} {number}".encode(), partition) == 0
        assert client.add_offsets(group) == 0
        assert client.commit_offset(number, group) == 0
        assert client.end(commits=commits) == 0
        if commits:
            sys.stdout.write(f"{name} {number}\\n")
            sys.stdout.flush()

def values():
    return [r.value.decode() for p in range(3) for r in server.store.log("orders", p).records()]

for name in ("one", "two"):
    threading.Thread(target=work, args=(name,), daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.parametrize("kill", range(times(4)))
def test_transactions_are_whole_or_absent_after_a_kill(tmp_path: Path, kill: int) -> None:
    rng = random.Random(SEED * 1000 + kill)
    acknowledged: list[str] = []
    clock = Clock()
    for life in range(3):
        with Program(PROGRAM, tmp_path, kill + life) as program:
            assert program.first == "ready"
            acknowledged += [program.read() for _ in range(rng.randrange(1, 30))]
            time.sleep(rng.random() * 0.01)
            program.kill()
            while line := program.read():
                acknowledged.append(line)
        with kstore.LogStore(tmp_path, mode="a", background=False, clock=clock) as store:
            groups = GroupCoordinator(store, clock)
            transactions = TransactionCoordinator(store, groups, clock)
            clock.now = T0 + 60_001  # an open transaction, which keeps readers from what follows, is aborted
            transactions.tick()
            for each in call(transactions.list_transactions)["transactionStates"]:
                assert each["transactionState"] in ("Empty", "CompleteCommit", "CompleteAbort")
            found = [
                [record.value for record in store.log("orders", at).records(isolation="read_committed")]
                for at in range(3)
            ]
            for name in ("one", "two"):
                mine = [[each for each in part if each.startswith(name.encode())] for part in found]
                assert mine[0] == mine[1] == mine[2]
                assert len(set(mine[0])) == len(mine[0])
                assert {each.encode() for each in acknowledged if each.startswith(name)} <= set(mine[0])
                offsets = call(groups.offset_fetch, groupId=f"g-{name}", topics=None)["topics"]
                last = int(mine[0][-1].split()[1]) if mine[0] else None
                assert [each["partitions"][0]["committedOffset"] for each in offsets] == (
                    [last] if last else []
                )
