"""kstore's lookups at random offsets and timestamps, as contestants."""

import kstore
from benchmarks.data import T0, targets
from benchmarks.peers import InProcess


def gets(log: kstore.PartitionLog) -> InProcess:
    """log.get() and the value."""

    def work(wanted: list[int]) -> tuple[int, int]:
        get = log.get
        total = 0
        for offset in wanted:
            record = get(offset)
            record.value  # noqa: B018
            total += record.offset
        return len(wanted), total

    return InProcess("kstore", offsets, work)


def finds(log: kstore.PartitionLog) -> InProcess:
    """log.find() of timestamps of the records."""

    def work(wanted: list[int]) -> tuple[int, int]:
        find = log.find
        total = 0
        for timestamp in wanted:
            found = find(timestamp=timestamp)
            assert found is not None
            total += found.offset
        return len(wanted), total

    return InProcess("kstore", timestamps, work)


def offsets(seed: int, count: int, span: int) -> list[int]:
    """Random ones below `span`."""
    wanted: list[int] = targets(seed, count, span).tolist()
    return wanted


def timestamps(seed: int, count: int, span: int) -> list[int]:
    """Those of records at random offsets below `span`."""
    wanted: list[int] = (T0 + targets(seed, count, span) // 10).tolist()
    return wanted
