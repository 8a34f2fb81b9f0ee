"""kstore top."""

import argparse
import contextlib
import json
import shutil
import sys
import time
from typing import Any

from kstore.errors import KstoreError, LogNotFoundError, visible
from kstore.log.cursors.home import Home
from kstore.log.cursors.offset_commits import lag_behind
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.store import LogStore
from kstore.tools.commands.stores.cursors import Positions, Unread
from kstore.tools.numbers import counted, seconds, time_text, whole
from kstore.tools.stores import add_store_arguments, open_reader
from kstore.tools.terminal import Screen, note

_CLEAR = "\x1b[H\x1b[J"


def add_top_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_arguments(parser, topic=False)
    parser.add_argument(
        "--every",
        type=seconds,
        default=2.0,
        metavar="SECONDS",
        help="how often to read the figures (default 2)",
    )
    parser.add_argument(
        "--count", type=whole("a number of readings", 1), metavar="N", help="end after so many readings"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object for each partition and reading"
    )


def top(args: argparse.Namespace) -> int:
    """Show the partitions of a log directory with the most appends, and refresh the list. BYTES/S is the rate
    of appends. LAG is the lag of the slowest cursor group, in offsets. With --count, the exit code is 1 if a
    partition could not be read; stderr names it."""
    readings = _Readings(open_reader(args))
    left = args.count
    with contextlib.suppress(KeyboardInterrupt):
        while left is None or left > 0:
            rows = readings.rows()
            if args.json:
                print("".join(f"{json.dumps(row)}\n" for row in rows), end="", flush=True)
            else:
                _show(rows, readings.unread)
            readings.report()
            left = None if left is None else left - 1
            if left != 0:
                time.sleep(max(args.every, 0.01))
            elif readings.reported:
                return 1
    return 0


class _Reading:
    """The figures of a partition at one moment."""

    def __init__(self, at: float, log: PartitionLog) -> None:
        self.at = at
        self.end = log.log_end_offset
        self.size = sum(segment.size for segment in log.segments)
        self.count = self.end - log.log_start_offset  # the number of offsets in this size


def _appended(log: PartitionLog, before: _Reading, now: _Reading) -> float:
    """The bytes of batches that were appended between two readings. Batches that were deleted since count
    with the average size of the others."""
    count = now.end - before.end
    if count <= 0:
        return 0
    found, first = 0, now.end
    with contextlib.suppress(KstoreError, OSError):  # damage, or a segment that is being deleted
        for segment in reversed(log.segments):
            begin = max(before.end, segment.base_offset)
            located = segment.translate(begin) if begin < first else None
            found += 0 if located is None else segment.size - located.position
            first = min(first, begin)
            if begin == before.end:
                break
    if first < now.end:
        return found * count / (now.end - first)
    return count * before.size / before.count if before.count > 0 else 0


class _Readings:
    """The partitions, each with its previous figures."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._before: dict[TopicPartition, _Reading] = {}
        self.unread = Unread()  # of the last reading
        self.reported: set[str] = set()

    def report(self) -> None:
        """Print on stderr what could not be read, each line once for all readings."""
        for text in dict.fromkeys(self.unread):
            if text not in self.reported:
                self.reported.add(text)
                note(text)

    def rows(self) -> list[dict[str, Any]]:
        """The figures of each partition, those with the most appends first."""
        self._store.refresh()
        self.unread = Unread()
        positions = Positions(None, self.unread)
        rows = []
        for tp in self._store.partitions:
            with self.unread.noted():
                try:
                    rows.append(self._row(tp, positions))
                except LogNotFoundError:  # it is being deleted
                    self._logs.pop(tp, None)
                    self._before.pop(tp, None)
        return sorted(rows, key=lambda row: -(row["bytes_per_second"] or 0))

    def _row(self, tp: TopicPartition, positions: Positions) -> dict[str, Any]:
        log = self._logs.get(tp)
        if log is None:
            log = self._logs[tp] = self._store.open(*tp)
        else:
            log.refresh()
        look = _Reading(time.monotonic(), log)
        before = self._before.get(tp, look)
        self._before[tp] = look
        end, elapsed = look.end, look.at - before.at
        home = Home.of(log.path)
        lags = [
            lag_behind(log, None if position is None else position.offset)
            for theirs in positions.of(home.directory).values()
            if (position := home.position_in(theirs)) is not None
            or any(other.topic == tp.topic for other in theirs)
        ]
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "records_per_second": max(end - before.end, 0) / elapsed if elapsed > 0 else None,
            "bytes_per_second": _appended(log, before, look) / elapsed if elapsed > 0 else None,
            "size": look.size,
            "log_start_offset": log.log_start_offset,
            "log_end_offset": end,
            "lag": max((max(lag, 0) for lag in lags), default=None),
        }


def _show(rows: list[dict[str, Any]], unread: Unread) -> None:
    def line(*cells: object) -> str:
        return "  ".join(
            "-".rjust(12)
            if cell is None
            else f"{cell:.0f}".rjust(12)
            if isinstance(cell, float)
            else f"{cell!s:>12}"
            for cell in cells
        )

    size = sum(row["size"] for row in rows)
    now = time_text(time.time_ns() // 1_000_000)
    lines = [f"{now}  {counted(len(rows), 'partition')}  {counted(size, 'byte')}"]
    lines.append(line("RECORDS/S", "BYTES/S", "SIZE", "START", "END", "LAG") + "  PARTITION")
    for row in rows:
        _, _, *numbers = row.values()
        lines.append(f"{line(*numbers)}  {row['topic']}-{row['partition']}")
    if isinstance(sys.stdout, Screen):
        columns, height = shutil.get_terminal_size()
        sys.stdout.terminal.write(_CLEAR)
        lines[1:1] = dict.fromkeys(unread)  # the screen is cleared, with the lines of stderr
        lines = [text[: columns - 1] for text in lines[: height - 1]]
    print("\n".join(map(visible, lines)), flush=True)
