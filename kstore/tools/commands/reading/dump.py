"""kstore dump."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from functools import partial

from kstore.errors import KstoreError, visible
from kstore.messages.decoders import DECODERS, record_texts
from kstore.tools.dumps.class_decoders import CLASS_DECODERS, STRING, class_decoder
from kstore.tools.dumps.index import (
    FileReport,
    dump_offset_index,
    dump_time_index,
    dump_transaction_index,
)
from kstore.tools.dumps.log import MAX32, Decoder, LogDump, Texts, dump_log, file_batches, invalid_bytes
from kstore.tools.dumps.path import absolute_path, java_path, split_names, suffix_of
from kstore.tools.dumps.snapshot import dump_snapshot
from kstore.tools.printing import batch_fields, record_fields
from kstore.tools.terminal import note

TOPIC_DECODERS = tuple(DECODERS)
INTERNAL_TOPICS = {
    "offsets": "__consumer_offsets",
    "transaction-log": "__transaction_state",
    "cluster-metadata": "__cluster_metadata",
    "remote-log-metadata": "__remote_log_metadata",
    "share-group-state": "__share_group_state",
}
LOGS = (".log", ".checkpoint", ".positions", ".state")  # the last two: of cursors, and of share groups


def data_decoder(key_class: str, value_class: str) -> Decoder:
    """A decoder of keys and values. ValueError."""
    value_decoder, key_decoder = class_decoder(value_class), class_decoder(key_class)

    def decode(key: bytes | None, value: bytes | None, offset: int) -> Texts:
        return (
            None if key is None else key_decoder(key),
            None if value is None else value_decoder(value),
        )

    return decode


def _int32(text: str) -> int:
    number = int(text)
    if not -MAX32 - 1 <= number <= MAX32:
        raise ValueError(f"{number} is outside 32 bits")
    return number


def add_dump_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of Kafka's tool, and --json."""
    parser.add_argument(
        "paths", nargs="*", metavar="FILE", help="file to dump; any number, after those of --files"
    )
    parser.add_argument("--files", help="files to dump, separated by commas")
    parser.add_argument(
        "--print-data-log",
        action="store_true",
        help="print keys and payloads. In a file or a pipe they have their control characters and line ends, "
        "as with Kafka's tool; on a terminal, control characters are \\xNN",
    )
    parser.add_argument("--deep-iteration", action="store_true", help="print each record, not only batches")
    parser.add_argument(
        "--verify-index-only",
        action="store_true",
        help="check index entries against the log, without printing them",
    )
    parser.add_argument(
        "--index-sanity-check", action="store_true", help="check an index alone, not against the log"
    )
    parser.add_argument(
        "--max-message-size",
        type=_int32,
        default=5 << 20,
        metavar="BYTES",
        help="largest size to read of a batch that an index entry points to (default 5242880)",
    )
    parser.add_argument(
        "--max-bytes", type=_int32, default=MAX32, metavar="BYTES", help="stop after this many bytes of a log"
    )
    for side in ("value", "key"):
        parser.add_argument(
            f"--{side}-decoder-class",
            nargs="?",
            const=STRING,
            metavar="CLASS",
            help=f"of {side}s: one of {', '.join(CLASS_DECODERS)}, with or without "
            "org.apache.kafka.tools.api.",
        )
    for name in TOPIC_DECODERS:
        text = f"decode the records of Kafka's topic {INTERNAL_TOPICS.get(name, name)}"
        parser.add_argument(f"--{name}-decoder", action="store_true", help=text)
    parser.add_argument(
        "--skip-record-metadata",
        action="store_true",
        help="print keys and payloads, without offsets and other fields",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")


def _named(args: argparse.Namespace) -> list[str]:
    """The requested decoders of internal topics."""
    return [name for name in TOPIC_DECODERS if getattr(args, f"{name.replace('-', '_')}_decoder")]


def _options(args: argparse.Namespace) -> LogDump:
    """The options of a dump. ValueError for an unknown class."""
    named = _named(args)
    key_class, value_class = args.key_decoder_class, args.value_decoder_class
    print_data = args.print_data_log or bool(named) or key_class is not None or value_class is not None
    return LogDump(
        print_data=print_data,
        deep=args.deep_iteration or print_data,
        skip_metadata=args.skip_record_metadata,
        max_bytes=args.max_bytes,
        decoder=(
            partial(record_texts, named[0])
            if named
            else data_decoder(key_class or STRING, value_class or STRING)
        ),
    )


def lines_of(path: str, args: argparse.Namespace, report: FileReport) -> Iterator[str]:
    """The lines of one file other than a log, by its suffix."""
    kind = suffix_of(path)
    if kind == ".index":
        return dump_offset_index(
            path,
            report,
            sanity=args.index_sanity_check,
            verify=args.verify_index_only,
            max_message_size=args.max_message_size,
        )
    if kind == ".timeindex":
        return dump_time_index(path, report, sanity=args.index_sanity_check, verify=args.verify_index_only)
    if kind == ".snapshot":
        return dump_snapshot(path, report)
    if kind == ".txnindex":
        return dump_transaction_index(path)
    print(f"Ignoring unknown file {visible(path)}", file=sys.stderr)
    report.failed = True
    return iter(())


def report_lines(reports: dict[str, FileReport], pairs: dict[str, dict[int, int]]) -> Iterator[str]:
    """The lines of Kafka's tool on stderr after all files (spec 11.3), and those about checksums."""
    for path, report in reports.items():
        if report.mismatches:
            yield f"Mismatches in :{path}"
            for offset in sorted(report.mismatches, reverse=True):
                yield f"  Index offset: {offset}, log offset: {report.mismatches[offset]}"
    for path, report in reports.items():
        if report.timestamps:
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {t}, log timestamp: {l}" for t, l in report.timestamps)
    for path, report in reports.items():
        if report.out_of_order:
            yield f"Found out of order timestamp in :{path}"
            for timestamp, previous in report.out_of_order:
                yield f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
    for path, report in reports.items():
        if report.not_found:
            yield f"The following indexed offsets are not found in :{path}"
            yield from (f"Indexed offset: {o}, found log offset: {l}" for o, l in report.not_found)
    for path, found in pairs.items():
        if found:
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {a} is followed by {found[a]}" for a in sorted(found))
    for path, report in reports.items():
        if report.invalid:
            yield f"kstore: {path}: batches with a wrong checksum: {report.invalid}"


def dump(args: argparse.Namespace) -> int:
    """Print what kafka-dump-log prints, line for line, from the files alone.

    The lines are those of section 11 of docs/spec.md. Like that tool, the command stops at the first file
    that it cannot dump to the end. Unlike it, the command takes files without --files and decoder classes
    without a package, has --json, prints text with DefaultDecoder, and changes no file (Kafka's tool shortens
    index files to whole entries, and creates missing ones). The exit code is 2 for wrong usage. It is 1 also
    for an unknown file, a wrong checksum, a corrupt snapshot and an index that does not match its log;
    Kafka's tool then exits with 0.
    """
    if args.files is None and not args.paths:
        raise ValueError("no file given: name one, or use --files A,B")
    names = [] if args.files is None else split_names(args.files)
    paths = [java_path(path) for path in names + args.paths]
    try:
        reports = _print_json(paths, args) if args.json else _print_text(paths, args)
    except BrokenPipeError:
        raise
    except (KstoreError, ValueError, OSError) as e:
        sys.stdout.flush()
        note(e)
        return 1
    return int(any(report.is_bad for report in reports.values()))


def _print_text(paths: list[str], args: argparse.Namespace) -> dict[str, FileReport]:
    reports: dict[str, FileReport] = {}
    pairs: dict[str, dict[int, int]] = {}  # not consecutive
    for path in paths:
        absolute = absolute_path(path)
        print(f"Dumping {visible(path)}")
        if suffix_of(path) in LOGS:
            dump = _options(args)
            dump.non_consecutive = pairs.setdefault(absolute, {})
            for piece in dump_log(path, dump):
                sys.stdout.write(piece)
            reports.setdefault(absolute, FileReport()).invalid += dump.invalid
        else:
            for line in lines_of(path, args, reports.setdefault(absolute, FileReport())):
                print(visible(line))
    sys.stdout.flush()
    for line in report_lines(reports, pairs):
        print(visible(line), file=sys.stderr)
    return reports


def line_fields(line: str) -> dict[str, object]:
    """A line of an index or snapshot as an object: its names and numbers, or its message."""
    pairs = re.findall(r"(\w+): (\S+)", line)
    if not pairs:
        return {"message": line}
    return {
        name: int(digits[0]) if (digits := re.findall(r"-?\d+", value)) else None for name, value in pairs
    }


def _print_json(paths: list[str], args: argparse.Namespace) -> dict[str, FileReport]:
    """Print JSON objects. `decoded` has the output of the requested decoder, beside the original data."""
    decodes = bool(_named(args)) or args.key_decoder_class is not None or args.value_decoder_class is not None
    reports: dict[str, FileReport] = {}
    for path in paths:
        if suffix_of(path) not in LOGS:
            for line in lines_of(path, args, reports.setdefault(absolute_path(path), FileReport())):
                print(json.dumps({"file": path, **line_fields(line)}))
            continue
        dump = _options(args)
        report = reports.setdefault(absolute_path(path), FileReport())
        end = 0
        for batch in file_batches(path, dump.max_bytes):
            end = batch.position + batch.size
            fields = batch_fields(batch)
            report.invalid += not fields["valid"]
            if not dump.deep:
                print(json.dumps({"file": path, **fields}))
                continue
            for record in batch.records(verify=False):
                decoded = {}
                if decodes and dump.decoder is not None and not batch.is_control:
                    key, payload = dump.decoder(record.key, record.value, record.offset)
                    decoded = {"decoded": {"key": key, "payload": payload}}
                print(json.dumps({"file": path, **record_fields(batch, record), **decoded, "batch": fields}))
        if message := invalid_bytes(path, end, dump.max_bytes):
            print(json.dumps({"file": path, "position": end, "message": message}))
    sys.stdout.flush()
    for line in report_lines(reports, {}):
        print(visible(line), file=sys.stderr)
    return reports
