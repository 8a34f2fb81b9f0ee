"""Files are closed in time: of deleted segments, and those kept open when others need a descriptor."""

from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python

SEGMENTS = 100
OPTIONS = {
    "internal_segment_bytes": 150,
    "segment_index_bytes": 64,
    "message_timestamp_before_max_ms": 2**63 - 1,
}


def append(log: kstore.LogWriter, count: int, text: bytes = b"") -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append(text + b"%060d" % offset, timestamp=1_700_000_000_000 + offset)


def run(script: str, *arguments: object) -> None:
    done = run_python(script, *arguments, options=["-W", "error"])
    assert done.stdout + done.stderr == "done\n"


DELETED = """
import resource, sys, kstore
options = {"internal_segment_bytes": 150, "segment_index_bytes": 64, "retention_bytes": 0}
with kstore.open(sys.argv[1], "a", file_delete_delay_ms=int(sys.argv[2]), **options) as log:
    kept, shown = list(log.segments), log.records()
    wanted = [record.offset for record in log]
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    log.retain()
    assert log.log_start_offset == log.log_end_offset == len(wanted)
    if sys.argv[2] != "0":
        assert [record.offset for record in shown] == wanted
    log.append(b"v" * 60)
    log.truncate_fully_and_start_at(7)
    assert log.append(b"v") == 7
print("done")
"""


@pytest.mark.parametrize("delay", [0, 60_000])
def test_more_are_deleted_than_there_are_descriptors(tmp_path: Path, delay: int) -> None:
    """As long as the files are there, a reader that has the segments goes on reading them."""
    with kstore.open(tmp_path / "t-0", "a", **OPTIONS) as log:
        append(log, SEGMENTS)
    run(DELETED, tmp_path / "t-0", delay)


def test_readers_keep_what_is_deleted_and_replaced(tmp_path: Path) -> None:
    """A reader finds the file that it has seen, though others have its name; and still when it is removed."""
    now = 1_700_000_000_000
    with kstore.open(
        tmp_path / "t-0", "a", clock=lambda: now, file_delete_delay_ms=60_000, retention_ms=-1
    ) as log:
        for text in (b"one", b"two", b"three"):
            append(log, 5, text)
            if text == b"one":
                first = log.records()
            elif text == b"two":
                second = log.records()
            log.truncate_fully_and_start_at(0)
        kstore.limit_open_files(0)  # none is open because it was read before
        kstore.limit_open_files(None)
        assert [(record.value or b"")[:3] for record in first] == [b"one"] * 5
        now += 60_000
        log.retain()
        assert not list((tmp_path / "t-0").glob("*.deleted"))
        assert [(record.value or b"")[:3] for record in second] == [b"two"] * 5


FULL = """
import errno, os, resource, sys, kstore
log, other = kstore.open(sys.argv[1]), kstore.open(sys.argv[1])
writer = kstore.open(sys.argv[2], "a", internal_segment_bytes=150, segment_index_bytes=64)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
kstore.limit_open_files(1000)
opens = lambda: kstore.open(sys.argv[1])
for each in (log.refresh, writer.flush, other.refresh, opens, writer.roll, writer.close):
    if not writer.is_closed:
        writer.append(b"v" * 60)
    assert sum(1 for _ in log) == 100
    held = []
    try:
        while True:
            held.append(os.open("/", os.O_RDONLY))
    except OSError as e:
        assert e.errno == errno.EMFILE
    assert len(held) < 10, "the segments keep theirs"  # a thread of the writer may have had one just now
    each()
    for descriptor in held:
        os.close(descriptor)
print("done")
"""


def test_a_descriptor_is_made_free_for_whatever_needs_one(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", **OPTIONS) as log:
        append(log, SEGMENTS)
    run(FULL, tmp_path / "t-0", tmp_path / "other-0")
