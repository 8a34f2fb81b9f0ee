"""The sections of a page: pictures and the tables behind them, made of facts. No file is read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.checking.finding import SEVERITIES
from kstore.reporting.facts import STATES
from kstore.reporting.words import counted, duration_text, power_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.reporting.facts import Facts, PartitionFacts, SegmentFacts

_ROWS = 20  # of a picture; all others are one more row
_SPANS = 150  # of a partition
_MOST = 1000  # rows of a table; the others are counted below
Picture = dict[str, Any]  # what report.js draws


class Table(NamedTuple):
    """A table. `left_out` is how many more rows there would be. Cells that are numbers are set to the
    right."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    left_out: int = 0


class Section(NamedTuple):
    """A part of the page. Tables are folded behind the pictures; without a picture they are open."""

    name: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]


def sections_of(facts: Facts) -> list[Section]:
    """All sections, in the order of the page."""
    return [
        _findings(facts),
        _partitions(facts),
        _segments(facts),
        _rate(facts),
        _batches(facts),
        _producers(facts),
        _groups(facts),
        _cache(facts),
    ]


def _table(title: str, headings: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Table:
    return Table(title, headings, rows[:_MOST], max(len(rows) - _MOST, 0))


def _bars(label: str, unit: str, names: list[str], *series: tuple[str, str, list[int]]) -> Picture:
    """A bar for each name. `series`: name, colour and values."""
    listed = [{"name": name, "color": color, "values": values} for name, color, values in series]
    return {"kind": "bars", "label": label, "unit": unit, "labels": names, "series": listed}


# ---- findings ----------------------------------------------------------------------------------------------


def _findings(facts: Facts) -> Section:
    found = sorted(facts.findings, key=lambda each: SEVERITIES.index(each.severity))
    if facts.is_checked:
        text = "Every byte was checked."
    else:
        text = (
            "What opening the logs and reading the headers of batches has found. Records were not read: "
            "kstore check reads every byte, and kstore report --check shows its findings here."
        )
    rows = [
        (
            each.severity,
            each.code,
            _below(facts, each.file),
            each.position if each.position >= 0 else "",
            "" if each.offsets is None else "{:,} to {:,}".format(*each.offsets),
            _below(facts, each.meaning),
            each.remedy,
            "yes" if each.stops_kafka else "",
        )
        for each in found
    ]
    headings = ("severity", "code", "file", "byte", "offsets", "meaning", "remedy", "stops Kafka")
    used = [at for at in range(len(headings)) if any(row[at] != "" for row in rows)]
    table = _table(
        "findings", tuple(headings[at] for at in used), [tuple(row[at] for at in used) for row in rows]
    )
    tables = (table,) if rows else ()
    counts = Counter(each.severity for each in found)
    summary = ", ".join(f"{number:,} {severity}" for severity, number in counts.items())
    return Section("findings", "Findings", f"{summary or 'None'}. {text}", (), tables)


def _below(facts: Facts, text: str) -> str:
    """A text with paths below the directory in place of whole ones, if there is one directory."""
    return text.replace(f"{facts.directories[0]}/", "") if len(facts.directories) == 1 else text


# ---- partitions --------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """The rows of a picture: partitions, or topics if there are many. `left_out` reports the smaller ones."""

    what: str
    names: list[str]
    partitions: list[list[PartitionFacts]]
    left_out: str


def _rows(facts: Facts) -> _Rows:
    what, rows = "partition", {each.name: [each] for each in facts.partitions}
    if len(rows) > _ROWS:
        what, rows = "topic", {}
        for each in facts.partitions:
            rows.setdefault(each.topic, []).append(each)
    ordered = sorted(rows.items(), key=lambda row: -sum(each.size for each in row[1]))
    shown, rest = ordered[:_ROWS], ordered[_ROWS:]
    size = size_text(sum(each.size for _, partitions in rest for each in partitions))
    left_out = f" {counted(len(rest), f'smaller {what}')} with {size} in all are not drawn." if rest else ""
    return _Rows(what, [name for name, _ in shown], [partitions for _, partitions in shown], left_out)


def _partitions(facts: Facts) -> Section:
    what, names, rows, left_out = _rows(facts)
    sizes = [sum(each.size for each in partitions) for partitions in rows]
    picture = _bars(f"Bytes by {what}", "bytes", names, ("bytes", "s0", sizes))
    headings = (
        "partition",
        "bytes",
        "segments",
        "first offset",
        "end offset",
        "records",
        "batches",
        "newest record",
        "closed cleanly",
        "policy",
    )
    table = _table(
        "partitions",
        headings,
        [
            (
                each.name,
                each.size,
                len(each.segments),
                each.log_start_offset,
                each.log_end_offset,
                each.records,
                each.batches,
                time_text(each.max_timestamp),
                "yes" if each.clean else "no",
                each.policy,
            )
            for each in sorted(facts.partitions, key=lambda each: -each.size)
        ],
    )
    text = f"The bytes of all segments, by {what}. Indexes are not counted.{left_out}"
    text = text if names else "There is no partition."
    tables = (table,) if table.rows else ()
    return Section("partitions", "Partitions by size", text, (picture,) if any(sizes) else (), tables)


# ---- segments ----------------------------------------------------------------------------------------------


def _segments(facts: Facts) -> Section:
    shown = sorted(
        facts.partitions, key=lambda p: (not any(s.state == "damaged" for s in p.segments), -p.size)
    )[:_ROWS]
    spans = [(p, span) for p in shown for span in _merged(p.segments)]
    rows = {each.name: at for at, each in enumerate(shown)}
    stop = facts.made if facts.rate is None else facts.rate.start + facts.rate.step * _periods(facts)
    times: Picture = {
        "kind": "spans",
        "label": "Segments over time",
        "unit": "time",
        "labels": [*rows],
        "min": 0 if facts.rate is None else facts.rate.start,
        "max": stop,
        "spans": [
            (rows[p.name], first, last, STATES.index(state), text)
            for p, (state, first, last, _, _, text) in spans
            if first >= 0
        ],
    }
    offsets: Picture = {
        "kind": "spans",
        "label": "Segments over offsets",
        "unit": "offsets",
        "labels": [*rows],
        "spans": [
            (rows[p.name], begin, end, STATES.index(state), text)
            for p, (state, _, _, begin, end, text) in spans
        ],
    }
    every = [segment for each in facts.partitions for segment in each.segments]
    states = [
        (state, len(found), sum(segment.size for segment in found))
        for state in STATES
        if (found := [segment for segment in every if segment.state == state])
    ]
    listed = [
        (
            each.name,
            segment.base_offset,
            segment.next_offset,
            segment.state,
            segment.size,
            "" if segment.batches is None else segment.batches,
            "" if segment.records is None else segment.records,
            time_text(segment.first_timestamp),
            time_text(segment.max_timestamp),
            segment.reason,
        )
        for each in shown
        for segment in each.segments
    ]
    headings = (
        "partition",
        "base offset",
        "next offset",
        "state",
        "bytes",
        "batches",
        "records",
        "first record",
        "newest record",
        "why",
    )
    of = (
        ""
        if len(shown) == len(facts.partitions)
        else f" of {len(shown)} of {len(facts.partitions):,} partitions,"
    )
    text = (
        f"The segments{of} from their first record to their newest, and from their first offset to the next "
        "segment's. Retention deletes those past retention; compaction has not reached dirty ones."
    )
    pictures = tuple(picture for picture in (times, offsets) if picture["spans"])
    tables = (Table("states", ("state", "segments", "bytes"), states), _table("segments", headings, listed))
    return Section(
        "segments", "Segments", text if listed else "There is no segment.", pictures, tables if listed else ()
    )


def _merged(segments: Sequence[SegmentFacts]) -> list[tuple[str, int, int, int, int, str]]:
    """The spans of a partition: (state, first and last time, first offset and end, text). Neighbours of one
    state become one span where there are too many."""
    runs: list[list[SegmentFacts]] = []
    most = -(-len(segments) // _SPANS)
    for segment in segments:
        if runs and len(runs[-1]) < most and runs[-1][0].state == segment.state:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return [_span(run) for run in runs]


def _span(run: Sequence[SegmentFacts]) -> tuple[str, int, int, int, int, str]:
    firsts = [segment.first_timestamp for segment in run if segment.first_timestamp >= 0]
    begin, end = run[0].base_offset, run[-1].next_offset
    what = "" if len(run) == 1 else f"{len(run)} segments, "
    text = f"{what}offsets {begin:,} to {end:,}, {size_text(sum(segment.size for segment in run))}"
    if all(segment.records is not None for segment in run):
        text += f", {counted(sum(segment.records or 0 for segment in run), 'record')}"
    last = max(segment.max_timestamp for segment in run)
    return run[0].state, min(firsts, default=-1), last, begin, end, text


# ---- write rate and batches --------------------------------------------------------------------------------


def _periods(facts: Facts) -> int:
    return 0 if facts.rate is None else max(map(len, facts.rate.topics.values()), default=0)


def _rate(facts: Facts) -> Section:
    title, rate = "Write rate", facts.rate
    if rate is None:
        return Section("rate", title, "No batch has a timestamp.", (), ())
    topics = sorted(rate.topics.items(), key=lambda each: -sum(each[1]))
    series = [
        {"name": topic, "color": f"s{at}", "values": values} for at, (topic, values) in enumerate(topics[:6])
    ]
    if len(topics) > 6:
        rest = [sum(column) for column in zip(*(values for _, values in topics[6:]), strict=True)]
        name = counted(len(topics) - 6, "other topic")
        series.append({"name": name, "color": "rest", "values": rest})
    picture = {
        "kind": "areas",
        "label": "Bytes written per second",
        "start": rate.start,
        "step": rate.step,
        "series": series,
    }
    table = _table(
        "bytes by period",
        ("from", *(str(each["name"]) for each in series)),
        [
            (time_text(rate.start + at * rate.step), *(each["values"][at] for each in series))
            for at in range(_periods(facts))
            if any(each["values"][at] for each in series)
        ],
    )
    outside = f" {size_text(rate.outside)} have a timestamp outside of the picture." if rate.outside else ""
    unread = (
        f" Of {counted(facts.unread, 'segment')} only the newest timestamp was read." if facts.unread else ""
    )
    text = (
        "Bytes of batches by the largest timestamp in their headers, in periods of "
        f"{duration_text(rate.step)}. What was deleted or compacted since is not counted.{outside}{unread}"
    )
    return Section("rate", title, text, (picture,), (table,))


def _batches(facts: Facts) -> Section:
    if not facts.codecs:
        return Section("batches", "Batches", "There is no batch.", (), ())
    exponents = [at for codec in facts.codecs.values() for at in codec.by_size]
    columns = range(min(exponents), max(exponents) + 1)
    picture = {
        "kind": "columns",
        "label": "Batches by size",
        "unit": "batches",
        "labels": [f"≤ {power_text(at)}" for at in columns],
        "series": [
            {"name": name, "color": f"s{at}", "values": [codec.by_size.get(size, 0) for size in columns]}
            for at, (name, codec) in enumerate(facts.codecs.items())
        ],
    }
    table = _table(
        "codecs",
        ("codec", "batches", "bytes", "records", "bytes per batch", "records per batch", "bytes per record"),
        [
            (
                name,
                codec.batches,
                codec.size,
                codec.records,
                round(codec.size / codec.batches),
                round(codec.records / codec.batches, 1),
                round(codec.size / codec.records, 1) if codec.records else "",
            )
            for name, codec in facts.codecs.items()
        ],
    )
    sizes = _table(
        "batches by size",
        ("up to bytes", *facts.codecs),
        [(1 << size, *(codec.by_size.get(size, 0) for codec in facts.codecs.values())) for size in columns],
    )
    text = "Batches by stored size, with their codec. Small batches take more space and more time to read."
    return Section("batches", "Batch sizes and codecs", text, (picture,), (table, sizes))


# ---- producers and groups ----------------------------------------------------------------------------------


def _producers(facts: Facts) -> Section:
    known = [each for each in facts.partitions if each.producers]
    waiting = [(each, partition) for each in facts.transactions for partition in each.partitions]
    names = {each.path: each.name for each in facts.partitions}
    transactions = _table(
        "open transactions",
        (
            "partition",
            "producer id",
            "epoch",
            "transactional id",
            "state",
            "first offset",
            "since",
            "age",
            "hangs",
        ),
        [
            (
                names[partition.path],
                each.producer_id,
                each.producer_epoch,
                each.transactional_id or "-",
                each.coordinator_state or "-",
                partition.first_offset,
                time_text(each.since_ms),
                duration_text(facts.made - each.since_ms),
                {True: "yes", False: "no", None: "-"}[each.is_hanging],
            )
            for each, partition in waiting
        ],
    )
    producers = _table(
        "producers", ("partition", "producers"), [(each.name, each.producers) for each in known]
    )
    number = sum(each.producers for each in known)
    text = (
        f"{counted(number, 'state')} of idempotent producers in {counted(len(known), 'partition')}; "
        f"{counted(len(facts.transactions), 'open transaction')}. Readers of committed records wait where "
        "the first open transaction of a partition begins."
    )
    tables = tuple(table for table in (transactions, producers) if table.rows)
    return Section("producers", "Producers and open transactions", text, (), tables)


def _groups(facts: Facts) -> Section:
    lags: dict[str, int] = {}
    for each in facts.groups:
        name = f"{each.group} ({each.kind})"
        lags[name] = lags.get(name, 0) + (each.lag or 0)
    ordered = sorted(lags.items(), key=lambda each: -each[1])
    rest = ordered[_ROWS:]
    if rest:
        ordered = [*ordered[:_ROWS], (counted(len(rest), "other group"), sum(lag for _, lag in rest))]
    values = [lag for _, lag in ordered]
    picture = _bars("Lag by group", "offsets", [name for name, _ in ordered], ("lag", "s1", values))
    table = _table(
        "groups",
        ("kind", "group", "partition", "position", "lag", "last commit"),
        [
            (
                each.kind,
                each.group,
                each.partition,
                each.committed,
                "partition is not here" if each.lag is None else each.lag,
                time_text(each.timestamp),
            )
            for each in sorted(facts.groups, key=lambda each: -(each.lag or 0))
        ],
    )
    if not lags:
        return Section("groups", "Groups and lag", "No group has a position here.", (), ())
    text = (
        "Offsets between the position of a group and the end of the log, over all its partitions. The "
        "position of a share group is its first record that is not done."
    )
    return Section("groups", "Groups and lag", text, (picture,), (table,))


# ---- page cache --------------------------------------------------------------------------------------------


def _cache(facts: Facts) -> Section:
    what, names, rows, left_out = _rows(facts)
    cached = [sum(each.cached for each in partitions) for partitions in rows]
    sizes = [sum(each.size for each in partitions) for partitions in rows]
    others = [size - here for size, here in zip(sizes, cached, strict=True)]
    series = ("in the page cache", "s1", cached), ("on the disk only", "rest", others)
    picture = _bars(f"Bytes in the page cache by {what}", "bytes", names, *series)
    table = _table(
        "page cache",
        (what, "bytes", "in the page cache", "share"),
        [
            (name, size, here, f"{here / size:.0%}" if size else "")
            for name, size, here in zip(names, sizes, cached, strict=True)
        ],
    )
    text = f"What the system keeps in memory of the segments now. Reading it takes no disk access.{left_out}"
    return Section("cache", "Page cache", text, (picture,) if sum(sizes) else (), (table,) if rows else ())
