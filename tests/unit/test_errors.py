"""What errors say, and that they reach another process."""

import pickle
from pathlib import Path

import pytest

import kstore
from kstore import errors

ERRORS: list[errors.KstoreError] = [
    errors.KstoreError("text"),
    errors.CorruptFileError("reason", file="f", position=3, expected=1, found=2),
    errors.CorruptRecordError("reason", file="f", position=3, offset=7),
    errors.RecordTooLargeError("record", size=3, limit=2),
    errors.OffsetOutOfRangeError(9, 1, 3),
    errors.LogChangedError("f", 9, 1, 3, "it was deleted"),
    errors.LogNotFoundError("no directory"),
    errors.InvalidRecordError("text", [(0, "why")]),
    errors.UnexpectedAppendOffsetError(1, 2, 3),
    errors.LogLockedError("data", 17),
    errors.CursorLockedError("data", 17),
    errors.InvalidConfigError("text", name="n", value=1),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_another_process_can_be_read_here(error: errors.KstoreError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.args == error.args


def test_every_constructor_is_in_that_list() -> None:
    tried = {type(error) for error in ERRORS}
    for name in dir(errors):
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, errors.KstoreError) and "__init__" in vars(kind):
            assert kind in tried, name


def test_no_place_is_named_that_is_not_known() -> None:
    assert str(errors.RecordTooLargeError("record", size=3, limit=2)) == "record: expected at most 2, found 3"
    assert str(errors.CorruptFileError("reason")) == "reason"
    assert str(errors.CorruptFileError("reason", position=5)) == "at byte 5: reason"
    assert str(errors.CorruptCheckpointError("reason", file="f", position=2)) == "f: at line 2: reason"
    with pytest.raises(kstore.CorruptRecordError) as caught:
        kstore.RecordBatch(bytes(100)).ensure_valid()
    assert "byte -1" not in str(caught.value)
    assert "<memory>" not in str(caught.value)


def test_a_log_that_this_process_has_open_says_what_to_do(tmp_path: Path) -> None:
    """As a cell of a notebook that is run twice."""
    log = kstore.open(tmp_path / "t-0", "a")
    with pytest.raises(
        kstore.LogLockedError, match=r"this process .* close\(\) on that log first, or .* `with`"
    ):
        kstore.open(tmp_path / "t-0", "a")
    log.close()
    kstore.open(tmp_path / "t-0", "a").close()
    assert "mode 'r'" in str(errors.LogLockedError("data", 17))
