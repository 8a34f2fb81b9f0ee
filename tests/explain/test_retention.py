"""Each moment that an explanation of retention names is the first at which retain() deletes the segment."""

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.helpers.clock import T0, Clock
from tests.helpers.processes import run_command

DAY = 86_400_000


def segment(base: int, found: kstore.explain.Retention) -> kstore.explain.SegmentRetention:
    return next(s for s in found.segments if s.base_offset == base)


def bases(log: kstore.LogWriter) -> set[int]:
    return {s.base_offset for s in log.segments}


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Some options may not be set at all."""
    found = {
        "retention_bytes": draw(st.none() | st.just(-1) | st.integers(0, 900)),
        "retention_ms": draw(st.none() | st.integers(-1, 30)),
        "cleanup_policy": draw(st.sampled_from([None, "delete", "compact", "compact,delete", ""])),
    }
    return {name: value for name, value in found.items() if value is not None}


@given(
    segments=st.lists(st.lists(st.integers(-9, 20), max_size=3), min_size=1, max_size=5),
    start=st.integers(0, 12),
    config=options(),
    committed=st.none() | st.integers(0, 12),
    was_compacted=st.booleans(),
)
def test_each_moment_is_the_first(
    segments: list[list[int]],
    start: int,
    config: dict[str, Any],
    committed: int | None,
    was_compacted: bool,
) -> None:
    """Random ages of records (some in the future, some none), log starts, options and groups."""
    clock = Clock()
    ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=ram) as scratch,
        kstore.open(f"{scratch}/t-0", "a", clock=clock, message_timestamp_after_max_ms=2**62) as log,
    ):
        for ages in segments:
            for age in ages:
                log.append(b"v" * 50, b"k", timestamp=-1 if age == 20 else T0 - age)
            os.utime(log.segments[-1].path, ns=(0, (T0 - 3) * 1_000_000))
            log.roll()
        log.delete_records(min(start, log.log_end_offset))
        if was_compacted:
            (Path(scratch) / "t-0/cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
        groups = [] if committed is None else ["g"]
        for group in groups:
            with log.cursor(group) as cursor:
                cursor.seek(min(max(committed or 0, log.log_start_offset), log.log_end_offset))
                cursor.commit()
        log.configure(**config)

        def decided(now: int) -> set[int]:
            clock.now = now
            try:
                return {d.base_offset for d in log.retain(dry_run=True, keep_for=groups) if d.delete}
            except kstore.InvalidConfigError:  # it deletes by the log start only
                found = kstore.explain.retention(log, now_ms=now, keep_for=groups)
                return {s.base_offset for s in found.segments if s.rule == "start_offset"}

        found = kstore.explain.retention(log, now_ms=T0, keep_for=groups)
        assert [s.base_offset for s in found.segments] == sorted(bases(log))
        moments = {s.deletable_at_ms for s in found.segments if s.deletable_at_ms is not None}
        for moment in sorted(moments | {m - 1 for m in moments if m > T0} | {T0, T0 + 40, T0 + 2**40}):
            gone = {
                s.base_offset
                for s in found.segments
                if s.deletable_at_ms is not None and s.deletable_at_ms <= moment
            }
            assert decided(moment) == gone, (moment - T0, found)
        for each in found.segments:
            assert each.delete == (each.deletable_at_ms == T0)
            assert not each.delete or each.rule == each.deletable_by
        for moment in sorted(moments):  # and they are deleted in this order
            clock.now = moment
            try:
                log.retain(keep_for=groups)
            except kstore.InvalidConfigError:
                continue
            for each in found.segments:
                assert (each.base_offset in bases(log)) == (
                    each.deletable_at_ms is None or each.deletable_at_ms > moment
                ) or each.base_offset == log.log_end_offset


def test_a_path_is_no_log() -> None:
    explain: Any = kstore.explain
    for call in (explain.retention, explain.compaction, explain.sizes, partial(explain.lookup, offset=0)):
        with pytest.raises(TypeError, match="log is of the class PartitionLog, not 'data'"):
            call("data")


def test_what_is_not_set(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v", timestamp=1)
        log.roll()
        found = kstore.explain.retention(log)
        assert (found.options, found.source) == ({}, "log")
        assert found.notes == ("retention.ms is not set for the topic, so kstore deletes nothing by age",)
        assert segment(0, found).deletable_at_ms is None
    given_config = kstore.LogConfig(retention_ms=DAY)
    with kstore.open(tmp_path / "t-0") as reader:
        found = kstore.explain.retention(reader, config=given_config, now_ms=5)
        assert (found.options, found.source, found.notes) == ({"retention.ms": str(DAY)}, "given", ())
        assert segment(0, found)[-2:] == (DAY + 2, "time")
        with pytest.raises(TypeError, match="config"):
            kstore.explain.retention(reader, config={})  # type: ignore[arg-type]


def test_options_of_a_broker() -> None:
    golden = Path(__file__).parents[1] / "golden/data/broker/data"
    found = kstore.explain.retention(kstore.open(golden / "bounded-0"))
    assert (found.options, found.source) == ({"retention.bytes": "6000"}, "broker")
    assert "server.properties" in found.notes[0]


@pytest.mark.parametrize(
    ("words", "options", "source"),
    [
        ([], "retention.bytes=6000 ({broker})", "broker"),
        (["--config", "retention.bytes=5"], "retention.bytes=5 (given)", "given"),
        (
            ["--config", "retention.ms=5"],
            "retention.ms=5 (given), retention.bytes=6000 ({broker})",
            "given, broker",
        ),
        (
            ["--server-properties", "{file}"],
            "retention.ms=3600000 (from server.properties), retention.bytes=6000 ({broker})",
            "server.properties, broker",
        ),
    ],
)
def test_sources_of_options(words: list[str], options: str, source: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=1\n")
    golden = Path(__file__).parents[1] / "golden/data/broker/data/bounded-0"
    words = ["explain", "retention", str(golden), *(word.format(file=file) for word in words)]
    done = run_command(*words)
    shown = ", " + options.format(broker="from the broker's metadata")
    assert (done.returncode, done.stdout.splitlines()[0].endswith(shown)) == (0, True)
    assert json.loads(run_command(*words, "--json").stdout)["source"] == source


def test_lookups_of_two_things(tmp_path: Path) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    done = run_command("explain", "lookup", tmp_path / "t-0", "--offset", "5", "--timestamp", "5")
    message = "kstore: explain lookup needs --offset or --timestamp, not both\n"
    assert (done.returncode, done.stderr) == (2, message)
