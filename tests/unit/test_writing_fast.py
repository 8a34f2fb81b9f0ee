"""The short cuts of appending give what the long way gives."""

import time
from pathlib import Path

import numpy as np
import pytest

import kstore
from kstore.errors import InvalidTimestampError


@pytest.mark.parametrize("size", [*range(40), 63, 64, 65, 255, 256, 257, 1000])
def test_keys_and_values_of_every_size(tmp_path: Path, size: int) -> None:
    key, value = bytes(range(256)) * 4, bytes(reversed(range(256))) * 4
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(value[:size], key[:size])
        log.extend([value[:size]] * 3, [key[:size]] * 3)
        found = [(record.key, record.value) for record in log]
    assert found == [(key[:size], value[:size])] * 4


@pytest.mark.parametrize("given", [bytes, bytearray, memoryview])
def test_a_follower_takes_bytes_as_they_are(tmp_path: Path, given: type) -> None:
    with kstore.open(tmp_path / "leader-0", "a") as log:
        log.extend([b"%d" % i for i in range(1000)], batch_bytes=256)
        log.flush()
        encoded = Path(log.active.path).read_bytes()[: log.active.size]
    kept = bytes(bytearray(encoded))
    with kstore.open(tmp_path / "follower-0", "a") as log:
        appended = log.append_batches(given(encoded[:-1]), keep_offsets=True)  # the last batch is cut
        rest = encoded[log.active.size :]
        log.append_batches(given(rest), keep_offsets=True)
        log.flush()
        assert appended.last_offset < 999
        assert log.log_end_offset == 1000
        assert Path(log.active.path).read_bytes()[: log.active.size] == kept
    assert encoded == kept


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_and_left_alone(tmp_path: Path, order: str) -> None:
    rows = np.asarray(np.arange(3000, dtype=np.uint16).view(np.uint8).reshape(1000, 6), order=order)
    rows.flags.writeable = False
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend(rows, rows[::-1])
        found = [(record.key, record.value) for record in log]
    assert found == [(rows[999 - i].tobytes(), rows[i].tobytes()) for i in range(1000)]


def test_a_timestamp_at_the_limit_is_judged_by_the_exact_time(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", message_timestamp_after_max_ms=0) as log:
        for _ in range(200):
            log.append(b"v", timestamp=time.time_ns() // 1_000_000)
        with pytest.raises(InvalidTimestampError):
            log.append(b"v", timestamp=time.time_ns() // 1_000_000 + 60_000)


def test_a_segment_without_index_is_recovered_once(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v" * 100] * 1000)
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    with kstore.open(tmp_path / "t-0", "a", clean=False, recovery_point=0) as log:
        assert log.recovery.recovered_segments == [0]
        assert log.log_end_offset == 1000
        assert log.get(999).offset == 999
