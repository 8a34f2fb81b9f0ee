"""Random transactions: what readers of committed data get equals a plain model (spec 6.8, 7.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.helpers import forge
from tests.helpers.examples import examples
from tests.helpers.forge import ABORT, COMMIT, TRANSACTIONAL, simple

COMMITTED = "read_committed"


@dataclass
class Model:
    """Batches by segment, and what a reader of committed data must see of them."""

    segments: dict[int, list[bytes]] = field(default_factory=lambda: {0: []})
    aborted: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)  # pid -> offsets so far
    lost: set[int] = field(default_factory=set)
    data: list[int] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def add(self, batch: bytes, count: int) -> None:
        self.segments[max(self.segments)].append(batch)
        self.end += count

    def write(self, count: int, pid: int, transactional: bool) -> None:
        offsets = list(range(self.end, self.end + count))
        self.data += offsets
        flags = TRANSACTIONAL if transactional else 0
        if transactional:
            self.open.setdefault(pid, []).extend(offsets)
        epoch = self.epochs.get(pid, 0) if pid >= 0 else -1
        self.add(simple(self.end, count, pid=pid, pid_epoch=epoch, flags=flags), count)

    def finish(self, kind: int, pid: int, bump: bool) -> None:
        self.epochs[pid] = self.epochs.get(pid, 0) + bump
        offsets = self.open.pop(pid, [])
        if offsets and kind == ABORT:
            self.lost.update(offsets)
            stable = min((o[0] for o in self.open.values()), default=self.end + 1)
            txn = (pid, offsets[0], self.end, stable)
            self.aborted.setdefault(max(self.segments), []).append(txn)
        self.add(forge.marker(self.end, pid, kind, pid_epoch=self.epochs[pid]), 1)

    def roll(self) -> None:
        self.segments.setdefault(self.end, [])

    @property
    def stable(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.end)

    def committed(self, start: int) -> list[int]:
        return [o for o in self.data if start <= o < self.stable and o not in self.lost]


@st.composite
def models(draw: st.DrawFn) -> Model:
    model = Model()
    pids = st.integers(1, 3)
    for _ in range(draw(st.integers(0, 25))):
        match draw(st.sampled_from("tttppmmmr")):
            case "t":
                model.write(draw(st.integers(1, 3)), draw(pids), True)
            case "p":
                model.write(draw(st.integers(1, 3)), -1, False)
            case "m":
                kind = draw(st.sampled_from((ABORT, COMMIT)))
                model.finish(kind, draw(pids), draw(st.booleans()))
            case "r":
                model.roll()
    return model


def consume(log: kstore.PartitionLog, offset: int, most: int) -> Sequence[int]:
    """Reads on and on as a consumer does: the offsets that it is given."""
    found: list[int] = []
    while True:
        part = log.read(offset, most, COMMITTED)
        raw = bytes(part)
        found += [record.offset for record in part]
        at = 0
        while len(raw) - at > 60:
            size = int.from_bytes(raw[at + 8 : at + 12], "big") + 12
            if size > len(raw) - at:
                break
            offset = forge.last_offset(raw[at : at + size]) + 1
            at += size
        if not at:
            return found


@examples(80)
@given(models(), st.booleans(), st.sampled_from((1, 150, 1 << 20)), st.data())
def test_any_transactions(
    tmp_path_factory: pytest.TempPathFactory, model: Model, clean: bool, most: int, data: st.DataObject
) -> None:
    """Any order of data, markers and rolls: LSO, transaction index and records are the model's."""
    interval = data.draw(st.sampled_from((0, 100, 4096)))
    path = forge.partition(
        tmp_path_factory.mktemp("txn"),
        model.segments,
        interval=interval,
        aborted=model.aborted if clean else None,
    )
    log = kstore.open(path, clean=clean, index_interval_bytes=interval)
    assert log.log_end_offset == model.end
    assert log.last_stable_offset() == model.stable
    assert [tuple(t[:4]) for s in log.segments for t in s.transaction_index] == [
        txn for base in sorted(model.aborted) for txn in model.aborted[base]
    ]
    start = data.draw(st.integers(0, model.end))
    assert [r.offset for r in log.records(start)] == [o for o in model.data if o >= start]
    committed = model.committed(start)
    assert [r.offset for r in log.records(start, isolation=COMMITTED)] == committed
    assert consume(log, start, most) == committed
