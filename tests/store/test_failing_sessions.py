"""A file operation of a session fails: opening a store, recovering it, appending to it, closing it.

Some of them each; all with KSTORE_CALLS=all.
"""

import errno
from pathlib import Path

import pytest

import kstore
from kstore import LogStore
from kstore.engine.io.file import calls_made, fail_call
from tests.helpers.calls import some_calls

EACH = 20


pytestmark = pytest.mark.usefixtures("sound_calls")


def make(directory: Path, *, clean: bool) -> None:
    with LogStore(directory, mode="a") as store:
        store.create_topic("t", 3)
        append(store)
    if not clean:
        (directory / ".kafka_cleanshutdown").unlink()


def append(store: LogStore) -> None:
    for i in range(EACH):
        store.append("t", b"%d" % i, b"%d" % i)


def session(directory: Path) -> None:
    with LogStore(directory, mode="a", max_open_partitions=2) as store:
        append(store)


def rows(store: LogStore) -> int:
    return sum(len(batch) for batch in store.scan("t", ["value"]))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_any_call_fails(ram: Path, clean: bool) -> None:
    make(ram / "whole", clean=clean)
    fail_call(0, own=True)
    session(ram / "whole")
    calls = calls_made()
    assert calls > 100
    failures = 0
    tried = some_calls(calls, 4, clean)
    for nth in tried:
        directory = ram / f"t{nth}"
        make(directory, clean=clean)
        fail_call(nth, errno.EIO, own=True)
        failed = False
        try:
            session(directory)
        except (OSError, kstore.KstoreError):
            failed = True
        finally:
            fail_call(0)
        failures += failed
        with LogStore(directory, mode="a") as store:
            assert store.health().ok
            assert EACH <= rows(store) <= 2 * EACH
            assert failed or rows(store) == 2 * EACH
            append(store)
        reader = LogStore(directory)
        assert reader.closed_cleanly
        for tp in reader:
            assert reader.open(*tp).recovery.findings == []
    assert failures > len(tried) / 3
