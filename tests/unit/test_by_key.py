"""The last record of a key, and all of them, against the list of all records."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.engine.record.hashes import crc32c
from tests.helpers.markers import marker

KEYS = [b"", b"a", b"ab", b"\xff" * 300]


def filled(directory: Path, seed: int) -> kstore.LogWriter:
    rng = random.Random(seed)
    log = kstore.open(directory, "a", internal_segment_bytes=2000, cleanup_policy="compact,delete")
    for _ in range(40):
        count = rng.randrange(1, 8)
        keys = [rng.choice([*KEYS, None]) for _ in range(count)] if rng.random() < 0.7 else [b"other"] * count
        keys = [b"k" if key is None else key for key in keys]
        log.extend([rng.choice([None, b"v", b"w" * 99]) for _ in range(count)], keys=keys)
    return log


@pytest.mark.parametrize("seed", range(5))
def test_as_the_list_says(tmp_path: Path, seed: int) -> None:
    log = filled(tmp_path / "t-0", seed)
    log.delete_records(20)
    log.truncate_to(log.log_end_offset - 3)
    assert len(log.segments) > 3
    for way in (log, kstore.open(tmp_path / "t-0")):
        records = list(log)
        for key in [*KEYS, b"k", b"other", b"nobody"]:
            wanted = [record for record in records if record.key == key]
            assert list(way.history(key)) == wanted
            assert way.last(key) == (wanted[-1] if wanted else None)
    log.close()


def test_transactions(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"first", key=b"k")
        for producer, kind in ((1, "COMMIT"), (2, "ABORT")):
            batch = kstore.encode_batch(
                [(5, b"k", b"%d" % producer, None)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            log.append_batches(batch)
            log.append_batches(marker(kind, producer, 6), origin="coordinator", transaction_version=0)
        assert [r.value for r in log.history(b"k")] == [b"first", b"1", b"2"]
        assert [r.value for r in log.history(b"k", isolation="read_committed")] == [b"first", b"1"]
        last: Any = log.last(b"k")
        assert last.value == b"2"
        last = log.last(b"k", isolation="read_committed")
        assert last.value == b"1"


def test_what_goes_on_beside(tmp_path: Path) -> None:
    """An iterator shows the log as it was when it was made."""
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0) as log:
        log.append(b"1", key=b"k")
        history = log.history(b"k")
        log.append(b"2", key=b"k")
        log.roll()
        log.compact()
        assert [r.value for r in history] == [b"1"]
        assert [r.value for r in log.history(b"k")] == [b"2"]


def test_an_empty_log_has_no_keys(log: kstore.LogWriter) -> None:
    assert log.last(b"k") is None
    assert list(log.history(b"k")) == []


@pytest.mark.parametrize("bad", [None, "k", 1])
def test_a_key_is_bytes(log: kstore.LogWriter, bad: Any) -> None:
    for call in (log.last, log.history):
        with pytest.raises(TypeError, match="key is bytes, not"):
            call(bad)
        with pytest.raises(ValueError, match="isolation"):
            call(b"k", isolation="none")


def test_damage(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=300) as log:
        for i in range(20):
            log.append(b"v" * 100, key=b"%d" % i)
    first = min((tmp_path / "t-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    log = kstore.open(tmp_path / "t-0")
    assert log.last(b"19") is not None
    with pytest.raises(kstore.CorruptRecordError):
        log.last(b"0")
    with pytest.raises(kstore.CorruptRecordError):
        list(log.history(b"19"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"one", key=b"ann", timestamp=0)
        log.append(None, key=b"ann", timestamp=0)
    partition = str(tmp_path / "t-0")
    assert main(["get", partition, "--key", "ann"]) == 0
    assert capsys.readouterr().out == "1\t1970-01-01T00:00:00.000Z\tann\t<null>\n"
    assert main(["get", partition, "--key-base64", "YW5u", "--history", "--json"]) == 0
    assert [line[:12] for line in capsys.readouterr().out.splitlines()] == ['{"offset":0,', '{"offset":1,']
    assert main(["get", partition, "--key", "bob"]) == 1
    assert capsys.readouterr().out == "no such record\n"
    with pytest.raises(SystemExit, match="2"):
        main(["get", partition, "--key-base64", "?"])
    assert "--key-base64" in capsys.readouterr().err
    for keys in ([], ["--key", "ann", "--key", "bob"], ["--key", "ann", "--key-base64", "YW5u"]):
        assert main(["get", partition, *keys]) == 2
        told = capsys.readouterr()
        assert (told.out, "one key" in told.err) == ("", True)


def test_a_history_is_for_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread that asks while the first is inside is refused, and takes no record away."""
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
    encoded[17:21] = crc32c(encoded[21:]).to_bytes(4, "big")
    with kstore.open(tmp_path / "t-0", "a", message_timestamp_before_max_ms=2**62) as log:
        log.append_batches(encoded)
        assert [(record.offset, record.key) for record in log] == list(zip(deltas, keys, strict=True))
        for made in (False, True):
            if made:
                log.roll()
                log.make_key_files()
            for way in (log, kstore.open(tmp_path / "t-0")):
                for key in keys:
                    assert getattr(way.last(key), "key", key) == key
                    assert {record.key for record in way.history(key)} <= {key}
