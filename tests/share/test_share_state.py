"""The state of a share group, beside a model: a plain list with what became of each record."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kstore.engine.share.share_state import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    ShareState,
    Update,
    decode_value,
    encode_value,
)
from tests.helpers.effort import times

LOCK = 100
WORKERS = [1, 2, 3]


@dataclass
class Job:
    """A record: how often it was delivered, and what became of it."""

    count: int = 0
    state: str = "new"  # or "acquired", "released", "done"
    worker: int = 0
    until: int = 0


class ShareStateMachine(RuleBasedStateMachine):
    """Each decision is stored, taken in by two states, of which one reads it from its bytes, and made in the
    model."""

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        self.now = 1000
        self.dead: set[int] = set()
        self.jobs = [Job(state="done") for _ in range(start)]
        self.stored: list[tuple[bytes, bool]] = []
        self.state, self.reader = ShareState(), ShareState()
        self.do(Update((), start, 0, 7, is_snapshot=True))

    def do(self, update: Update) -> None:
        value = encode_value(update, 3, self.now)
        assert decode_value(value, is_snapshot=update.is_snapshot) == (update, 3)
        self.stored.append((value, update.is_snapshot))
        self.state.apply(update)
        if len(value) % 3 == 0:  # once more, as after an interrupt
            self.state.apply(update)
        self.reader.apply(decode_value(value, is_snapshot=update.is_snapshot)[0])

    def again(self) -> int | None:
        """The first record that is to be delivered again."""
        for offset, job in enumerate(self.jobs):
            is_lost = job.state == "acquired" and (job.until <= self.now or job.worker in self.dead)
            if is_lost or (job.state == "released" and job.until <= self.now):
                return offset
        return None

    @rule(worker=st.sampled_from(WORKERS), gap=st.sampled_from([0, 0, 0, 1, 3]))
    def take(self, worker: int, gap: int) -> None:
        offset = self.state.available(self.now, self.dead)
        assert offset == self.again()
        if offset is None:
            self.jobs += [Job(state="done") for _ in range(gap)] + [Job()]
            offset = len(self.jobs) - 1
        self.dead.discard(worker)
        self.do(self.state.acquire(offset, worker, self.now + LOCK))
        job = self.jobs[offset]
        job.count, job.state, job.worker, job.until = job.count + 1, "acquired", worker, self.now + LOCK

    def acquired(self) -> list[int]:
        return [offset for offset, job in enumerate(self.jobs) if job.state == "acquired"]

    @precondition(lambda self: self.acquired())
    @rule(data=st.data(), what=st.sampled_from(["accept", "reject", "release", "delay", "renew"]))
    def acknowledge(self, data: st.DataObject, what: str) -> None:
        offset = data.draw(st.sampled_from(self.acquired()))
        job = self.jobs[offset]
        assert self.state.holds(offset, job.count, job.worker)
        assert not self.state.holds(offset, job.count + 1, job.worker)
        assert not self.state.holds(offset, job.count, job.worker + 1)
        if what == "renew":
            job.until = self.now + LOCK
            self.do(self.state.renew(offset, job.until))
        elif what in ("release", "delay"):
            job.state, job.until = "released", 0 if what == "release" else self.now + 50
            self.do(self.state.release(offset, job.until))
        else:
            job.state = "done"
            self.do(self.state.finish(offset, ACKNOWLEDGED if what == "accept" else ARCHIVED))

    @rule(step=st.sampled_from([1, 20, 60, 200]))
    def wait(self, step: int) -> None:
        self.now += step

    @rule(worker=st.sampled_from(WORKERS))
    def die(self, worker: int) -> None:
        self.dead.add(worker)
        self.state.look_again()

    @rule(data=st.data())
    def delete_old(self, data: st.DataObject) -> None:
        """Retention deletes records, perhaps such as were not delivered yet."""
        start = data.draw(st.integers(0, len(self.jobs) + 2))
        self.do(Update((), start))
        self.jobs += [Job() for _ in range(start - len(self.jobs))]
        for job in self.jobs[:start]:
            job.state = "done"

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(0, len(self.jobs)))
        self.do(self.state.truncated(end, 4, 8))
        del self.jobs[end:]

    @rule()
    def replace(self) -> None:
        """Another worker reads the snapshot alone."""
        update = self.state.snapshot()
        self.do(update)
        self.reader = ShareState()
        self.reader.apply(update)

    @invariant()
    def is_as_the_model(self) -> None:
        if not hasattr(self, "jobs"):
            return
        names = {"acquired": ACQUIRED, "released": AVAILABLE}
        expected = {
            offset: (names[job.state], job.count, job.worker if job.state == "acquired" else 0, job.until)
            for offset, job in enumerate(self.jobs)
            if job.state in names
        }
        for state in (self.state, self.reader):
            assert state.in_flight == expected
            assert list(state.in_flight) == sorted(expected)
            assert (state.start, state.end) == (min(expected, default=len(self.jobs)), len(self.jobs))
        assert self.state.workers() == {job.worker for job in self.jobs if job.state == "acquired"}


TestShareState = ShareStateMachine.TestCase
TestShareState.settings = settings(max_examples=times(60), stateful_step_count=40)


@pytest.mark.parametrize(
    "batch",
    [
        (5, 4, ACKNOWLEDGED, 0, 0, 0),
        (2**63 - 1, 2**63 - 1, ACQUIRED, 1, 1, 1),
        (3, 3, ACQUIRED, 1, 1, 1),  # it is done
        (7, 9, ACQUIRED, 1, 1, 1),
    ],
)
def test_updates_that_no_state_leads_to(batch: tuple[int, int, int, int, int, int]) -> None:
    """They are refused, as damage."""
    state = ShareState()
    state.apply(Update((), 6, is_snapshot=True))
    with pytest.raises(ValueError, match="is "):
        state.apply(Update((batch,)))


def test_ranges_cost_nothing() -> None:
    """A range as large as the log can be is one step."""
    state = ShareState()
    state.apply(Update(((0, 2**63 - 2, ARCHIVED, 0, 0, 0),)))
    assert (state.start, state.end, state.in_flight) == (2**63 - 1, 2**63 - 1, {})


def test_values_that_are_cut_or_changed() -> None:
    """Each is refused, or read as what it says; no byte behind it is touched."""
    state = ShareState()
    for offset in range(3):
        state.apply(state.acquire(2 * offset, 5, 1000, 1, 2))
    for update in (state.snapshot(), state.acquire(9, 5, 2000, 1, 2), state.finish(2, ACKNOWLEDGED)):
        value = encode_value(update, 1, 1)
        for size in range(len(value)):
            with pytest.raises(ValueError, match=r"^an? "):
                decode_value(value[:size], is_snapshot=update.is_snapshot)
        for bit in range(8 * len(value)):
            changed = bytearray(value)
            changed[bit // 8] ^= 1 << bit % 8
            try:
                found, epoch = decode_value(bytes(changed), is_snapshot=update.is_snapshot)
            except ValueError:
                continue
            assert encode_value(found, epoch, 1) == bytes(changed) or update.is_snapshot
