"""Positions of readers beside every operation that removes records: no truncation behind one goes unnoticed.

The model is a dict of the records that are in the log. Each reader has a copy of the log, as a program has that keeps what it
reads: a record is added when the reader gives it, and what an error says is not the same any more is dropped. The property:
whenever a reader has read without an error, its copy is the log up to its position.
"""

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import kstore
from tests.following.writing import Elsewhere
from tests.helpers import reader_kinds
from tests.helpers.effort import SEED, times
from tests.helpers.reader_kinds import OfCursor, OfFollower, Reader

SLOTS = 4
OF_WRITER: dict[str, Callable[[Any, str], Reader]] = {
    "follower of the writer": lambda log, group: OfFollower(log),
    "cursor of the writer": lambda log, group: OfCursor(log.cursor(group)),
    "following cursor of the writer": lambda log, group: OfCursor(log.cursor(group, follow=True, timeout=0)),
}
BACK = st.integers(1, 12)  # offsets before the end of the log
KEY = st.integers(0, 5)
SLOT = st.integers(0, SLOTS - 1)
SOME = st.integers(1, (1 << SLOTS) - 1)  # a bit for each reader
KIND = st.sampled_from([*reader_kinds.KINDS, *OF_WRITER])

STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {  # how often, and what is chosen
    "append": (
        2,
        {
            "count": st.integers(1, 12),
            "together": st.booleans(),
            "size": st.sampled_from([0, 0, 0, 3, 30_000]),
            "key": KEY,
        },
    ),
    "truncate": (
        4,
        {
            "again": st.sampled_from([False] * 5 + [True]),
            "back": BACK,
            "regrown": st.sampled_from([0, 0, 1, 5, 20, -1, None]),
            "together": st.booleans(),
            "raises": st.booleans(),
        },
    ),
    "tend": (
        2,
        {
            "how": st.sampled_from(["roll", "flush", "delete", "retain", "compact", "erase", "begin_epoch"]),
            "back": BACK,
            "key": KEY,
        },
    ),
    "end_the_writer": (
        1,
        {
            "how": st.sampled_from(["close", "abandon", "kill", "lose power"]),
            "back": BACK,
            "nth": st.integers(1, 40),
        },
    ),
    "exchange_reader": (2, {"slot": SLOT, "kind": KIND}),
    "read": (
        4,
        {
            "who": SOME,
            "count": st.sampled_from([None, None, 1, 3, 6]),
            "by": st.sampled_from(["records", "columns"]),
            "on": st.booleans(),
            "goes_on": st.sampled_from([None, "end", "end", "earliest"]),
        },
    ),
    "all_read": (2, {}),
    "commit": (2, {"who": SOME, "durable": st.booleans()}),
}


class Step(dict[str, Any]):
    """What a method of the machine is called with."""

    name = ""

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.items())})"


STEP = st.one_of(
    [
        st.fixed_dictionaries(chosen).map(type(name, (Step,), {"name": name}))
        for name, (weight, chosen) in STEPS.items()
        for _ in range(weight)
    ]
)


def forget_frames(error: BaseException | None) -> None:
    """Ends the iterations that an error left.

    KNOWN 4: when the garbage collector does so later, in another iteration of a follower of a store, that one skips the rest.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__, error = None, error.__context__


class Position:
    """How far a reader or a group has come, and the records before that as they were given."""

    def __init__(self, offset: int, copy: dict[int, bytes]) -> None:
        self.offset = offset
        self.copy = {o: value for o, value in copy.items() if o < offset}
        self.is_cut = False  # something below was truncated: it may be reported, whatever is left of it
        self.is_sure = True  # it must be, if a record below is another one now
        self.by_epoch = True  # later leader epochs tell who has committed this position

    def clone(self) -> "Position":
        made = Position(self.offset, self.copy)
        made.is_cut, made.by_epoch = self.is_cut, self.by_epoch
        return made


class Reading:
    """A reader of the machine."""

    def __init__(self, kind: str, reader: Reader, position: Position, group: str) -> None:
        self.kind, self.reader, self.position, self.group = kind, reader, position, group
        self.told: int | None = None  # the `end` of the error that was raised last; -1: "earliest" is the way out
        self.since: Position | None = None  # what `told` leads to

    def __repr__(self) -> str:
        return f"{self.kind} at {self.position.offset}"


class Positions(RuleBasedStateMachine):
    elsewhere: Elsewhere | None = None
    is_elsewhere = False

    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.path = self.directory / "t-0"
        self.live: dict[int, bytes] = {}
        self.start = self.end = 0
        self.shown_end = 0  # to other processes: a truncation inside a batch leaves unused offsets
        self.truncated: set[bytes] = set()
        self.readers: list[Reading] = []
        self.groups: dict[str, Position] = {}
        self.written = 0
        self.log: kstore.LogWriter | None = None

    def teardown(self) -> None:
        try:
            if hasattr(self, "options"):
                self.all_catch_up()
        finally:
            self.drop_readers()
            if self.log is not None:
                self.log.close()
            if self.is_elsewhere:
                self.elsewhere.call("abandon")
            shutil.rmtree(self.directory)

    @initialize(
        segment_bytes=st.sampled_from([450, 1500, 1 << 30]),
        is_elsewhere=st.booleans(),
        epoch=st.sampled_from([None, 3]),
        is_broker=st.booleans(),
        compression=st.sampled_from(["producer", "producer", "gzip"]),
        delay=st.sampled_from([0, 60_000]),
        kinds=st.tuples(*[KIND] * SLOTS),
    )
    def begin(
        self,
        segment_bytes: int,
        is_elsewhere: bool,
        epoch: int | None,
        is_broker: bool,
        compression: str,
        delay: int,
        kinds: tuple[str, ...],
    ) -> None:
        self.is_elsewhere = is_elsewhere and self.elsewhere is not None
        self.epoch = epoch
        # KNOWN 2: not one truncation by kstore and one by a broker before a reader looks: so all are by one of the two
        self.is_broker = is_broker and epoch is not None
        self.options: dict[str, Any] = {
            "internal_segment_bytes": segment_bytes,
            "file_delete_delay_ms": delay,
            "compression_type": compression,
            "cleanup_policy": "compact,delete",
            "min_cleanable_dirty_ratio": 0.0,
            "retention_ms": -1,
            "retention_bytes": 1000,
        }
        self.open()
        self.append(12, False, 0, 0)
        for slot, kind in enumerate(kinds):
            self.open_reader(slot, kind)

    def open(self) -> None:
        options = self.options if self.epoch is None else {**self.options, "leader_epoch": self.epoch}
        if self.is_elsewhere:
            self.elsewhere.call("open", str(self.path), "a", **options)
            return
        with warnings.catch_warnings(action="ignore", category=kstore.DataLossWarning):
            self.log = kstore.open(self.path, "a", **options)

    def write(self, name: str, *given: Any, **options: Any) -> Any:
        if self.is_elsewhere:
            return self.elsewhere.call(name, *given, **options)
        found = getattr(self.log, name)
        return found(*given, **options) if callable(found) else found

    def shown(self) -> kstore.PartitionLog:
        return kstore.open(self.path)

    @rule(step=STEP)
    def step(self, step: Step) -> None:
        getattr(self, step.name)(**step)

    def append(self, count: int, together: bool, size: int, key: int) -> None:
        values = []
        size = min(size, self.options["internal_segment_bytes"] // 100)
        for _ in range(count):
            self.written += 1
            values.append(b"%08d" % self.written + b"." * size)
        keys = [b"%d" % ((key + i) % 6) for i in range(count)]
        if together:
            self.write("extend", values, keys)
        else:
            for value, its_key in zip(values, keys, strict=True):
                self.write("append", value, its_key)
        for value in values:
            self.live[self.end] = value
            self.end += 1
        self.shown_end = self.end
        assert self.write("log_end_offset") == self.end

    # ---- what is removed ----------------------------------------------------------------------------------------

    def positions(self) -> Iterator[Position]:
        for reading in self.readers:
            yield reading.position
            if reading.since is not None:
                yield reading.since
        yield from self.groups.values()

    def cut_at(self, first: int, end: int) -> None:
        """The log was truncated, and ends at `end`; `first` is the first offset of which the record was removed."""
        self.truncated |= {value for o, value in self.live.items() if o >= first}
        self.live = {o: value for o, value in self.live.items() if o < first}
        self.end = end
        self.start = min(self.start, end)
        self.shown_end = self.shown().log_end_offset
        assert max(self.live, default=-1) < self.shown_end <= max(min(first, end), self.start)
        for position in self.positions():
            # KNOWN 3: an error though `first` is below the log start, and the position is not behind anything else that went
            if position.offset > min(first, self.shown_end):
                position.is_cut = True
        self.is_as_modelled()

    def is_as_modelled(self) -> None:
        assert self.write("log_end_offset") == self.end
        assert self.write("log_start_offset") == self.start
        assert {r.offset: r.value for r in self.shown()} == self.live

    def first_of_batch(self, offset: int) -> int:
        """The first offset of a batch that holds an offset and one before it; else the offset."""
        batches = self.shown().from_file_start().batches()
        return next((b.base_offset for b in batches if b.base_offset < offset <= b.last_offset), offset)

    def truncate(self, again: bool, back: int, regrown: int | None, together: bool, raises: bool) -> None:
        """And appends up to so many records more than there had been; None: nothing."""
        before = self.end
        if again:
            self.start_again(max(before - back // 2, 0))
        else:
            self.truncate_to(max(before - back, 0))
        self.epoch_after_truncation(raises)
        count = 0 if regrown is None else before + regrown - self.end
        if count > 0:
            self.append(count, together, 0, 0)

    def truncate_to(self, offset: int) -> None:
        before, first = self.end, self.first_of_batch(offset)
        if self.is_broker:
            # Not below the log start: a cursor that began there misses what is below it now. KNOWN 1
            offset = first = self.first_of_batch(max(offset, self.start))
            if offset < self.start:
                return
        with self.as_it_truncates():
            assert self.write("truncate_to", offset) == (offset < before)
        if offset < before:
            self.cut_at(first, offset)

    @contextmanager
    def as_it_truncates(self) -> Iterator[None]:
        """A broker leaves files of kstore's own as they are."""
        own = {file: file.read_bytes() for file in self.path.iterdir() if file.name.startswith("kstore-")}
        yield
        if self.is_broker:
            for file in self.path.iterdir():
                if file.name.startswith("kstore-") and file not in own:
                    file.unlink()
            for file, content in own.items():
                file.write_bytes(content)

    def epoch_after_truncation(self, raises: bool) -> None:
        """A writer that was given its leader epoch begins no other: then what a group has committed tells less."""
        if self.epoch is not None and raises:
            self.begin_epoch()
        elif self.epoch is not None:
            for position in self.positions():
                position.by_epoch = position.by_epoch and not position.is_cut

    def start_again(self, offset: int) -> None:
        if self.is_broker and offset < self.start:
            return
        with self.as_it_truncates():
            self.write("truncate_fully_and_start_at", offset)
        self.start = offset
        removed = self.live
        self.live = {o: value for o, value in removed.items() if o >= offset}
        self.cut_at(offset, offset)

    def tend(self, how: str, back: int, key: int) -> None:
        before = self.start
        if how in ("roll", "flush", "compact"):
            self.write(how)
            if how != "compact":
                self.shown_end = self.end
        elif how == "erase":
            self.write("erase", keys=[b"%d" % key], reason="asked for")
        elif how == "delete":
            self.write("delete_records", max(self.end - back, 0))
            assert self.write("log_start_offset") == max(before, self.end - back)
        elif how == "retain":
            groups = list(self.groups) if key % 2 else []
            self.write("retain", keep_for=groups)
            kept = min([self.groups[group].offset for group in groups], default=self.end)
            assert before <= self.write("log_start_offset") <= max(before, kept)
        elif self.epoch is not None:
            self.begin_epoch()
        self.start = self.write("log_start_offset")
        left = {r.offset: r.value for r in self.shown()}
        assert left.items() <= self.live.items()
        if how not in ("compact", "erase"):
            assert left == {o: value for o, value in self.live.items() if o >= self.start}
        self.live = left

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.write("assign_leader_epoch", self.epoch)

    # ---- ends of the writer -------------------------------------------------------------------------------------

    def leave(self, how: str) -> None:
        """The readers of the writer end with it."""
        for reading in [each for each in self.readers if each.kind in OF_WRITER]:
            self.drop(reading)
        self.write(how)
        self.log = None
        if how == "close":
            self.shown_end = self.end

    def end_the_writer(self, how: str, back: int, nth: int) -> None:
        """It is closed, or dies: also in a truncation, or in a power cut, with all who read and what was not flushed."""
        if how in ("close", "abandon"):
            self.leave(how)
            self.open()
            end = self.write("log_end_offset")
            assert end in (self.end, self.shown_end)
            self.end = end
            self.shown_end = min(self.shown_end, end)
            self.is_as_modelled()
            return
        if how == "kill" and self.is_broker:
            return
        if how == "kill":
            self.leave("close")
            self.elsewhere.call("killed", str(self.path), self.options, max(self.end - back, 0), nth)
        else:
            self.drop_readers()
            file = next((s.path for s in reversed(self.shown().segments)), "")
            last = [b.position for b in self.shown().batches() if b.file == file]
            self.leave("abandon")
            if last:  # what was flushed, too, as it may be of a disk that lies
                os.truncate(file, last[max(len(last) - nth, 0)])
        self.open()
        left = {r.offset: r.value for r in self.shown()}
        gone = [o for o in self.live if o not in left]
        end = self.write("log_end_offset")
        assert left.items() <= self.live.items()
        assert not gone or max(left, default=-1) < gone[0]
        assert max(left, default=-1) < end <= self.end
        self.cut_at(min([end, *gone]), end)
        self.epoch_after_truncation(False)

    # ---- readers ------------------------------------------------------------------------------------------------

    def exchange_reader(self, slot: int, kind: str) -> None:
        """Another one reads on for the group, or a follower from the beginning."""
        for reading in [each for each in self.readers if each.group == f"g{slot}"]:
            self.drop(reading)
        self.open_reader(slot, kind)

    def open_reader(self, slot: int, kind: str) -> None:
        if kind in OF_WRITER and self.log is None:
            kind = kind.removesuffix(" of the writer")
        group, make = f"g{slot}", reader_kinds.KINDS.get(kind)
        reader = OF_WRITER[kind](self.log, group) if make is None else make(self.path, group)
        # (about 20 lines were lost here: the position of a cursor is that of its group, with is_sure from by_epoch if the
        # log has epochs; of a follower Position(self.start, {}))
        committed = self.groups.get(group) if reader.is_cursor else None
        position = Position(self.start, {}) if committed is None else committed.clone()
        position.is_sure = position.by_epoch
        self.readers.append(Reading(kind, reader, position, group))

    def drop(self, reading: Reading) -> None:
        self.readers.remove(reading)
        reading.reader.close()

    def drop_readers(self) -> None:
        for reading in list(self.readers):
            self.drop(reading)

    def all_read(self) -> None:
        for reading in self.readers:
            self.read_with(reading)
            if reading.told is not None:
                self.go_on(reading)

    def some(self, bits: int) -> list[Reading]:
        return [each for number, each in enumerate(self.readers) if bits >> number & 1]

    def read(self, who: int, count: int | None, by: str, on: bool, goes_on: str | None) -> None:
        for reading in self.some(who):
            self.read_with(reading, count, by, on)
            if reading.told is not None and goes_on is not None:
                self.go_on(reading, goes_on == "earliest")

    def read_with(
        self, reading: Reading, count: int | None = None, by: str = "records", on: bool = False
    ) -> None:
        reader, position = reading.reader, reading.position
        if not reader.is_cursor:
            by, on = "records", True
        given: list[tuple[int, bytes]] = []
        try:
            is_more = (reader.read_on if on else reader.read)(given, count, by)
        except kstore.OffsetOutOfRangeError as e:
            forget_frames(e)
            self.take(reading, given, on)
            self.check_error(reading, e)
            return
        self.take(reading, given, on)
        if on and (is_more or reader.is_cursor):
            if not is_more:
                position.offset = reader.position
            return  # of what an iteration has found that is under way, there may be more or others now
        if not is_more:
            self.is_at_end(reading)
        self.is_right(reading, is_more)

    def take(self, reading: Reading, given: list[tuple[int, bytes]], on: bool) -> None:
        position = reading.position
        for offset, value in given:
            assert offset >= position.offset, (reading, offset, given, self.start, sorted(self.live))
            if self.live.get(offset) != value and value in self.truncated:
                assert on, (reading, offset, value)
                position.is_cut = True
            position.copy[offset] = value
            position.offset = offset + 1

    def first_wrong(self, position: Position) -> int | None:
        """The first offset, not below the log start, at which the copy and the log differ (a record that was compacted or
        erased is not wrong)."""
        wrong = [
            o
            for o, value in position.copy.items()
            if o >= self.start and (value in self.truncated or self.live.get(o, value) != value)
        ]
        missed = [o for o in self.live if self.start <= o < position.offset and o not in position.copy]
        return min(wrong + [o for o in missed if position.copy and o > min(position.copy)], default=None)

    def is_at_end(self, reading: Reading) -> None:
        """It may have passed offsets that no record has."""
        position, at = reading.position, reading.reader.position
        assert position.offset <= at <= max(self.end, position.offset), (reading, at, self.start, self.end)
        if self.start <= position.offset <= self.end and (
            position.is_sure or self.first_wrong(position) is None
        ):
            assert max(self.live, default=-1) < position.offset, (reading, max(self.live))
        position.offset = at

    def is_right(self, reading: Reading, is_more: bool) -> None:
        position = reading.position
        wrong = self.first_wrong(position)
        if not position.is_sure and wrong is not None:
            reading.position = position = Position(position.offset, self.live)
            return
        assert wrong is None, (reading, wrong)
        if self.is_broker:
            reading.position = position = Position(position.offset, self.live)
        assert self.start <= position.offset <= self.end, reading
        if reading.reader.is_cursor:
            assert reading.told in (None, -1), reading
        position.is_cut = position.offset > self.shown_end
        reading.told = None

    def may_report(self, reading: Reading) -> bool:
        """(lost: written again) Whether an error may be raised: the position is cut, or outside of the log."""
        position = reading.position
        return (
            position.is_cut
            or not self.start <= position.offset <= self.shown_end
            or reading.told is not None
        )

    def check_error(
        self, reading: Reading, error: kstore.OffsetOutOfRangeError, *, of_commit: bool = False
    ) -> None:
        position = reading.position
        assert type(error) is kstore.OffsetOutOfRangeError
        assert self.may_report(reading), (reading, error)
        if of_commit:  # it may rely on what it knew a moment ago
            reading.told = error.end
            reading.since = Position(error.end, position.copy)
            reading.since.is_cut = True
            return
        if reading.told is not None and not reading.reader.is_cursor:
            return  # a follower raises the same error again, without looking for what came since
        assert error.first == self.start, (reading, str(error), self.start, self.end)
        if position.offset < self.start:
            reading.told, reading.since = -1, None
            return
        wrong = self.first_wrong(position)
        assert self.start <= error.end <= self.end
        if wrong is not None and error.end > wrong and self.is_broker and position.offset > self.shown_end:
            assert error.end == self.shown_end
            reading.told, reading.since = -1, None
            return
        if wrong is not None:
            assert error.end <= wrong
            if position.is_sure and not self.is_broker:
                assert not [o for o in range(error.end, wrong) if o in self.live], (reading, error.end, wrong)
        reading.told = error.end
        reading.since = Position(error.end, position.copy)

    def go_on(self, reading: Reading, earliest: bool = False) -> None:
        if earliest or reading.told == -1:
            reading.reader.go_to("earliest")
            reading.position = Position(self.start, {})
        else:
            assert reading.since is not None
            try:
                reading.reader.go_to(reading.told)
            except kstore.OffsetOutOfRangeError:
                assert reading.since.is_cut or not self.start <= reading.since.offset <= self.shown_end
                reading.told = -1
                return
            reading.position = reading.since
        reading.told = reading.since = None

    def commit(self, who: int, durable: bool) -> None:
        for reading in self.some(who):
            if reading.reader.is_cursor:
                self.commit_of(reading, durable)

    def commit_of(self, reading: Reading, durable: bool) -> None:
        try:
            reading.reader.source.commit(durable=durable)
        except kstore.OffsetOutOfRangeError as e:
            forget_frames(e)
            self.check_error(reading, e, of_commit=True)
            return
        found = self.shown().cursors().get(reading.group)
        before = self.groups.get(reading.group)
        if found is None or (before is not None and found.offset == before.offset):
            return
        assert found.offset == reading.position.offset
        self.groups[reading.group] = reading.position.clone()

    def all_catch_up(self) -> None:
        for reading in self.readers:
            for attempt in range(10):
                self.read_with(reading)
                if reading.told is None:
                    break
                self.go_on(reading, attempt > 6)
            assert reading.told is None


def check(count: int, machine: type[Positions] = Positions, **options: Any) -> None:
    chosen = settings(
        max_examples=count,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        **options,
    )
    machine._hypothesis_internal_use_seed = SEED
    run_state_machine_as_test(machine, settings=chosen)


def test_positions() -> None:
    elsewhere = Elsewhere()
    try:
        check(times(100), type("Positions", (Positions,), {"elsewhere": elsewhere}))
    finally:
        elsewhere.end()
