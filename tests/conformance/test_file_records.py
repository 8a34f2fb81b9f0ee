"""FileRecordsTest: batches in a file, spec 2.0 and 7.1."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.helpers import forge
from tests.helpers.examples import examples
from tests.helpers.forge import Rec, simple

MANY = 1 << 30


def segment_of(tmp_path: Path, *batches: bytes, base: int = 0) -> kstore.Segment:
    """The batches as a segment without index entries, as a search from position 0 sees them."""
    path = forge.partition(tmp_path, {base: batches}, interval=MANY)
    return kstore.open(path, clean=True).segments[0]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("zeros", [0, 2, 4, 5, 6])
def test_iteration_doesnt_check_size_of_partial_bytes(tmp_path: Path, zeros: int, clean: bool) -> None:
    """A partial tail of zero bytes does not disturb iteration."""
    batches = [simple(i) for i in range(3)]
    path = forge.partition(tmp_path, {0: [*batches, bytes(zeros)]}, index=False)
    forge.partition(tmp_path, {0: []})
    (path / f"{forge.stem(0)}.log").write_bytes(b"".join(batches) + bytes(zeros))
    log = kstore.open(path, clean=clean)
    assert [record.offset for record in log] == [0, 1, 2]
    assert [batch.data for batch in log.batches()] == batches
    assert log.log_end_offset == 3


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("magic", [1, 2])
def test_slice_one_byte_short(tmp_path: Path, magic: int) -> None:
    """A slice one byte short of a batch holds no batch."""
    raw = simple(0) if magic == 2 else forge.message(0, b"v")
    log = kstore.open(forge.partition(tmp_path, {0: [raw, raw]}), clean=True)
    short = log.read(0, len(raw) - 1, min_one_message=False)
    assert short.size == len(raw) - 1
    assert short.first_entry_incomplete
    assert list(short.batches()) == []
    assert list(short) == []


def test_search_for_timestamp(tmp_path: Path) -> None:
    """The first record that is not older. Magic 0 has no timestamps, magic 1 no epochs."""
    timed = [forge.batch(Rec(timestamp=10 + i), base=5 + i, epoch=i) for i in range(2)]
    segment = segment_of(tmp_path, *timed)
    for timestamp, found in ((9, (5, 10, 0)), (10, (5, 10, 0)), (11, (6, 11, 1)), (12, None)):
        assert segment.find_timestamp(timestamp) == found
    for magic in (0, 1):
        messages = [forge.message(5 + i, b"v", magic=magic, timestamp=10 + i) for i in range(2)]
        segment = segment_of(tmp_path / str(magic), *messages)
        assert segment.find_timestamp(10) == (None if magic == 0 else (5, 10, None))
        assert segment.find_timestamp(12) is None


FROM_POSITION = {
    "a gap": (3, [(0, 0), (1, 1), (2, 2), (50, 50)], 3),
    "behind the last": (51, [(0, 0), (50, 50)], None),
    "first batch at the target": (5, [(5, 8)], 0),
    "first batch above the target": (5, [(10, 15)], 0),
    "target is the last offset": (5, [(3, 5)], 0),
    "second batch has the target": (20, [(5, 12), (15, 20)], 1),
    "target in the first of two": (10, [(5, 12), (15, 20)], 0),
    "target past the end": (10, [(5, 7), (8, 9)], None),
    "target inside the last": (10, [(5, 7), (8, 12)], 1),
    "last batch at the target": (10, [(5, 7), (10, 12)], 1),
    "target in a gap": (13, [(5, 10), (15, 20)], 1),
}


def test_search_for_offset_from_position(tmp_path: Path) -> None:
    """The batch that holds the target, or the first behind it."""
    for case, (target, spans, expected) in FROM_POSITION.items():
        batches = [simple(first, last - first + 1) for first, last in spans]
        found = segment_of(tmp_path / case, *batches).translate(target)
        if expected is None:
            assert found is None, case
        else:
            position = sum(map(len, batches[:expected]))
            assert found == (spans[expected][0], position, len(batches[expected])), case


def test_gap_at_the_front_of_a_batch(tmp_path: Path) -> None:
    """Spec 7.1: a batch that compaction emptied at its front still holds its offsets."""
    raw = forge.batch(Rec(delta=4), Rec(delta=7), base=10, last_delta=9)
    segment = segment_of(tmp_path, simple(9), raw, simple(25))
    for offset, base in {9: 9, 10: 10, 13: 10, 19: 10, 20: 25, 25: 25}.items():
        assert segment.translate(offset).base_offset == base
    for offset, found in {10: 14, 14: 14, 15: 17, 17: 17, 18: 25, 25: 25}.items():
        assert segment.get(offset).offset == found


@st.composite
def batches_of_any_kind(draw: st.DrawFn) -> Sequence[bytes]:
    """Rising batches with gaps between and inside, of all magics."""
    made, offset = [], draw(st.integers(0, 10))
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.integers(0, 3))
        count = draw(st.integers(0, 3))
        stamps = draw(st.lists(st.integers(-1, 40), min_size=count, max_size=count))
        kind = draw(st.sampled_from(("v0", "v1", "wrapper", *forge.CODECS)))
        if kind in ("v0", "v1"):
            stamp = draw(st.integers(-1, 40))
            made.append(forge.message(offset, b"v", magic=int(kind[1]), timestamp=stamp))
            offset += 1
        elif kind == "wrapper" and count:
            inner = [forge.message(i, b"v", timestamp=t) for i, t in enumerate(stamps)]
            if offset + count > 1:  # a wrapper with offset 0 is another story
                made.append(forge.wrapper(offset + count - 1, inner, timestamp=max(stamps)))
                offset += count
        elif kind != "wrapper":
            recs = [Rec(timestamp=t, delta=2 * i) for i, t in enumerate(stamps)]
            last = max(2 * count - 2, 0) + draw(st.integers(0, 3))
            made.append(forge.batch(*recs, base=offset, codec=kind, last_delta=last))
            offset += last + 1
    return made


def first_of(records: list[kstore.Record]) -> tuple[int, int] | None:
    return (records[0].offset, records[0].timestamp) if records else None


def cut(made: Sequence[bytes], places: Sequence[int]) -> dict[int, Sequence[bytes]]:
    """The batches as segments that begin at these places, and at the first."""
    starts = [0, *sorted(set(places) & set(range(1, len(made))))]
    bases = [0, *(forge.last_offset(made[place - 1]) + 1 for place in starts[1:])]
    ends = [*starts[1:], len(made)]
    return {b: made[i:j] for b, i, j in zip(bases, starts, ends, strict=True)}


@examples(60)
@given(
    made=batches_of_any_kind(),
    places=st.lists(st.integers(1, 11), max_size=3),
    interval=st.sampled_from((0, 60, 200, MANY)),
)
def test_any_log(
    tmp_path_factory: pytest.TempPathFactory, made: Sequence[bytes], places: Sequence[int], interval: int
) -> None:
    """Any batches, segments, index density: lookups equal a plain search of all records."""
    segments = cut(made, places)
    path = forge.partition(tmp_path_factory.mktemp("any"), segments, interval=interval)
    for file in path.glob("*.log"):
        os.utime(file, (0, 0))  # stands in where a segment has no timestamps
    log = kstore.open(path, clean=True, index_interval_bytes=interval)
    parsed = [kstore.RecordBatch(raw) for raw in made]
    records = [record for batch in parsed for record in batch]
    assert list(log) == records
    assert log.log_end_offset == (forge.last_offset(made[-1]) + 1 if made else 0)
    for offset in range(log.log_end_offset):
        after = [batch for batch in parsed if batch.last_offset >= offset]
        assert bytes(log.read(offset, 1)) == after[0].data
        located = log.translate(offset)
        assert located.base_offset == after[0].base_offset
        later = [record for record in records if record.offset >= offset]
        found = log.find(offset=offset)
        assert (found[:2] if found else None) == first_of(later)
        if later:
            assert log.get(offset) == later[0]
    for timestamp in range(1, 42):
        later = [record for record in records if record.timestamp >= timestamp]
        found = log.find(timestamp=timestamp)
        assert (found[:2] if found else None) == first_of(later)
    largest = max((record.timestamp for record in records), default=-1)
    if largest >= 0:
        newest = log.find(timestamp="max")
        assert newest[:2] == first_of([r for r in records if r.timestamp == largest])
    for file in path.glob("*.index"):
        file.unlink()
    log = kstore.open(path, clean=True, index_interval_bytes=interval)
    for segment in log.segments:
        base = segment.base_offset
        offsets, times = forge.indexes(base, segments[base], interval)
        assert [tuple(entry) for entry in segment.offset_index] == offsets
        assert [tuple(entry) for entry in segment.time_index] == times
