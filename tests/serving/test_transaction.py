"""The decisions about a transaction, without files: each request in each state, and random lives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.log.files.layout import TopicPartition
from kstore.serving.error_codes import ErrorCode
from kstore.serving.state_topic import Producer
from kstore.serving.transactions.transaction import (
    PREPARED,
    Transaction,
    TransactionState,
    add_partitions,
    complete,
    end,
    fence,
    initialize,
)
from tests.helpers.effort import times

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
OWN = Producer(7, 3)
STATES = list(TransactionState)
ERRORS = ErrorCode


def known(state: TransactionState, **others: object) -> Transaction:
    partitions = (
        frozenset((A,)) if state in (TransactionState.ONGOING, *PREPARED) else frozenset[TopicPartition]()
    )
    made = Transaction(
        "t", 7, 3, timeout_ms=1000, state=state, partitions=partitions, updated_at=5, started_at=5
    )
    return made._replace(**others)  # type: ignore[arg-type]


def shown(decision: object) -> object:
    return decision.state.shown if isinstance(decision, Transaction) else decision


CONCURRENT, INVALID, DONE = ERRORS.CONCURRENT_TRANSACTIONS, ERRORS.INVALID_TXN_STATE, ERRORS.NONE


@pytest.mark.parametrize(
    ("state", "initialized", "added", "committed", "aborted"),
    [
        ("Empty", "Empty", "Ongoing", INVALID, INVALID),
        ("Ongoing", CONCURRENT, "Ongoing", "PrepareCommit", "PrepareAbort"),
        ("PrepareCommit", CONCURRENT, CONCURRENT, CONCURRENT, INVALID),
        ("PrepareAbort", CONCURRENT, CONCURRENT, INVALID, CONCURRENT),
        ("CompleteCommit", "Empty", "Ongoing", DONE, INVALID),
        ("CompleteAbort", "Empty", "Ongoing", INVALID, DONE),
    ],
)
def test_requests_in_each_state(
    state: str, initialized: object, added: object, committed: object, aborted: object
) -> None:
    before = known(next(each for each in STATES if each.shown == state))
    assert shown(initialize(before, None, 1000, None, 9)) == initialized
    assert shown(add_partitions(before, OWN, {B}, 9)) == added
    assert shown(end(before, OWN, commits=True, now=9)) == committed
    assert shown(end(before, OWN, commits=False, now=9)) == aborted


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (Producer(8, 3), ERRORS.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), ERRORS.PRODUCER_FENCED),
        (Producer(7, 4), ERRORS.PRODUCER_FENCED),
    ],
)
def test_other_producers_are_refused(state: TransactionState, producer: Producer, error: ErrorCode) -> None:
    assert add_partitions(known(state), producer, {A}, 9) is error
    assert end(known(state), producer, commits=True, now=9) is error
    assert add_partitions(None, producer, {A}, 9) is ERRORS.INVALID_PRODUCER_ID_MAPPING


def test_partitions_begin_a_transaction() -> None:
    first = add_partitions(known(TransactionState.EMPTY), OWN, {A}, 9)
    assert isinstance(first, Transaction)
    assert (first.started_at, first.updated_at, first.partitions) == (9, 9, {A})
    assert add_partitions(first, OWN, {A}, 20) is ERRORS.NONE
    second = add_partitions(first, OWN, {A, B}, 20)
    assert isinstance(second, Transaction)
    assert (second.started_at, second.updated_at, second.partitions) == (9, 20, {A, B})
    assert second.is_overdue(1010)
    assert not second.is_overdue(1009)


@pytest.mark.parametrize(
    ("epoch", "last", "expected", "result"),
    [
        (-1, -1, None, (0, -1)),  # a new transactional id
        (3, -1, None, (4, -1)),
        (3, -1, Producer(7, 3), (4, 3)),
        (4, 3, Producer(7, 3), (4, 3)),  # the same request again
        (4, -1, Producer(7, 3), ERRORS.PRODUCER_FENCED),  # another one has come between
        (3, -1, Producer(8, 3), ERRORS.PRODUCER_FENCED),
        (-1, -1, Producer(8, 3), (0, -1)),
    ],
)
def test_epochs(epoch: int, last: int, expected: Producer | None, result: object) -> None:
    before = known(TransactionState.COMPLETE_COMMIT, producer_epoch=epoch, last_epoch=last)
    after = initialize(before, expected, 2000, None, 9)
    if isinstance(after, Transaction):
        assert after.timeout_ms == 2000
        assert (after.producer_epoch, after.last_epoch) == result
    else:
        assert after is result


def test_used_up_epochs_bring_another_producer_id() -> None:
    before = known(TransactionState.EMPTY, producer_epoch=32766)
    after = initialize(before, Producer(7, 32766), 1000, 99, 9)
    assert isinstance(after, Transaction)
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (99, 0, 7)
    again = initialize(after, Producer(7, 32766), 1000, None, 9)
    assert isinstance(again, Transaction)
    assert again.producer == Producer(99, 0)
    fenced = complete(fence(known(TransactionState.ONGOING, producer_epoch=32766), 9), 9)
    assert fenced.producer_epoch == 32767
    after = initialize(fenced, None, 1000, 99, 9)
    assert isinstance(after, Transaction)
    assert after.producer == Producer(99, 0)


def test_a_broker_with_version_2_left_a_decision() -> None:
    """The end of its transaction raised the epoch, or brought another producer id."""
    prepared = known(TransactionState.PREPARE_COMMIT, version=2)
    assert complete(prepared, 9).producer == OWN
    rotated = complete(prepared._replace(producer_epoch=32767, next_producer_id=99), 9)
    assert (rotated.producer, rotated.previous_producer_id) == (Producer(99, 0), 7)


REQUESTS = st.sampled_from(["init", "resume", "add", "commit", "abort", "complete", "timeout"])


@settings(max_examples=times(100))
@given(st.lists(st.tuples(REQUESTS, st.integers(0, 2)), max_size=40), st.sampled_from([-1, 3, 32760]))
def test_random_lives(requests: list[tuple[str, int]], epoch: int) -> None:
    """Of three producers with one transactional id only the newest can change anything; each transaction ends
    as it was decided; producers never go back."""
    state = Transaction("t", 1, epoch)
    producers = [Producer(1, epoch)] * 3
    next_id, decided = 2, None
    for what, number in requests:
        before = state
        mine = producers[number]
        decision: object = ERRORS.NONE
        if what in ("init", "resume"):
            expected = mine if what == "resume" and mine.epoch >= 0 else None
            decision = initialize(state, expected, 1000, next_id, 9)
            next_id += 1
        elif what == "add":
            decision = add_partitions(state, mine, {A, B} if number else {A}, 9)
        elif what in ("commit", "abort"):
            decision = end(state, mine, commits=what == "commit", now=9)
        elif what == "timeout" and state.state is TransactionState.ONGOING:
            decision = fence(state, 9)
        elif what == "complete" and state.state in PREPARED:
            decision = complete(state, 9)
        if not isinstance(decision, Transaction):
            continue
        state = decision
        if what in ("init", "resume"):
            producers[number] = state.producer
        if what in ("add", "commit", "abort"):
            assert mine == before.producer
        if state.state in PREPARED:
            decided = state.state
        elif what == "complete":
            commits = decided is TransactionState.PREPARE_COMMIT
            wanted = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
            assert state.state is wanted
        assert state.producer_id > before.producer_id or state.producer >= before.producer
        assert (state.state in (TransactionState.ONGOING, *PREPARED)) == bool(state.partitions)
