"""A writer's life in a few dozen system calls of every kind, and what holds after any of them failed."""

from collections.abc import Iterator
from pathlib import Path

import kstore

OPTIONS = {
    "internal_segment_bytes": 2000,
    "segment_index_bytes": 256,
    "index_interval_bytes": 100,
    "file_delete_delay_ms": 0,
    "retention_bytes": 8000,
}


class Story:
    """Appends numbered values. `acked`: by offset, those whose append returned; `durable`: those flushed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.acked: dict[int, bytes] = {}
        self.durable = 0  # every acked offset below is on the disk
        self.start = 0
        self.number = 0
        self.log: kstore.LogWriter | None = None

    def values(self, n: int) -> list[bytes]:
        self.number += n
        return [b"%05d" % i + b"." * 40 for i in range(self.number - n, self.number)]

    def tell(self) -> None:
        """Lives it; stops with the first error, the log left as it then is."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """The same, stopping where what is known of the log changes."""
        self.log = log = kstore.open(self.directory, "a", **OPTIONS)
        for value in self.values(5):
            self.acked[log.append(value, b"k")] = value
            yield
        values = self.values(40)
        self.acked |= zip(log.extend(values, batch_bytes=300), values, strict=True)
        self.durable = log.flush()
        yield
        values = self.values(20)
        self.acked |= zip(log.extend(values, batch_bytes=300), values, strict=True)
        yield
        log.roll()
        with log.appender(linger_ms=1000, batch_bytes=500) as out:
            values = self.values(20)
            tickets = [out.append(value) for value in values]
            for ticket, value in zip(tickets, values, strict=True):
                if ticket.offset is None:
                    out.flush()
                self.acked[ticket.wait()] = value
                yield
        log.retain()
        self.start = log.log_start_offset
        values = self.values(3)
        batch = kstore.encode_batch([(-1, None, value, None) for value in values])
        first = log.append_batches(batch).first_offset
        self.acked |= {first + i: value for i, value in enumerate(values)}
        self.durable = log.flush()
        yield
        cut = log.log_end_offset - 2
        for offset in [offset for offset in self.acked if offset >= cut]:
            del self.acked[offset]
        self.durable = min(self.durable, cut)
        yield
        log.truncate_to(cut)
        for value in self.values(10):
            self.acked[log.append(value, b"k")] = value
            yield
        log.close()

    def check(self, log: kstore.PartitionLog, *, durable_only: bool = False) -> None:
        """The log holds what was put there, and lacks nothing acknowledged (or nothing durable)."""
        there = {record.offset: record.value for record in log}
        known = {b"%05d" % i + b"." * 40 for i in range(self.number)}
        assert set(there.values()) <= known
        for offset, value in self.acked.items():
            if offset >= log.log_start_offset and (not durable_only or offset < self.durable):
                assert there.get(offset) == value, offset
        assert list(there) == sorted(there)
