"""What is given as a sequence and is none, or one of more elements than can be: refused in words that name the argument."""

from pathlib import Path
from typing import Any

import pytest

import kstore

PLANE = memoryview(bytearray(6)).cast("B", (2, 3))  # memoryviews of two dimensions cannot be iterated
ENDLESS = range(2**70)  # more than len() can say


@pytest.mark.parametrize("given", [PLANE, ENDLESS, iter(ENDLESS), 7])
def test_headers_and_columns_that_are_appended(tmp_path: Path, given: Any) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for call in (
            lambda: log.append(b"v", headers=given),
            lambda: log.extend(given),
            lambda: log.extend([b"v"], headers=given),
            lambda: kstore.encode_batch([(0, None, b"v", given)]),
        ):
            with pytest.raises((TypeError, ValueError), match=r"headers|values"):
                call()
        assert log.log_end_offset == 0


def test_columns_of_a_store(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.append("t", b"v", key=b"k")
        for given in (PLANE, ENDLESS, 7, b"key"):
            with pytest.raises((TypeError, ValueError), match="columns must be a list of names"):
                store.scan("t", given)  # type: ignore[arg-type]
            with pytest.raises((TypeError, ValueError), match="keys are several"):
                store.erase("t", keys=given, reason="asked")  # type: ignore[arg-type]
        assert dict(store.table("t").items()) == {b"k": b"v"}
