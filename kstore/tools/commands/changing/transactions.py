"""kstore transactions."""

import argparse
import contextlib
import json
import time
from collections.abc import Iterable
from pathlib import Path

import kstore
from kstore.checking.check import coordinated_in
from kstore.errors import KstoreError, PolicyViolationError
from kstore.explain.open_transactions import OpenPartition, OpenTransaction, open_in, with_coordinator
from kstore.log.files.log_dir_state import directory_of
from kstore.log.producers.end_marker import abort_marker
from kstore.tools.numbers import age_text, offset, time_text, whole
from kstore.tools.selection import add_selection_arguments, selected
from kstore.tools.terminal import note, say
from kstore.tools.writing import add_wait_argument, note_open

_producer_id = whole("a producer id")


def add_transactions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", help="partition directory; or a log directory, for all its partitions"
    )
    add_selection_arguments(parser)
    parser.add_argument(
        "--producer-id", type=_producer_id, metavar="N", help="only transactions of this producer"
    )
    parser.add_argument(
        "--abort",
        action="store_true",
        help="end the open transaction of --producer-id in all selected partitions, as kafka-transactions.sh "
        "abort does: its records are aborted",
    )
    parser.add_argument(
        "--first-offset",
        type=offset,
        metavar="OFFSET",
        help="with --abort: only if the transaction begins at this offset; needs one partition",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --abort: only print what would be aborted"
    )
    parser.add_argument(
        "--without-coordinator",
        action="store_true",
        help="with --abort: abort also if __transaction_state is incomplete, or if the transaction seems to "
        "be later than the coordinator's last one. DANGER: if the coordinator has committed the transaction, "
        "its records are lost here, and committed in other partitions",
    )
    add_wait_argument(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each transaction")


def transactions(args: argparse.Namespace) -> int:
    """List open transactions, the oldest first, with producer, transactional id, age and partitions, or abort
    one. Readers of committed records, and compaction, wait for the end of a transaction. A transaction hangs
    if it is open in a partition, and no coordinator will end it. Transactional ids are read from
    __transaction_state in the log directory; a broker may be running. --abort locks the log directory. It
    fails if a broker has it, if the coordinator has committed the last transaction of the producer, or if a
    partition of __transaction_state is missing or damaged."""
    if not args.abort and (args.dry_run or args.first_offset is not None or args.without_coordinator):
        raise ValueError("--dry-run, --first-offset and --without-coordinator need --abort")
    if args.abort and args.producer_id is None:
        raise ValueError("--abort needs --producer-id")
    found, unread, code = _found(args)
    if args.abort:
        _abort(args, found, unread)
        return code
    now_ms = time.time_ns() // 1_000_000
    for each in found:
        say(*([json.dumps(_plain(each))] if args.json else _text(each, now_ms)))
    if not found and not args.json:
        say("no transaction is open")
    return code


def _found(args: argparse.Namespace) -> tuple[list[OpenTransaction], str, int]:
    """The open transactions, why the state of the coordinator is not known as a whole, or "", and the exit
    code: 1 if a partition, or the coordinator's topic, cannot be read. An error of the only partition is
    raised."""
    partitions, _ = selected(args)
    opened: dict[tuple[int, int], list[OpenPartition]] = {}
    code = 0
    for one in partitions:
        try:
            with kstore.open(one.path) as log:
                for key, place in open_in(log):
                    if args.producer_id in (None, key[0]):
                        opened.setdefault(key, []).append(place)
        except (KstoreError, OSError) as e:
            if len(partitions) == 1:
                raise
            note(f"{one.path}: {e}")
            code = 1
    directories = list(dict.fromkeys([*(directory_of(one.path) for one in partitions), *args.also]))
    known, unread = None, ""
    if opened:
        known, unread = coordinated_in(directories)
    if unread and not args.abort:
        note(f"what the coordinator is to do is not known as a whole: {unread}")
        code = 1
    return with_coordinator(opened, known, is_whole=not unread), unread, code


def _abort(args: argparse.Namespace, found: list[OpenTransaction], unread: str) -> None:
    """Abort the transactions that were found, or only print it. KstoreError if there is none, or if a
    coordinator may have committed one."""
    places = [place for each in found for place in each.partitions]
    if not places:
        raise KstoreError(f"producer {args.producer_id} has no open transaction in {args.directory}")
    if args.first_offset is not None:
        if len(places) > 1:
            raise ValueError("--first-offset is for one partition: give --topic and --partition")
        if places[0].first_offset != args.first_offset:
            raise KstoreError(
                f"the transaction of producer {args.producer_id} begins at offset {places[0].first_offset} "
                f"of {places[0].path}, not at {args.first_offset}"
            )
    for each in found:
        if each.is_new and not args.without_coordinator:
            raise PolicyViolationError(
                f"the coordinator has committed the last transaction of producer {each.producer_id}, "
                f"transactional id {each.transactional_id!r}. The open one begins behind the marker of that "
                f"one, and later by its timestamps, at {time_text(each.since_ms)}, so it is a new one: "
                "--without-coordinator aborts it"
            )
        if each.is_committed and not each.is_new:
            raise PolicyViolationError(
                f"the coordinator has decided to commit the transaction of producer {each.producer_id}, "
                f"transactional id {each.transactional_id!r} (its state is {each.coordinator_state}): an "
                "abort here would contradict the commit"
            )
        if each.is_hanging is False:
            note(
                f"the coordinator has the transaction of producer {each.producer_id} as "
                f"{each.coordinator_state}: a broker that starts ends it, at the latest after its timeout"
            )
    if unread and not args.without_coordinator:
        raise PolicyViolationError(
            f"the coordinator may have committed the transaction of producer {args.producer_id}, because its "
            f"state is not known as a whole: {unread}. Restore that first, or abort with "
            "--without-coordinator"
        )
    if args.dry_run:
        for directory in {directory_of(place.path) for place in places}:
            note_open(Path(args.directory), Path(directory))
        _say_ended(args, places, "would be aborted")
        return
    with contextlib.ExitStack() as stack:  # all are locked before the first is changed
        logs = [stack.enter_context(kstore.open(place.path, "r+", wait=args.wait)) for place in places]
        for log in logs:
            state = log.producers()[args.producer_id]
            if state.current_txn_first_offset is not None:
                marker = abort_marker(state, time.time_ns() // 1_000_000)
                log.append_batches(marker, origin="coordinator", transaction_version=0)
                log.flush()
    _say_ended(args, places, "aborted")


def _say_ended(args: argparse.Namespace, places: Iterable[OpenPartition], verb: str) -> None:
    for place in places:
        whose = f"transaction of producer {args.producer_id}"
        say(f"{place.path}: {whose} from offset {place.first_offset} on {verb}")


def _plain(each: OpenTransaction) -> dict[str, object]:
    return {
        **each._asdict(),
        "since_ms": each.since_ms,
        "partitions": [place._asdict() for place in each.partitions],
    }


def _text(each: OpenTransaction, now_ms: int) -> list[str]:
    if each.transactional_id is None:
        whose = "transactional id not known"
    else:
        whose = f"transactional id {each.transactional_id}"
    state = {
        None: "",
        True: ", hanging: no coordinator is to end it",
        False: "",
    }[each.is_hanging]
    state += f", coordinator: {each.coordinator_state}" if each.coordinator_state else ""
    age = now_ms - each.since_ms
    since = f"since {time_text(each.since_ms)}"
    length = f"open for {age_text(age)}, {since}" if age >= 0 else f"open, {since}, {age_text(-age)} from now"
    producer = f"producer {each.producer_id}, epoch {each.producer_epoch}"
    lines = [f"{producer}, {whose}: {length}{state}"]
    lines += [
        f"  {place.path}: from offset {place.first_offset} on, last record {time_text(place.last_timestamp)}"
        for place in each.partitions
    ]
    return lines
