"""Positions of readers, and open transactions: what of them does not fit the partitions."""

from __future__ import annotations

import contextlib
import time

from kstore.broker.transaction_state import STATES, transaction_log_in
from kstore.checking.codes import found, why
from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.group_file import groups_in as groups_with_positions
from kstore.log.cursors.group_file import read_positions
from kstore.log.cursors.home import Home
from kstore.log.files.log_dir_state import name_of
from kstore.log.share.descriptions import state_of
from kstore.log.share.state_file import groups_in
from kstore.messages.errors import DecodeError
from kstore.store.consumer_offsets import committed_here, committed_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kstore.broker.transaction_state import TransactionLog
    from kstore.checking.finding import Finding
    from kstore.checking.partition import Checked
    from kstore.log.files.layout import TopicPartition

_LONGEST_TRANSACTION_MS = 15 * 60 * 1000  # Kafka's transaction.max.timeout.ms
_ENDED = ("complete_commit", "complete_abort", "dead", "empty")
_COMMITTED = "its coordinator has committed it, so its marker may be lost: restore the partition from a copy"


class KnownTransaction(NamedTuple):
    """What __transaction_state says of a producer."""

    transactional_id: str
    state: str
    started_ms: int
    timeout_ms: int


def positions_beyond(
    checked: Mapping[TopicPartition, Checked], directories: Sequence[str]
) -> Iterator[Finding]:
    """The findings about positions of groups beyond the end of their partitions. `directories`: log
    directories, which may have __consumer_offsets."""
    paths = {tp: each.path for tp, each in checked.items() if each.end is not None}

    def beyond(tp: TopicPartition, offset: int) -> int | None:
        end = checked[tp].end if tp in checked else None
        return end if end is not None and offset > end and not checked[tp].is_live else None

    sources = []
    with contextlib.suppress(KstoreError, OSError):  # damaged files of positions are findings already
        sources.append(committed_here(paths))
    for path in paths.values():
        yield from _unused(path)
    for directory in directories:
        try:
            sources.append(committed_in(directory))
        except LogNotFoundError:
            continue
        except (KstoreError, OSError):  # damage in __consumer_offsets, which is a finding already
            continue
    for source in sources:
        for group, positions in source.items():
            for tp, position in positions.items():
                end = beyond(tp, position.offset)
                if end is not None:
                    text = f"group {group!r} has the position {position.offset} in {tp}, which ends at {end}"
                    yield found("position_beyond_end", checked[tp].path, text)
    for tp, path in paths.items():
        try:
            groups = groups_in(path)
        except OSError as e:
            yield found("unreadable_file", e.filename or path, str(e))
            continue
        for group in groups:
            try:
                state = state_of(path, tp, group)
            except FileNotFoundError:  # it was removed
                continue
            except (KstoreError, OSError) as e:
                yield found("positions_damaged", getattr(e, "file", "") or path, why(e))
                continue
            end = beyond(tp, state.end)
            if end is not None:
                text = f"share group {group!r} has reached {state.end} in {tp}, which ends at {end}"
                yield found("position_beyond_end", path, text)


def _unused(path: str) -> Iterator[Finding]:
    """The findings about positions that were committed for another partition of this name."""
    home = Home.of(path)
    for group in groups_with_positions(home.directory):
        try:
            entry = read_positions(home.directory, group).get(home.tp)
            if entry is not None and entry.commit.partition_id != home.known_id():
                text = f"the position of group {group!r} in {home.tp} is of another partition of that name"
                yield found("position_unused", path, text)
        except (KstoreError, OSError):  # a finding already
            continue


def transactions_open(
    checked: Sequence[Checked], known: Mapping[int, KnownTransaction], now_ms: int | None = None
) -> Iterator[Finding]:
    """The findings about transactions without an end."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for each in checked:
        for transaction in each.open_transactions:
            told = known.get(transaction.producer_id)
            limit = _LONGEST_TRANSACTION_MS if told is None else told.timeout_ms
            begun = transaction.last_timestamp
            text = (
                f"a transaction of producer {transaction.producer_id} is open since offset "
                f"{transaction.first_offset}; its last record is of {_time(begun)}"
            )
            if told is not None:
                text += f"; its transactional id is {told.transactional_id!r}, its state {told.state}"
                if told.started_ms >= 0 and told.state not in _ENDED:
                    begun = told.started_ms
                    text += f", it began at {_time(begun)}"
            age = now - begun
            offsets = transaction.first_offset, transaction.first_offset
            remedy = _COMMITTED if told is not None and told.state.endswith("_commit") else ""
            severity = "" if age > limit and not each.is_live else "note"
            code = "hanging_transaction"
            yield found(code, each.path, text, offsets=offsets, severity=severity, remedy=remedy)


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def transactions_known(paths: Sequence[str]) -> dict[int, KnownTransaction]:
    """What the partitions of __transaction_state among these say, by producer id. Damage in them is passed
    over, because it is a finding already."""
    from kstore.opening import open as open_log

    found_: dict[str, tuple[int, KnownTransaction] | None] = {}
    for path in paths:
        if name_of(path).topic != "__transaction_state":
            continue
        try:
            for record in open_log(path).records(on_error="skip"):
                with contextlib.suppress(DecodeError):
                    content = transaction_log_in(record.key, record.value)
                    if content is not None:
                        found_[content.transactional_id] = _known(content)
        except (KstoreError, OSError):
            continue
    return dict(each for each in found_.values() if each is not None)


def _known(content: TransactionLog) -> tuple[int, KnownTransaction] | None:
    """The id of the producer and what is known of it; None if the transactional id was removed."""
    fields = content.fields
    if fields is None:
        return None
    state = fields["transactionStatus"]
    return fields["producerId"], KnownTransaction(
        content.transactional_id,
        STATES[state] if 0 <= state < len(STATES) else str(state),
        fields["transactionStartTimestampMs"],
        fields["transactionTimeoutMs"],
    )
