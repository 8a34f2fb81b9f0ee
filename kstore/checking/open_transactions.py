"""The findings about transactions without an end."""

from __future__ import annotations

import contextlib
import time

from kstore.broker.transaction_state import read_transaction_state, state_partitions, what_lacks
from kstore.checking.codes import found
from kstore.errors import KstoreError
from kstore.explain.open_transactions import is_behind, open_in
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kstore.broker.transaction_state import CoordinatedTransaction
    from kstore.checking.finding import Finding
    from kstore.checking.partition import Checked

_LONGEST_TRANSACTION_MS = 15 * 60 * 1000  # Kafka's transaction.max.timeout.ms
_COMMITTED = "its coordinator has committed it, so its marker may be lost: restore the partition from a copy"
_NEW = (
    "it begins later than the one that its coordinator has committed, and behind its marker: "
    "{} --without-coordinator ends it"
)
_NOT_KNOWN = (
    "its coordinator may have committed it, because {}: restore that first; else {} --without-coordinator "
    "ends it"
)
_ABORT = "kstore transactions --abort --producer-id {}"


def coordinated(
    directories: Sequence[str], problems_in: Callable[[Iterable[str]], Iterable[Finding]]
) -> tuple[Mapping[int, CoordinatedTransaction] | None, str]:
    """The transactions of coordinators in log directories of one store or broker, by producer id, as far as
    they can be read; None if there never were any. And why they are not known as a whole, in words, or "".
    problems_in: checks partitions."""
    known, why = None, ""
    try:
        known = read_transaction_state(directories)
    except (KstoreError, OSError) as e:
        why = str(e)
    try:
        why = what_lacks(directories) or why
        problems = problems_in(state_partitions(directories).values())
        return known, why or next((f"{worst.file}: {worst.meaning}" for worst in problems), "")
    except (KstoreError, OSError) as e:
        return known, why or str(e)


def transactions_open(
    checked: Sequence[Checked], known: Mapping[int, CoordinatedTransaction] | None, unread: str
) -> Iterator[Finding]:
    """The findings about transactions without an end. known, unread: the result of coordinated()."""
    now = time.time_ns() // 1_000_000
    known = {} if unread else known or {}
    for each in checked:
        for transaction in each.open_transactions:
            told = known.get(transaction.producer_id)
            limit = _LONGEST_TRANSACTION_MS if told is None else told.timeout_ms
            begun = transaction.last_timestamp
            text = (
                f"a transaction of producer {transaction.producer_id} is open since offset "
                f"{transaction.first_offset}; its last record is of {_time(begun)}"
            )
            abort = _ABORT.format(transaction.producer_id)
            remedy = _NOT_KNOWN.format(unread, abort) if unread else f"{abort} ends it"
            if told is not None:
                text += f"; its transactional id is {told.transactional_id!r}, its state {told.state}"
                if told.start_ms >= 0 and told.is_under_way:
                    begun = told.start_ms
                    text += f", it began at {_time(begun)}"
                if told.state.endswith("Commit"):
                    remedy = _NEW.format(abort) if _is_new(each.path, told) else _COMMITTED
            age = now - begun
            offsets = transaction.first_offset, transaction.first_offset
            severity = "" if age > limit and not each.is_live else "note"
            code = "hanging_transaction"
            yield found(code, each.path, text, offsets=offsets, severity=severity, remedy=remedy)


def _is_new(path: str, about: CoordinatedTransaction) -> bool:
    """Whether the open transaction of a producer is a later one than the coordinator has committed."""
    from kstore.opening import open as open_log

    with contextlib.suppress(KstoreError, OSError), open_log(path) as log:  # findings already
        return any(is_behind(place, about) for key, place in open_in(log) if key[0] == about.producer_id)
    return False


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
