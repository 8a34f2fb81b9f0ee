"""Random stories of a group against plain dicts: members come, go and die, records are appended and
deleted."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kstore
from tests.helpers.effort import times

PARTITIONS = st.integers(0, 2)
MEMBERS = st.integers(0, 3)
TOPIC = "t"
Places = set[tuple[int, int]]


class Group(RuleBasedStateMachine):
    """Members of one group in one process; a crash is a cursor that is forgotten without being closed."""

    @initialize()
    def begins(self) -> None:
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.store = kstore.LogStore(self.path, mode="a", background=False)
        self.store.create_topic(TOPIC, 3)
        self.members: dict[int, kstore.StoreCursor] = {}
        self.ends = [0, 0, 0]
        self.starts = [0, 0, 0]
        self.committed = [0, 0, 0]
        # by member: partition, offset behind the last record given
        self.given: dict[int, dict[int, int]] = {}
        self.delivered: Places = set()

    def teardown(self) -> None:
        for member in self.members.values():
            member.close()
        self.store.close()
        shutil.rmtree(self.path)

    @rule(partition=PARTITIONS, count=st.integers(1, 5))
    def appends(self, partition: int, count: int) -> None:
        self.store.log(TOPIC, partition).extend([b"v"] * count)
        self.ends[partition] += count

    @rule(partition=PARTITIONS)
    def deletes_what_is_committed(self, partition: int) -> None:
        upto = self.committed[partition]
        if upto > self.starts[partition]:
            log = self.store.log(TOPIC, partition)
            log.delete_records(upto)
            self.starts[partition] = upto

    @rule(number=MEMBERS)
    def comes(self, number: int) -> None:
        if number not in self.members:
            self.members[number] = kstore.LogStore(self.path).cursor("g", [TOPIC])
            self.given[number] = {}

    @rule(number=MEMBERS, close=st.booleans())
    def goes(self, number: int, close: bool) -> None:
        member = self.members.pop(number, None)
        if member is not None:
            if close:
                member.close()
            del member, self.given[number]

    @rule(number=MEMBERS, most=st.integers(1, 12))
    def reads(self, number: int, most: int) -> None:
        member = self.members.get(number)
        if member is None:
            return
        member._update()
        given = self.given[number]
        for partition in [p for p in given if (TOPIC, p) not in member.partitions]:
            del given[partition]  # it was given up, as all of it was committed
        for record in member:
            expected = given.get(record.partition, self.committed[record.partition])
            assert record.offset == expected
            given[record.partition] = record.offset + 1
            self.delivered.add((record.partition, record.offset))
            most -= 1
            if not most:
                break

    @rule(number=MEMBERS, durable=st.booleans())
    def commits(self, number: int, durable: bool) -> None:
        member = self.members.get(number)
        if member is not None:
            member.commit(durable=durable)
            for partition, offset in self.given[number].items():
                if (TOPIC, partition) in member.partitions or offset > self.committed[partition]:
                    assert offset >= self.committed[partition]
                    self.committed[partition] = offset

    @precondition(lambda self: self.members)
    @rule()
    def all_have_a_look(self) -> None:
        for _ in range(2):
            for member in self.members.values():
                member._update()

    @invariant()
    def no_partition_has_two(self) -> None:
        having = [tp.partition for member in self.members.values() for tp in member.partitions]
        assert len(having) == len(set(having))

    @invariant()
    def positions_are_what_was_committed(self) -> None:
        for partition in range(3):
            found = kstore.open(self.path / f"{TOPIC}-{partition}").cursors().get("g")
            assert (0 if found is None else found.offset) == self.committed[partition]
            behind = {(partition, offset) for offset in range(self.committed[partition])}
            assert behind <= self.delivered


Group.TestCase.settings = settings(max_examples=times(20), stateful_step_count=40)
TestGroup = Group.TestCase
