"""EndTransactionMarkerTest and ControlRecordTypeTest: transaction markers, spec 2.4."""

import struct
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers import forge
from tests.helpers.forge import ABORT, TRANSACTIONAL


def log_with(tmp_path: Path, **fields: Any) -> kstore.PartitionLog:
    """One transactional record of producer 1, and its marker, after an unclean stop."""
    data = forge.simple(0, pid=1, pid_epoch=0, sequence=0, flags=TRANSACTIONAL)
    path = forge.partition(tmp_path, {0: [data, forge.marker(1, 1, ABORT, **fields)]})
    return kstore.open(path, clean=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"coordinator": 79},
        {"value": struct.pack(">hih", 5, 79, 23)},  # of a newer version
        {"coordinator": 79, "key": struct.pack(">hhi", 5, ABORT, 23)},
    ],
    ids=["serde", "newer value", "newer key"],
)
def test_serde(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Coordinator epoch 79 is read back, from values and keys of a newer version with more bytes too."""
    log = log_with(tmp_path, **fields)
    assert log.producers()[1].coordinator_epoch == 79
    assert log.last_stable_offset() == log.log_end_offset == 2
    assert [txn[:3] for txn in log.aborted_transactions(0, 2)] == [(1, 0, 1)]


@pytest.mark.parametrize(
    "fields",
    [
        *({"value": value} for value in (struct.pack(">h", -1), struct.pack(">hi", -1, 79))),
        *({"key": key} for key in (b"", b"\0\0", b"\0\0\0", struct.pack(">hh", -1, 0))),
    ],
    ids=repr,
)
def test_deserialize_broken_marker(tmp_path: Path, fields: dict[str, bytes]) -> None:
    """A key below 4 bytes, a key or value of version -1: recovery ends before it (spec 8.4, step 3)."""
    log = log_with(tmp_path, **fields)
    assert (log.log_end_offset, log.last_stable_offset()) == (1, 0)


@pytest.mark.parametrize("kind", [337, -1, 2, 3, 4, 5, 6])
def test_parse_other_types(tmp_path: Path, kind: int) -> None:
    """Types that are unknown, or of KRaft, end no transaction."""
    log = log_with(tmp_path, key=struct.pack(">hh", 0, kind))
    assert (log.log_end_offset, log.last_stable_offset()) == (2, 0)
