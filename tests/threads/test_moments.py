"""What readers see in the midst of a change."""

import threading
from pathlib import Path
from typing import Any

import pytest

import kstore


def batch(sequence: int) -> bytes:
    return kstore.encode_batch(
        [(-1, None, b"transactional", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def abort() -> bytes:
    key, value = bytes((0, 0, 0, 0)), bytes((0, 0, 0, 0, 0, 0))
    return kstore.encode_batch(
        [(-1, key, value, ())], producer_id=7, producer_epoch=0, transactional=True, control=True
    )


def test_committed_readers_wait_until_a_producer_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is in the log before its transaction is known, and the marker before its abortion is."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        seen: list[tuple[int, int, int]] = []

        def committed(*_: Any) -> None:
            records = len(list(log.records(isolation="read_committed")))
            seen.append((log.log_end_offset, log.last_stable_offset(), records))

        def around(work: Any) -> Any:
            def run(*args: Any) -> Any:
                committed()
                answer = work(*args)
                committed()
                return answer

            return run

        log.append(b"0")
        producers = log._producer_states.producers
        monkeypatch.setattr(producers, "apply", around(producers.apply))
        log.append_batches(batch(0))
        assert seen == [(2, 1, 1)] * 2
        seen.clear()
        log.append(b"2")
        assert (log.log_end_offset, log.last_stable_offset()) == (3, 1)
        log.append_batches(abort(), origin="coordinator", transaction_version=1)
        assert seen == [(4, 1, 1)] * 2
        assert log.last_stable_offset() == 4
        assert [r.offset for r in log.records(isolation="read_committed")] == [0, 2]


def test_the_end_is_looked_at_before_what_holds_readers_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a batch that comes in between is in the log, and neither held back nor accounted for."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"0")
        written, looked = threading.Event(), threading.Event()
        writing = threading.Thread(target=log.append_batches, args=[batch(0)])
        producers, bounds = log._producer_states.producers, log._bounds
        apply = producers.apply

        def apply_late(batch: kstore.RecordBatch) -> Any:
            written.set()
            looked.wait(30)
            return apply(batch)

        def look_late() -> Any:
            if threading.current_thread() is not writing:
                writing.start()
                written.wait(30)
            return bounds()

        monkeypatch.setattr(producers, "apply", apply_late)
        with monkeypatch.context() as patch:
            patch.setattr(log, "_bounds", look_late)
            assert log.last_stable_offset() == 1
        assert log.log_end_offset == 2
        looked.set()
        writing.join()
        assert log.last_stable_offset() == 1


def test_a_refusal_holds_nobody_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(tmp_path / "t-0", "a", max_message_bytes=200) as log:
        log.append(b"0")
        big = kstore.encode_batch(
            [(-1, None, b"." * 500, ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        with pytest.raises(kstore.RecordTooLargeError):
            log.append_batches(big)
        log.append(b"1")
        assert log.last_stable_offset() == 2


def test_a_log_that_was_truncated_and_has_grown_beyond(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as writer:
        for _ in range(20):
            writer.append(b"." * 50)
        reader = kstore.open(tmp_path / "t-0")
        assert reader.log_end_offset == 20
        writer.truncate_to(10)
        for _ in range(30):
            writer.append(b"!" * 77)
        assert reader.refresh()
        assert reader.log_end_offset == 40
        assert [len(r.value or b"") for r in reader] == [50] * 10 + [77] * 30
