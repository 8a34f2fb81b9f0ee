"""log.last() and log.history(). The files that make them fast are tested in tests/by_key."""

import threading
from pathlib import Path

import pytest

import kstore
from tests.helpers.files import flip
from tests.hostile.material import resealed


def test_damage(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=300) as log:
        for i in range(20):
            log.append(b"v" * 100, key=b"%d" % i)
    first = min((tmp_path / "t-0").glob("*.log"))
    flip(first, 100)
    log = kstore.open(tmp_path / "t-0")
    assert log.last(b"19") is not None
    with pytest.raises(kstore.CorruptRecordError):
        log.last(b"0")
    with pytest.raises(kstore.CorruptRecordError):
        list(log.history(b"19"))


def test_a_history_is_for_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"1", b"2"], [b"k", b"k"])
        history = log.history(b"k")
        get = kstore.PartitionLog.get
        refused: list[BaseException | None] = []

        def other() -> None:
            with pytest.raises(RuntimeError, match="being read already") as caught:
                next(history)
            refused.append(caught.value)

        def get_beside(self: kstore.PartitionLog, offset: int) -> kstore.Record:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return get(self, offset)

        monkeypatch.setattr(kstore.PartitionLog, "get", get_beside)
        assert [record.value for record in history] == [b"1", b"2"]
        assert len(refused) == 2


@pytest.mark.parametrize("deltas", [(0, 2, 1), (2, 1, 0), (0, 0, 1)])
def test_offsets_that_do_not_rise(tmp_path: Path, deltas: tuple[int, ...]) -> None:
    """In a batch that another program made: some lookups find nothing, none finds a record of another key."""
    keys = [b"ann", b"bob", b"cy"]
    encoded = bytearray(kstore.encode_batch([(1, key, b"of " + key, None) for key in keys]))
    for delta, key in zip(deltas, keys, strict=True):
        encoded[encoded.index(key) - 2] = 2 * delta  # as a varint, before the length of the key
    with kstore.open(tmp_path / "t-0", "a", message_timestamp_before_max_ms=2**62) as log:
        log.append_batches(resealed(bytes(encoded)))
        assert [(record.offset, record.key) for record in log] == list(zip(deltas, keys, strict=True))
        for made in (False, True):
            if made:
                log.roll()
                log.make_key_files()
            for way in (log, kstore.open(tmp_path / "t-0")):
                for key in keys:
                    assert getattr(way.last(key), "key", key) == key
                    assert {record.key for record in way.history(key)} <= {key}
