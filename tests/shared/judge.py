"""Whether a log holds what the journals of its writers say: each acknowledged record once, in an order on which
all agree, and nothing that nobody has appended."""

import json
import math
from pathlib import Path
from typing import NamedTuple

import kstore


class Known(NamedTuple):
    """A record that was acknowledged, or read: where it is, and between which times that was said."""

    offset: int
    value: str
    begin: int
    end: int


class Removal(NamedTuple):
    """A call that removes records: what it does, from which offset on, and by when it has returned."""

    kind: str
    offset: int
    end: float


class Journals:
    """The journals of all writers of a log."""

    def __init__(self, directory: Path) -> None:
        self.appended: set[str] = set()  # perhaps
        self.acked: list[Known] = []
        self.seen: list[Known] = []
        self.removals: list[Removal] = []
        self.ended: dict[str, set[str]] = {"ABORT": set(), "COMMIT": set()}  # records of transactions
        self.durable = 0
        self.committed: dict[int, int] = {}  # the last position of each process
        self.errors: list[str] = []
        for path in sorted(directory.glob("*.journal")):
            self._read(int(path.stem), path)

    def _read(self, name: int, path: Path) -> None:
        began, operation, data = 0, "", list[str]()
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # the process was killed while it wrote it
            time, what, *rest = json.loads(line)
            if what == "begin":
                began, operation, *data = time, *rest
                if operation in ("delete", "truncate", "compact"):
                    self.removals.append(Removal(operation, int(data[0]) if data else 0, math.inf))
                elif operation not in self.ended:
                    self.appended.update(data)
            elif what == "acked":
                self.acked += (Known(offset, value, began, time) for offset, value in rest)
            elif what == "saw":
                self.seen += (Known(offset, value, 0, time) for offset, value in rest)
            elif what == "committed":
                self.committed[name] = rest[0]
            elif what == "error":
                self.errors.append(f"process {name}, {operation}: {rest[0]}")
            elif operation in self.ended:
                self.ended[operation].update(data)
            elif operation == "truncate":
                self.removals[-1] = self.removals[-1]._replace(end=time)
            elif operation == "flush":
                self.durable = max(self.durable, rest[0])

    def may_be_gone(self, known: Known) -> bool:
        """Whether a call that has removed records, or has begun to, explains that one is not there."""
        return any(
            removal.kind == "compact"
            or (removal.kind == "delete" and known.offset < removal.offset)
            or (removal.kind == "truncate" and known.offset >= removal.offset and known.begin <= removal.end)
            for removal in self.removals
        )

    def check(self, log: kstore.PartitionLog) -> None:
        """AssertionError."""
        assert not self.errors, "\n".join(self.errors)
        there: dict[int, str] = {}
        last = -1
        for record in log:
            assert record.offset > last
            last = record.offset
            assert record.value is not None
            there[record.offset] = record.value.decode()
        values = list(there.values())
        twice = (
            {value for value in values if values.count(value) > 1} if len(set(values)) < len(values) else ()
        )
        assert not twice
        assert not set(values).difference(self.appended)
        for known in self.acked + self.seen:
            assert there.get(known.offset) == known.value or self.may_be_gone(known), (
                known, there.get(known.offset), "lost or replaced"
            )  # fmt: skip
        self._check_order()
        if not any(removal.kind in ("truncate", "delete") for removal in self.removals):
            self._check_transactions(log, there)
        for name, offset in self.committed.items():
            found = log.cursors()[f"g{name}"].offset
            assert found > offset, f"process {name} had committed {offset}, and {found} is stored"

    def _check_transactions(self, log: kstore.PartitionLog, there: dict[int, str]) -> None:
        """A record is hidden if its transaction was aborted, and only then, up to the last stable offset."""
        committed = {
            record.value.decode() for record in log.records(isolation="read_committed") if record.value
        }
        hidden = set(there.values()) - committed
        for value in hidden & self.ended["COMMIT"]:
            offset = next(offset for offset, other in there.items() if other == value)
            assert offset >= log.last_stable_offset(), f"{value} was committed"
        assert not committed & self.ended["ABORT"]

    def _check_order(self) -> None:
        """What was acknowledged before another append began has a lower offset, unless the log was truncated."""
        if any(removal.kind == "truncate" for removal in self.removals):
            return
        largest = -1
        events = [(known.begin, 1, known.offset) for known in self.acked]
        events += [(known.end, 0, known.offset) for known in self.acked]
        for _, begins, offset in sorted(events):
            if begins:
                assert offset > largest, f"offset {offset} after {largest} was acknowledged"
            else:
                largest = max(largest, offset)
