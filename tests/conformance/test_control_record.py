"""EndTransactionMarkerTest and ControlRecordTypeTest: transaction markers, spec 2.4."""

import struct
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import CorruptRecordError
from kstore.engine.record.batch import control_type
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, TRANSACTIONAL


def log_with(tmp_path: Path, **fields: Any) -> kstore.PartitionLog:
    """One transactional record of producer 1, and its marker, after an unclean stop."""
    data = forge.simple(0, pid=1, pid_epoch=0, sequence=0, flags=TRANSACTIONAL)
    path = forge.partition(tmp_path, {0: [data, forge.marker(1, 1, ABORT, **fields)]})
    return kstore.open(path, clean=False)


def test_serde(tmp_path: Path) -> None:
    """Coordinator epoch 79 is read back."""
    log = log_with(tmp_path, coordinator=79)
    assert log.producers()[1].coordinator_epoch == 79
    assert log.last_stable_offset() == 2


def test_value_of_a_newer_version(tmp_path: Path) -> None:
    """Version 5 with two more bytes: epoch 79."""
    log = log_with(tmp_path, value=struct.pack(">hih", 5, 79, 23))
    assert log.producers()[1].coordinator_epoch == 79


@pytest.mark.parametrize("value", [struct.pack(">h", -1), struct.pack(">hi", -1, 79)])
def test_deserialize_negative_version(tmp_path: Path, value: bytes) -> None:
    """A value of version -1 is no marker: recovery ends before it (spec 8.4, step 3)."""
    log = log_with(tmp_path, value=value)
    assert log.log_end_offset == 1
    assert log.last_stable_offset() == 0


@pytest.mark.parametrize("key", [b"", b"\0\0", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_deserialize_broken_key(tmp_path: Path, key: bytes) -> None:
    """A key below 4 bytes or of version -1 is none: recovery ends before it (spec 2.4, 8.4)."""
    log = log_with(tmp_path, key=key)
    assert log.log_end_offset == 1
    assert log.last_stable_offset() == 0


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_parse_broken_key(key: bytes | None) -> None:
    """ControlRecordType: too short, or a negative version."""
    with pytest.raises(CorruptRecordError):
        control_type(key)


def test_parse_unknown_type() -> None:
    """Type 337 is unknown."""
    assert control_type(struct.pack(">hh", 0, 337)) == -1
    assert control_type(struct.pack(">hh", 0, -1)) == -1


def test_parse_unknown_version() -> None:
    """A key of version 5 with more bytes still says ABORT."""
    assert control_type(struct.pack(">hhi", 5, 0, 23)) == ABORT


def test_known_types() -> None:
    """Spec 2.4: the types 0 to 6."""
    assert [control_type(struct.pack(">hh", 0, kind)) for kind in range(7)] == list(range(7))
    assert (ABORT, COMMIT) == (0, 1)
