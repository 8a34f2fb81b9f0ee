"""TransactionIndexTest: AbortedTxn(pid, first, last, lso)."""

import struct
from pathlib import Path

import pytest

import kstore
from kstore import AbortedTxn, CorruptIndexError
from kstore.engine.segment.index import TransactionIndex
from tests.conformance import forge

FOUR = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


@pytest.fixture
def index() -> TransactionIndex:
    made = TransactionIndex(0)
    for txn in FOUR:
        made.append(AbortedTxn(*txn))
    return made


def plain(txns: object) -> list[tuple[int, ...]]:
    return [tuple(txn[:4]) for txn in txns]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fetch", "upper", "first", "last", "complete"),
    [
        (0, 100, 0, 4, False),
        (0, 32, 0, 3, True),
        (0, 35, 0, 4, True),
        (10, 35, 0, 4, True),
        (11, 35, 1, 4, True),
        (20, 41, 2, 4, False),
    ],
)
def test_collect_aborted_transactions(
    index: TransactionIndex, fetch: int, upper: int, first: int, last: int, complete: bool
) -> None:
    """What overlaps the range, and whether later segments need not be asked."""
    found, done = index.collect(fetch, upper)
    assert (plain(found), done) == (FOUR[first:last], complete)


@pytest.mark.parametrize(("offset", "left"), [(51, 4), (50, 3), (0, 0)])
def test_truncate(index: TransactionIndex, offset: int, left: int) -> None:
    """truncateTo(51) keeps 4, 50 keeps 3; a reset none."""
    index.truncate_to(offset)
    assert plain(index) == FOUR[:left]


@pytest.mark.parametrize("last", [10, 9])
def test_last_offset_must_increase(last: int) -> None:
    """A last offset equal to or below the one before is refused."""
    index = TransactionIndex(0)
    index.append(AbortedTxn(1, 5, 10, 13))
    with pytest.raises(ValueError, match="not above"):
        index.append(AbortedTxn(0, 0, last, 11))


def test_position_set_correctly_when_opened(index: TransactionIndex) -> None:
    """Reopened, appends go on at the end."""
    again = TransactionIndex(0, index.to_bytes())
    again.append(AbortedTxn(3, 32, 60, 55))
    assert plain(again) == [*FOUR, (3, 32, 60, 55)]
    assert again.to_bytes() == forge.txn_index([*FOUR, (3, 32, 60, 55)])


def test_sanity_check(index: TransactionIndex) -> None:
    """Markers below the segment's first offset 100 are told."""
    index.sanity_check()
    with pytest.raises(CorruptIndexError):
        TransactionIndex(100, index.to_bytes()).sanity_check()


def test_aborted_txn_serde() -> None:
    """pid 983493, first 137, last 299, lso 200 round-trips."""
    index = TransactionIndex(0)
    index.append(AbortedTxn(983493, 137, 299, 200))
    assert index.to_bytes() == forge.txn_index([(983493, 137, 299, 200)])
    (txn,) = TransactionIndex(0, index.to_bytes())
    assert txn == AbortedTxn(983493, 137, 299, 200, 0)


def test_is_empty(tmp_path: Path) -> None:
    """Empty where there is no file, and when new; not after an append."""
    (segment,) = kstore.open(forge.partition(tmp_path, {0: []})).segments
    assert segment.transaction_index.is_empty
    index = TransactionIndex(0)
    assert index.is_empty
    index.append(AbortedTxn(0, 0, 10, 2))
    assert not index.is_empty


def test_partial_entries_and_versions() -> None:
    """Spec 3.4: a partial last entry is ignored; a version is the single byte at 0."""
    raw = forge.txn_index(FOUR)
    assert plain(TransactionIndex(0, raw + raw[:33])) == FOUR
    assert plain(TransactionIndex(0, raw[:33])) == []
    assert plain(TransactionIndex(0, forge.txn_index(FOUR, version=255))) == FOUR
    with pytest.raises(CorruptIndexError):
        TransactionIndex(0, struct.pack(">h", 256) + raw[2:])
