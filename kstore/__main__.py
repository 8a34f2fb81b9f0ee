"""The command line: python -m kstore, or kstore."""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn, TextIO

from kstore._version import __version__
from kstore.errors import InvalidConfigError, KstoreError, PolicyViolationError, visible
from kstore.tools.terminal import Screen, note

QUESTIONS = """questions of an operator (DATA is a log directory, of kstore or of a broker):
  which topics are in DATA?                   kstore topics DATA; kstore stat DATA
  what is damaged?                            kstore check DATA
  why is this segment still here?             kstore explain retention DATA --topic orders
  why is a topic not compacted?               kstore explain compaction DATA --topic users
  which transaction hangs?                    kstore transactions DATA
  how to restore a topic from a backup?       kstore copy BACKUP RESTORED --topic orders"""

EXAMPLES = """examples:
  kstore stat data/orders-0                                  segments, spans of time, codecs, keys
  kstore check data                                          damage, and whether a broker would start
  kstore report data -o page.html                            a page for a browser: sizes, segments, lag
  kstore records data/orders-0 --since 2026-11-20 --format jsonl
  kstore records data --topic orders --since yesterday --output orders.parquet
  kstore records data/orders-0 --offset 4711 --raw > value.bin
  kstore find data/orders-0 --timestamp 1711530458631
  kstore get data/users-0 --key ann
  kstore follow data/orders-0 --start 4711 --format jsonl
  kstore dump --files data/orders-0/00000000000000000000.log --deep-iteration --print-data-log

  kstore append data/orders-0 --key-separator : < lines.txt
  kstore records data/orders-0 --format jsonl | kstore append data/copy-0 --format jsonl
  kstore retain data/orders-0 --config retention.ms=86400000 --dry-run
  kstore compact data/users-0 --dry-run
  kstore erase data/users-0 --key ann --dry-run
  kstore keys data/users-0                                   files that make get fast
  kstore recover data/orders-0 --dry-run
  kstore repair data                                         a plan; --run carries it out
  kstore explain opening data/orders-0
  kstore explain lookup data/orders-0 --offset 4711
  kstore transactions data --producer-id 4000 --abort --dry-run
  kstore copy data backup                                    the next run copies only new segments
  kstore copy data orders --topic orders --since 2026-11-20
  kstore ship data s3://bucket/logs --local-retention-ms 86400000

  kstore create data orders --partitions 4 --config retention.ms=86400000
  kstore topics data
  kstore top data
  kstore sink data
  kstore cursors data --group billing --reset-to earliest --dry-run
  kstore shares data
  kstore serve data --port 9092

locks (a broker or a program that writes the directory has the same lock):
  no lock, nothing is changed      topics describe stat records find get follow top dump check explain
                                   report transactions cursors shares repair sink
  no lock, other files are written copy (DST), ship (URL), cursors --reset-to --expire --import (positions),
                                   shares --forget (states)
  lock, or an error after --wait   append truncate retain compact erase keys recover create alter delete keep
                                   serve --write, transactions --abort; none of them with --dry-run
  lock, or an error                adopt, repair --run, cursors --export, ship --local-retention-ms,
                                   sink --recover

Output to a file or a pipe is UTF-8 in every locale. On a terminal, stat, check, records, append, get, compact
and erase show their progress on stderr.

exit codes: 0 done, 1 not found or damaged, 2 wrong usage, 130 interrupted (0 for top, keep and serve, which
run until they are interrupted). If records were lost, records prints the others, a warning on stderr, and
exits with 0. check exits with 1 for every problem, and with 2 if nothing is at the path."""

# The commands by what they are for, in the order of --help.
GROUPS = {
    "what is in a directory": {
        "topics": "list the topics of a log directory",
        "describe": "print a topic's configuration and partitions",
        "stat": "print segments, sizes and ranges of time of partitions",
        "records": "print the records of a partition, a topic or a log directory, or the bytes of one value",
        "find": "find a record by offset or by time",
        "get": "print the last record of a key, or all of them",
        "follow": "print records as they are appended",
        "top": "show the partitions with the most appends, refreshed every two seconds",
        "dump": "print the files of a partition as kafka-dump-log does",
    },
    "what is wrong, and why": {
        "check": "check every byte of partitions and log directories, and print what is wrong",
        "explain": "explain retention, lookups, openings, compaction or sizes of a partition",
        "transactions": "list open and hanging transactions, with their transactional ids, or abort one",
        "report": "write an HTML page about a log directory or a partition",
        "recover": "recover a partition after an unclean stop, as a broker does",
        "repair": "print a plan that repairs the findings of check, or carry it out (--run)",
    },
    "copies": {
        "copy": "copy a partition, a topic, a store or a broker's directory",
        "ship": "upload sealed segments to an object store or another remote file system",
        "adopt": "copy the topics of a store to a stopped Kafka broker",
    },
    "groups of readers": {
        "cursors": "print positions and lag of cursor groups, move a group, exchange positions with Kafka",
        "shares": "print the state of share groups, or delete the state of a group",
    },
    "append, delete, compact": {
        "append": "append lines or JSON Lines from standard input",
        "truncate": "remove the records from an offset to the end",
        "retain": "delete old segments by size and age, or print which would be deleted",
        "compact": "keep only the last record of each key, or print what would be removed",
        "erase": "remove the records of keys for good, or print which would be removed",
        "keys": "make .keys files, for fast lookups of the last record of a key",
    },
    "topics of a log directory": {
        "create": "create a topic in a log directory",
        "alter": "change a topic's configuration, or give it more partitions",
        "delete": "delete a topic with all its records",
        "keep": "run the background work of a store (delete old segments, compact) until Ctrl-C",
        "serve": "serve a log directory to Kafka clients until Ctrl-C",
        "sink": "print, finish or abandon the pending transaction of Spark's writers",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
_TITLES = {next(iter(group)): title for title, group in GROUPS.items()}
# Words of other tools for commands: the first one that is a command is named.
_MEANT = {
    "ls list dir tree": "topics",
    "info status summary": "stat",
    "config": "describe",
    "cat print read head consume consumer export query select": "records",
    "tail watch": "follow",
    "search grep lookup": "find",
    "dump-log dumplog": "dump",
    "verify fsck validate audit scrub lint": "check stat",
    "backup cp clone mirror sync restore snapshot": "copy",
    "fix rebuild": "repair recover",
    "why du size": "explain",
    "txn transaction hanging": "transactions",
    "groups group lag offsets consumers": "cursors",
    "produce producer publish write put import load": "append",
    "purge prune expire retention clean": "retain",
    "vacuum gc": "compact",
    "rm remove drop": "delete",
    "set": "alter",
}
# A command is a function of this name, its docstring is the description, and add_NAME_arguments adds its
# arguments. These are the modules of each package of kstore.tools.commands, and the commands in them; without
# a "=", a module has the one command of its name.
_PACKAGES = {
    "reading": "dump records follow find",
    "changing": "adopt append retain compact copy ship recover transactions truncate keys=keys,get,erase",
    "stores": "topics=topics,describe,create,alter,delete cursors shares keep serve top sink",
    "checking": "stat check explain repair report",
}


def _module_of(command: str) -> str:
    """The module with a command."""
    for package, modules in _PACKAGES.items():
        for entry in modules.split():
            module, _, commands = entry.partition("=")
            if command in (commands or module).split(","):
                return f"kstore.tools.commands.{package}.{module}"
    raise LookupError(command)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Finds the width of the terminal without shutil, whose imports would take a fifth of the time of
    --help."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
        except (ValueError, OSError):
            width = 80
        super().__init__(prog, width=width - 2)

    def _format_action(self, action: argparse.Action) -> str:
        """A line about a command, after the title of its group if it is the first one."""
        text = super()._format_action(action)
        if (
            isinstance(action, argparse._SubParsersAction)
            or action.dest not in _TITLES
            or action.option_strings
        ):
            return text
        return f"\n  {_TITLES[action.dest]}:\n{text}"


class _Parser(argparse.ArgumentParser):
    """A parser with which `--key=--` has a value, and which raises an error if stdout cannot be written."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")  # of which argparse of Python 3.11 makes an empty list
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest == "command" and value not in COMMANDS:
            self.error(_unknown(value))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        super().error(visible(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def _unknown(command: str) -> str:
    """What to say of a word that is no command."""
    if os.path.isdir(command):
        return f"{command!r} is a directory, not a command: kstore stat {command} shows what is in it"
    from difflib import get_close_matches  # takes time to import

    meant = {word: names for words, names in _MEANT.items() for word in words.split()}
    found = get_close_matches(command.lower(), [*COMMANDS, *meant], 1)
    near = [name for word in found for name in meant.get(word, word).split() if name in COMMANDS]
    hint = f"Did you mean {near[0]}?" if near else "kstore stat DIR shows a directory."
    return f"{command!r} is not a command. {hint} kstore --help lists the commands"


class _Command(_Parser):
    """The parser of one subcommand. It imports the command's module when it is used, and reports unknown
    options with its own usage."""

    def __init__(self, *args: Any, command: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._command: str | None = command

    def load(self) -> None:
        """Imports the command, and adds its description and arguments, once."""
        if self._command is not None:
            name, self._command = self._command, None
            module = import_module(_module_of(name))
            run = getattr(module, name)
            self.description = run.__doc__
            getattr(module, f"add_{name}_arguments")(self)
            self.set_defaults(run=run)

    def parse_known_args(self, *args: Any, **options: Any) -> tuple[Any, list[str]]:
        self.load()
        found, unknown = super().parse_known_args(*args, **options)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def make_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = _Parser(
        prog="kstore",
        description="Read, search, check and write Apache Kafka's data directories without a broker.",
        epilog=f"{QUESTIONS}\n\n{EXAMPLES}",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"kstore {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Command)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, command=name)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command, and returns its exit code."""
    _replace_closed_streams()
    with _guarded_terminals(), warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.simplefilter("always", UserWarning)  # they are part of what a command says, whatever -W asks
        try:
            code = _run(argv)
        except SystemExit as e:  # wrong usage, help, or a sentence
            if _flush(0) and not e.code:
                sys.exit(1)
            raise
        return _flush(code)


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = make_parser().parse_args(argv)
        code: int = args.run(args)
        return code
    except BrokenPipeError:  # the reader has gone, as `head` does
        _drop_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except (InvalidConfigError, PolicyViolationError) as e:  # what was asked for cannot be
        return _fail(e, 2)
    except ValueError as e:
        return _fail(e, 1 if isinstance(e, KstoreError) else 2)
    except (KstoreError, OSError) as e:
        return _fail(e, 1)


def _fail(error: Exception, code: int) -> int:
    code = _flush(code)
    with contextlib.suppress(OSError):
        for text in (error, *getattr(error, "__notes__", ())):  # a note says what to do next
            note(text)
    return code


def _flush(code: int) -> int:
    """Writes out what was printed, before the interpreter ends and can only complain of it; the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as e:
        _drop_output()
        code = code or _fail(e, 1)
    return code


def _drop_output() -> None:
    """What is printed, or waits to be written, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    note(message)


def _replace_closed_streams() -> None:
    """Opens streams that were closed when the program started (>&-): they lead nowhere, and a write to stdout
    fails.

    Otherwise the first files that are opened, segments of the log, get the numbers of stdout and stderr.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # the least number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for the rest of the program
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


@contextlib.contextmanager
def _guarded_terminals() -> Iterator[None]:
    """No control characters of data or names reach a terminal; what its encoding cannot represent is escaped.
    Files and pipes get UTF-8, whatever the locale is."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_guarded(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def _guarded(stream: TextIO) -> TextIO:
    if stream in (sys.__stdout__, sys.__stderr__) and hasattr(stream, "reconfigure"):
        encoding = None if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors="backslashreplace")
    return Screen(stream) if stream.isatty() else stream  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
