"""The command line: python -m kstore, or kstore."""

import argparse
import os
import sys
from collections.abc import Sequence

from kstore._version import __version__
from kstore.errors import KstoreError
from kstore.tools import append, dump, find, follow, records, recover, retain, stat, truncate

EXAMPLES = """examples:
  kstore stat data/orders-0                                  segments, spans of time, what looks wrong
  kstore records data/orders-0 --since 2026-11-20 --format jsonl
  kstore find data/orders-0 --timestamp 1711530458631
  kstore follow data/orders-0 --start 4711 --format jsonl
  kstore dump --files data/orders-0/00000000000000000000.log --deep-iteration --print-data-log

  kstore append data/orders-0 --key-separator : < lines.txt
  kstore retain data/orders-0 --config retention.ms=86400000 --dry-run

dump, records, follow, find and stat write nothing and take no lock: the directory may belong to a broker that runs, or that
crashed. append, retain, recover and truncate take the lock that a broker takes, and wait for nobody.
Exit codes: 0 done, 1 not found or damaged, 2 wrong usage, 130 interrupted."""

COMMANDS = {
    "dump": (dump, "print files as kafka-dump-log does"),
    "records": (records, "print the records of a partition"),
    "follow": (follow, "print records as they are appended"),
    "find": (find, "find a record by offset or by time"),
    "stat": (stat, "describe a partition, or a whole log directory"),
    "append": (append, "append lines or JSON Lines from standard input"),
    "retain": (retain, "delete what retention lets go, or say what it would"),
    "recover": (recover, "recover a partition after an unclean stop"),
    "truncate": (truncate, "remove the records from an offset on"),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="kstore",
        description="Read, search, check and write Apache Kafka's data directories without a broker.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kstore {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=module.__doc__)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    args = make_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except ValueError as e:
        if isinstance(e, KstoreError):
            return _fail(e, 1)
        return _fail(e, 2)
    except (KstoreError, OSError) as e:
        return _fail(e, 1)


def _fail(error: Exception, code: int) -> int:
    sys.stdout.flush()
    print(f"kstore: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
