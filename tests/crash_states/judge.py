"""Opens what a power cut left, for reading and for writing, and compares it with what was expected."""

import json
import shutil
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import kstore
from kstore.testing import Image
from tests.crash_states.expected import Expected, complaints, value_of
from tests.crash_states.workload import Setting
from tests.helpers.key_files import settle

Record = tuple[int, bytes | None]
EXTRA = 999_999  # the number of the record that is appended to see that it can be
LOOKED_UP = 25  # records of one opening, by offset and by time


@dataclass
class View:
    """A log as one opening showed it. `unless_deleting`: wrong, except after a power cut within a deletion.
    `holes`: the end of a batch and the base of the next, where they differ. `incomplete`: time indexes were
    missing, and are empty now. `kept`: what a writer found as the kept value of an option."""

    how: str
    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0
    wrong: list[str] = field(default_factory=list)
    unless_deleting: list[str] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    incomplete: bool = False
    kept: int | None = None
    is_writing: bool = False


class Judge:
    """Judges directories one after another, below `scratch`; the same content is opened once."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._seen: dict[tuple[bytes, Setting], list[View]] = {}
        self._records: dict[Record, Record] = {}  # each once, however many views show it

    def judge(
        self, image: Image, expected: Expected, setting: Setting, *, ordered: bool = False
    ) -> list[str]:
        """What is wrong with it.

        `ordered`: names have reached the disk in their order, so that a truncation or deletion never leaves a
        gap. Except within a recovery, which cuts a segment off before it deletes later ones, as Kafka's does;
        and after a segment without an offset index, which is recovered before the later ones are read, as
        Kafka's is.
        """
        if not any(name.startswith(setting.partition + "/") for name in image.files):
            image.directories.add(setting.partition)  # the records must be missed, not the directory
        key = (image.digest(), setting)
        views = self._seen.get(key)
        if views is None:
            views = self._seen[key] = self._look(image, setting)
        wrong: list[str] = []
        judged: list[tuple[list[Record], int, int]] = []  # what one opening shows, the next mostly shows, too
        for view in views:
            own = list(view.wrong)
            if view.is_writing and view.kept not in expected.kept:
                own.append(f"delete_retention_ms is {view.kept}, not one of {expected.kept}")
            if not own:
                own += view.unless_deleting if expected.start_least == expected.start_most else []
                own += [
                    f"offset {end} is followed by {base}: the records between were deleted too early"
                    for end, base in view.holes
                    if ordered
                    and base not in expected.jumps
                    and _have_indexes(image, setting.partition, end, base)
                ]
                shows = (view.records, view.start, view.end)
                if shows not in judged:
                    judged.append(shows)
                    own += complaints(expected, *shows, frozenset([EXTRA]))
            wrong += [f"{view.how}: {text}" for text in own]
        return wrong

    def _look(self, image: Image, setting: Setting) -> list[View]:
        root = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            image.write_to(root)
            settle(root)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", kstore.DataLossWarning)  # the losses are judged
                views = _views(root, setting)
            for view in views:
                view.records = [self._records.setdefault(record, record) for record in view.records]
            return views
        finally:
            shutil.rmtree(root)


def _have_indexes(image: Image, partition: str, end: int, base: int) -> bool:
    """Whether segments from the one before `end` up to the one at `base` have offset indexes."""
    logs = [name for name in image.files if name.startswith(f"{partition}/") and name.endswith(".log")]
    first = max((name for name in logs if int(Path(name).stem) < end), default="")
    between = [name for name in logs if first <= name and int(Path(name).stem) < base]
    return all(f"{name.removesuffix('.log')}.index" in image.files for name in between)


def _views(root: Path, setting: Setting) -> list[View]:
    views = []
    reading = View("read")
    views.append(reading)
    try:
        with kstore.open(root / setting.partition) as log:
            _take(reading, log)
    except kstore.LogNotFoundError as e:
        if list((root / setting.partition).glob("*.log")):
            reading.wrong.append(f"{type(e).__name__}: {e}")
        views.remove(reading)  # no log yet: a writer shows what is missing
    except (kstore.KstoreError, OSError, ValueError, LookupError) as e:
        reading.wrong.append(f"{type(e).__name__}: {e}")
    adopts = any((root / setting.partition).glob("kstore-adopting-*"))  # what a writer goes on with
    truncates = _truncates(root / setting.partition / "kstore.json")
    writing = View("opened for writing", incomplete=reading.incomplete)
    views.append(writing)
    try:
        with setting.open(root) as log:
            writing.kept = log.config.given_options().get("delete_retention_ms")
            writing.is_writing = True
            _take(writing, log)
            count = min(len(reading.records), len(writing.records))
            seen = writing.records[:count] if adopts else writing.records
            before = reading.records[:count] if truncates else reading.records
            if not reading.wrong and seen != before:
                writing.wrong.append(f"{len(writing.records)} records, a reader saw {len(reading.records)}")
            offset = log.append(value_of(EXTRA))
            if offset != writing.end:
                writing.wrong.append(f"the next record got {offset}, the log ended at {writing.end}")
            if log.get(offset).value != value_of(EXTRA):
                writing.wrong.append(f"record {offset} is not what was appended")
    except (kstore.KstoreError, OSError, ValueError, LookupError, Warning, AssertionError) as e:
        writing.wrong.append(f"{type(e).__name__}: {e}")
        return views
    after = View("after append and close", incomplete=reading.incomplete)
    views.append(after)
    try:
        with kstore.open(root / setting.partition) as log:
            _take(after, log)
            # as in Kafka, a hole that a power cut left between segments stays
            found = [finding for finding in log.recovery.findings if finding.kind != "gap"]
            if not log.recovery.clean or found:
                after.wrong.append(f"not clean: {log.recovery}")
            if after.records != [*writing.records, (offset, value_of(EXTRA))]:
                after.wrong.append(
                    f"other records than before: {len(after.records)}, {len(writing.records)} and one"
                )
            if (after.start, after.end) != (writing.start, offset + 1):
                after.wrong.append(
                    f"from {after.start} to {after.end}, before from {writing.start} to {offset + 1}"
                )
    except (kstore.KstoreError, OSError, ValueError, LookupError) as e:
        after.wrong.append(f"{type(e).__name__}: {e}")
    return views


def _truncates(path: Path) -> bool:
    """Whether a truncation was not completed, which the next writer does."""
    return path.exists() and bool(json.loads(path.read_text()).get("pending"))


def _take(view: View, log: kstore.PartitionLog) -> None:
    view.start, view.end = log.log_start_offset, log.log_end_offset
    view.records = [(record.offset, record.value) for record in log]
    # Sound batches behind a gap are reported as lost, too; whether they were durable cannot be known.
    view.wrong += [loss for loss in log.recovery.losses if "flushed" in loss]
    if isinstance(log, kstore.LogWriter) and log.durable_offset > view.end:
        view.wrong.append(f"durable up to {log.durable_offset}, the log ends at {view.end}")
    ends: list[int] = []
    for batch in log.batches():
        if ends and batch.base_offset != ends[-1]:
            view.holes.append((ends[-1], batch.base_offset))
        ends.append(batch.last_offset + 1)
    _compare_committed(view, log)
    _compare_producers(view, log)
    _look_up(view, log)


def _look_up(view: View, log: kstore.PartitionLog) -> None:
    """Indexes lead to records that a walk over all of them shows: some of them in each state of a log."""
    found = {}
    records = list(log)
    step = len(records) // LOOKED_UP + 1
    for record in records[view.end % step :: step]:
        if log.get(record.offset).value != record.value:
            view.wrong.append(f"get({record.offset}) gives another record than iteration")
    last = {record.key: record for record in records}
    for key in [*last, b"nobody"]:
        if key is not None and log.last(key) != last.get(key):
            view.wrong.append(f"last({key!r}) gives {log.last(key)}, not {last.get(key)}")
    for record in records:
        found.setdefault(record.timestamp, record.offset)
    newest, asked = -1, 0
    view.incomplete = view.incomplete or any(f.kind == "missing_index" for f in log.recovery.findings)
    if view.incomplete or any(segment.size == 0 for segment in log.segments[:-1]):
        return  # as in Kafka, the time of a file stands for its records, and may end the search
    for timestamp, offset in found.items():
        if timestamp > newest:
            newest = timestamp
            asked += 1
            if asked % step:
                continue
            at = log.find(timestamp=timestamp)
            if at is None or at.offset != offset:
                view.wrong.append(f"find(timestamp={timestamp}) gives {at}, not offset {offset}")


def _compare_producers(view: View, log: kstore.PartitionLog) -> None:
    """A writer's memory of producers equals the batches; else it refuses what is next, or takes it twice."""
    if not isinstance(log, kstore.LogWriter):
        return
    last = {b.producer_id: b.last_offset for b in log.batches() if b.producer_id >= 0 and not b.is_control}
    known = {p: state.batches[-1].last_offset for p, state in log.producers().items() if state.batches}
    for producer, offset in last.items():
        if known.get(producer) != offset:
            view.wrong.append(
                f"producer {producer} is known up to {known.get(producer)}, its last is {offset}"
            )
    for producer in known.keys() - last.keys():
        if known[producer] >= view.start:
            # The renaming of a later segment may be on the disk, that of the first not yet; a snapshot knows
            # both.
            view.unless_deleting.append(
                f"producer {producer} is known of {known[producer]}, where it has nothing"
            )


def _compare_committed(view: View, log: kstore.PartitionLog) -> None:
    """What readers of committed data get, against what the batches and markers say."""
    ongoing: dict[int, int] = {}  # producer id -> first offset
    aborted: set[int] = set()
    mine: dict[int, list[int]] = {}
    for batch in log.batches():
        producer = batch.producer_id
        if producer < 0 or not batch.is_transactional:
            continue
        if batch.is_control:
            ongoing.pop(producer, None)
            if (batch.records()[0].key or b"")[2:4] == b"\0\0":
                aborted.update(mine.pop(producer, []))
            mine.pop(producer, None)
        else:
            ongoing.setdefault(producer, batch.base_offset)
            mine.setdefault(producer, []).extend(record.offset for record in batch.records())
    stable = log.last_stable_offset()
    most = max(min(ongoing.values(), default=view.end), view.start)
    if stable > most or (
        not ongoing and stable not in (view.start, view.end)
    ):  # one may have begun below the start
        # While segments are deleted, one that ends a transaction may go before one that begins it.
        view.unless_deleting.append(f"last stable offset {stable}, by the batches {most}")
    expected = [(o, v) for o, v in view.records if o < stable and o not in aborted]
    committed = [(r.offset, r.value) for r in log.records(isolation="read_committed")]
    if committed != expected:
        more = [o for o, v in committed if (o, v) not in expected]
        less = [o for o, v in expected if (o, v) not in committed]
        view.wrong.append(f"read_committed shows {more} that are aborted or open, and misses {less}")
