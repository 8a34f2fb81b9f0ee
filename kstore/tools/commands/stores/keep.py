"""kstore keep."""

import argparse
import os
import signal
import time
from contextlib import ExitStack, suppress

from kstore.errors import visible
from kstore.log.files import layout
from kstore.store import LogStore
from kstore.tools.numbers import counted, seconds, time_text, whole
from kstore.tools.stores import add_store_arguments, open_store, options_of
from kstore.tools.terminal import note
from kstore.tools.writing import (
    add_config_argument,
    add_server_properties_argument,
    add_wait_argument,
    brokers_config,
    settings_of,
)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Ended(BaseException):
    """A signal has requested the end."""


def add_keep_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_arguments(parser, topic=False)
    add_config_argument(parser)
    add_server_properties_argument(parser)
    parser.add_argument(
        "--idle-roll-ms",
        type=whole("a number of ms", 1),
        metavar="MS",
        help="how often to roll logs whose active segment is older than segment.ms, without an append "
        "(default: never)",
    )
    parser.add_argument(
        "--every",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how often to print a line (default 60)",
    )
    parser.add_argument(
        "--metrics",
        type=whole("a port", 0, 65535),
        metavar="PORT",
        help="serve the metrics of the store to Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free "
        "port",
    )
    add_wait_argument(parser)


def keep(args: argparse.Namespace) -> int:
    """Run the background work of a store until SIGTERM or Ctrl-C: delete old segments, compact, write
    checkpoints. Prints a line about the directory every --every seconds, and failures on stderr."""
    options = options_of(args.config)
    if args.server_properties:
        options = {"config": brokers_config(args.server_properties, settings_of(args.config))}
    with (
        open_store(args, background=True, idle_roll_ms=args.idle_roll_ms, **options) as store,
        ExitStack() as servers,
        suppress(_Ended),
    ):
        for number in _SIGNALS:
            signal.signal(number, _end)
        if args.metrics is not None:
            from kstore.tools.metrics_server import metrics_server  # takes time to import

            port = servers.enter_context(metrics_server(store, args.metrics))
            note(f"metrics at http://127.0.0.1:{port}/metrics")
        known: dict[str, str] = {}
        while True:
            known = _report_failures(store, known)
            print(visible(_line(store)), flush=True)
            time.sleep(max(args.every, 0.01))
    return 0


def _report_failures(store: LogStore, known: dict[str, str]) -> dict[str, str]:
    """Print failing tasks on stderr, unless they are in `known`. Returns the present failures."""
    failed = store.health().background
    for task, reason in failed.items():
        if known.get(task) != reason:
            note(f"{task} failed: {reason}")
    return failed


def _end(*_: object) -> None:
    for number in _SIGNALS:  # a second signal must not interrupt closing
        signal.signal(number, signal.SIG_IGN)
    raise _Ended


def _line(store: LogStore) -> str:
    segments = size = 0
    for topic in store.topics:
        for path in store.describe(topic).partitions.values():
            with os.scandir(path) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process is deleting it
                        if layout.segment_offset(entry.name) is not None:
                            size += entry.stat().st_size
                            segments += 1
    failed = len(store.health().background)
    wrong = f"  {counted(failed, 'task')} failed" if failed else ""
    now = time_text(time.time_ns() // 1_000_000)
    return f"{now}  {counted(len(store), 'partition')}  {counted(segments, 'segment')}  {size} bytes{wrong}"
