"""A writer that appends, rolls, retains and truncates; beside it four reader threads and two reader
processes. No record is wrong, torn, missing or there twice, and nothing is left open or mapped."""

import gc
import itertools
import random
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import SEED, times
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import environment
from tests.helpers.waiting import descriptors, threads_doing, until_closed
from tests.threads.reading import check, follow_on, value_of

SECONDS = times(2)


class Stress:
    """The log, and what its threads have seen."""

    def __init__(self, directory: Path) -> None:
        self.log = kstore.open(
            directory,
            "a",
            internal_segment_bytes=200_000,
            index_interval_bytes=1000,
            retention_bytes=2_000_000,
            file_delete_delay_ms=0,
        )
        self.log.append(value_of(0, 10))
        self.until = time.monotonic() + SECONDS
        self.truncations = 0  # raised before and after each: a reader that met one may fail
        self.errors: list[BaseException] = []
        self.seen: dict[str, int] = {}

    def start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while time.monotonic() < self.until:
                    work()
            except BaseException as e:  # noqa: BLE001 - reported by the test
                self.errors.append(e)

        thread = threading.Thread(target=run, name=work.__name__)
        thread.start()
        return thread

    def count(self, what: str, number: int = 1) -> None:
        self.seen[what] = self.seen.get(what, 0) + number

    def write(self) -> None:
        rng = random.Random(SEED)
        number = 1
        while time.monotonic() < self.until:
            if rng.random() < 0.5:
                self.log.append(value_of(number, rng.randrange(300)))
                number += 1
            else:
                many = rng.randrange(1, 200)
                self.log.extend([value_of(number + i, 100) for i in range(many)], batch_bytes=2000)
                number += many
            if rng.random() < 0.02:
                self.log.retain()
            if rng.random() < 0.01:
                self.log.roll()
            if rng.random() < 0.004:
                self.truncations += 1
                # where a batch begins: of one that is cut in its middle nothing stays, and that leaves a gap
                end = self.log.log_end_offset
                batch = self.log.translate(max(self.log.log_start_offset, end - rng.randrange(1, 400)))
                self.log.truncate_to(end if batch is None else batch.base_offset)
                self.truncations += 1
                self.count("truncations")

    def iterate(self) -> None:
        before, last = self.truncations, -1
        try:
            for record in self.log:
                check(record)
                assert record.offset > last
                last = record.offset
                self.count("iterated")
        except (kstore.CorruptRecordError, kstore.errors.LogChangedError):
            assert before % 2 or self.truncations != before

    def jump(self) -> None:
        before = self.truncations
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = random.randrange(start, end)
        try:
            record = self.log.get(offset)
            check(record)
            found = self.log.find(timestamp=record.timestamp)
            assert before % 2 or self.truncations != before or record.offset == offset
            assert found is None or found.offset <= offset or found.timestamp >= record.timestamp
        except kstore.OffsetOutOfRangeError:
            assert self.log.log_start_offset > offset or before % 2 or self.truncations != before
        except (kstore.CorruptRecordError, kstore.CorruptIndexError):
            assert before % 2 or self.truncations != before
        self.count("looked up")

    def send(self) -> None:
        """Half of the log through a socket, whole batches over segments, checked as they arrive."""
        before = self.truncations
        try:
            span = self.log.span(
                random.randrange(self.log.log_start_offset, self.log.log_end_offset), 1_000_000
            )
        except (kstore.OffsetOutOfRangeError, kstore.CorruptRecordError):
            return
        ours, theirs = socket.socketpair()
        into = bytearray()

        def take() -> None:
            with theirs:
                while data := theirs.recv(1 << 16):
                    into.extend(data)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            with ours:
                assert span.send(ours) == (span.size, "sendfile")
            thread.join()
            at, last = 0, -1
            while at < len(into):
                batch = kstore.RecordBatch(bytes(into[at : at + 12 + int.from_bytes(into[at + 8 : at + 12])]))
                assert batch.is_valid
                assert batch.base_offset > last
                for record in batch.records():
                    check(record)
                at, last = at + batch.size, batch.last_offset
                self.count("sent", batch.records_count)
        except (kstore.CorruptRecordError, AssertionError):
            thread.join()
            if not (before % 2 or self.truncations != before):
                raise

    def follow(self) -> None:
        self.count("followed", follow_on(self.log, self.log.log_start_offset, self.until))


def opened(directory: Path) -> list[str]:
    """What this process has open or mapped of a directory."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    names += Path("/proc/self/maps").read_text().splitlines()
    return [name for name in names if str(directory) in name]


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    before = descriptors()
    stress = Stress(directory)
    readers = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("reading.py")), how, str(directory), str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        for how in ("refresh", "follow")
    ]
    works = [stress.write, stress.iterate, stress.jump, stress.send, stress.follow]
    for thread in [stress.start(work) for work in works]:
        thread.join()
    for reader in readers:
        out, err = reader.communicate(timeout=60)
        assert reader.returncode == 0, err.decode()
        assert int(out) > 0
    assert not stress.errors, "".join(traceback.format_exception(stress.errors[0]))
    assert stress.seen.keys() >= {"iterated", "looked up", "sent", "followed"}, stress.seen

    log, views = (
        stress.log,
        [stress.log.segments[0], stress.log.records(), stress.log.span(stress.log.log_start_offset)],
    )
    log.close()
    for record in kstore.open(directory):
        check(record)
    del log, stress.log
    for record in views[1]:  # type: ignore[attr-defined]
        check(record)  # views outlive their log,
    for path in directory.iterdir():
        path.unlink()  # and what was found in its files these
    assert len(bytes(views[2])) == views[2].size  # type: ignore[call-overload, attr-defined]
    del views, record, works, stress, thread, reader, readers
    gc.collect()
    assert opened(directory) == []
    until_closed(before)


@pytest.mark.parametrize("call", ["append", "extend"])
def test_closed_while_threads_append(tmp_path: Path, call: str) -> None:
    """LogClosedError means that nothing was appended: to append it elsewhere makes no second one."""
    for round_ in range(times(6)):
        path = tmp_path / f"t-{round_}"
        log = kstore.open(path, "a", durability="group")
        refused: list[bytes] = []
        done: list[bytes] = []

        def work(number: int, log: kstore.LogWriter = log, done: Any = done, refused: Any = refused) -> None:
            for n in itertools.count():
                value = b"%d %d" % (number, n)
                try:
                    log.append(value) if call == "append" else log.extend([value])
                except kstore.LogClosedError:
                    refused.append(value)
                    return
                done.append(value)

        with threads_doing(*(partial(work, number) for number in range(3))):
            while not done:
                time.sleep(0.0001)
            log.close()
        assert sorted(r.value or b"" for r in kstore.open(path)) == sorted(done)
        assert len(refused) == 3


def test_aborted_transactions(tmp_path: Path) -> None:
    """A reader of committed records sees none of them at any moment, and all else that is stable."""
    ended = threading.Event()

    def read(log: kstore.PartitionLog) -> None:
        while not ended.is_set():
            log.refresh()
            expected = [offset for offset in range(log.last_stable_offset()) if offset % 4 in (0, 2)]
            offsets = [record.offset for record in log.records(isolation="read_committed")]
            assert offsets[: len(expected)] == expected
            assert all(offset % 4 in (0, 2) for offset in offsets)

    with kstore.open(tmp_path / "t-0", "a", max_message_bytes=200) as log:
        now = int(time.time() * 1000)
        with threads_doing(partial(read, log), partial(read, kstore.open(tmp_path / "t-0")), ended=ended):
            for sequence in range(times(300)):
                log.append(b"plain")
                log.append_batches(transactional((now, None, b"aborted", None), sequence=sequence))
                log.append(b"plain")
                end_transaction(log, "ABORT", now)
        with pytest.raises(kstore.RecordTooLargeError):  # what was refused holds no reader back
            log.append_batches(transactional((now, None, b"." * 500, None), sequence=times(300)))
        log.append(b"plain")
        assert log.last_stable_offset() == log.log_end_offset
