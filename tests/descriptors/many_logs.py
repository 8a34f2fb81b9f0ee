"""Run as `python many_logs.py DIRECTORY COUNT LIMIT`: so many logs in one log directory and so many outside,
written in turn, read all at once, under so few descriptors. Prints a line for each step, as many_segments.py
does."""

import itertools
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import kstore
from tests.descriptors.many_segments import step

OPTIONS = {"segment_index_bytes": 64, "internal_segment_bytes": 200}
RECORDS = 4


def value(log: int, number: int) -> bytes:
    return b"%030d %030d" % (log, number)


def write(path_of: Callable[[int], Path], count: int) -> None:
    """Each is opened, written and closed in its turn."""
    for i in range(count):
        with kstore.open(path_of(i), "a", **OPTIONS) as log:
            for number in range(RECORDS):
                log.append(value(i, number))


def write_together(path_of: Callable[[int], Path], count: int) -> None:
    """Some are open for writing at the same time, and rolled again and again."""
    logs = [kstore.open(path_of(i), "a", **OPTIONS) for i in range(count)]
    for number in range(RECORDS, 3 * RECORDS):
        for i, log in enumerate(logs):
            assert log.append(value(i, number)) == number
    for i, log in enumerate(logs):
        assert [record.value for record in log] == [value(i, n) for n in range(3 * RECORDS)]
    for log in logs:
        log.close()


def read(logs: list[kstore.PartitionLog], more: int) -> None:
    """All of them are open; each is read a little, in turn, twice."""
    for number, (i, log) in itertools.product((0, RECORDS - 1), enumerate(logs)):
        assert log.get(number).value == value(i, number)
    for i, log in enumerate(logs):
        wanted = 3 * RECORDS if i < more else RECORDS
        assert [record.value for record in log] == [value(i, n) for n in range(wanted)]
        assert log.refresh() is False


def main(directory: str, count: int, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    together = min(count, limit // 8)
    home = Path(directory, "broker")
    home.mkdir(parents=True)
    (home / "meta.properties").write_text("version=1\nbroker.id=1\n")
    logs: list[kstore.PartitionLog] = []
    for name, path_of in (
        ("by themselves", lambda i: Path(directory, f"log{i}")),
        ("in one log directory", lambda i: home / f"t-{i}"),
    ):
        step(f"write {count} logs in turn, {name}", lambda p=path_of: write(p, count))
        step(f"write {together} at once", lambda p=path_of: write_together(p, together))
        step(
            f"open {count} for reading",
            lambda p=path_of: logs.extend(kstore.open(p(i)) for i in range(count)),
        )
        step("read all", lambda: read(logs[-count:], together))
    step("read all again", lambda: [read(part, together) for part in (logs[:count], logs[count:])])
    assert len(logs) == 2 * count


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
