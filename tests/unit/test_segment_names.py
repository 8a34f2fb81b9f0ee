"""Which files of a directory are segments, and what a log does with files that only look like one."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.unit.logs import filled, offsets

STRANGE = [
    f"{2**63:020d}.log", f"{2**63:020d}.log.swap", f"{2**64:020d}.log", "00.log", "0" * 21 + ".log", "4.log",
    "+0000000000000000004.log", "-4.log", "0000000000000000000x.log", "00000000000000000001log", f"{1:020d}.",
    f"{1:020d}", f"{1:020d}.lo", "größe", os.fsdecode(b"\xff\xfe"), "notes.index", "my.notes.timeindex",
    "99999999999999999999.txnindex", "0.log.swap",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["r", "a"])
def test_kafka_reads_names_of_20_digits_only(tmp_path: Path, mode: Any) -> None:
    """Kafka makes a number of any name, and opens the file that this number is called.

    A file with another name is no segment, replaces none and is not deleted. A .log or an index is reported.
    """
    filled(tmp_path / "t-0", 20).close()
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    content = logs[1].read_bytes()
    for name in STRANGE:
        odd = tmp_path / "t-0" / name
        odd.write_bytes(content)
        with kstore.open(tmp_path / "t-0", mode) as log:
            assert offsets(log) == list(range(20))
            found = [(finding.kind, finding.file) for finding in log.recovery.findings]
            assert found == ([("orphan", str(odd))] if name.endswith((".log", "index", ".swap")) else []), (
                name
            )
            log.refresh()
            assert len(log.segments) == len(logs)
        assert odd.read_bytes() == content
        odd.unlink()


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_link_to_nothing_is_called_so(tmp_path: Path, mode: Any, which: int, has_index: bool) -> None:
    filled(tmp_path / "t-0").close()
    file = sorted((tmp_path / "t-0").glob("*.log"))[which]
    file.unlink()
    if not has_index:
        file.with_suffix(".index").unlink()
    file.symlink_to(tmp_path / "gone.log")
    with (
        pytest.raises(OSError, match=r"symbolic link to .*gone\.log, where no file is") as caught,
        kstore.open(tmp_path / "t-0", mode) as log,
    ):
        list(log)
    assert caught.value.errno == errno.EINVAL
    assert not isinstance(caught.value, FileNotFoundError)  # the log is there
