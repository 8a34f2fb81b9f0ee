"""What goes into logs and comes out of them, counted and timed."""

from cython cimport final
from libc.stdint cimport int64_t


@final
cdef class Traffic:
    """What goes into some logs and comes out of them, counted, and how long appends and syncs take: whoever
    counts has the GIL. Logs that have none are not counted."""

    def add(self, int at, int64_t count):
        """Adds to one of the totals; IndexError."""
        if not 0 <= at < COUNTED:
            raise IndexError(at)
        self.totals[at] += count

    def counts(self):
        """The totals: records in, bytes in, records out, bytes out, and those that only `add` counts."""
        return [self.totals[i] for i in range(COUNTED)]

    def times(self):
        """Of appends and of syncs: (how many took up to 1024 ns, up to 2048 ns and so on, the rest; the sum
        in ns)."""
        return [
            ([self.appends.counts[i] for i in range(TIMED)], self.appends.sum_ns),
            ([self.syncs.counts[i] for i in range(TIMED)], self.syncs.sum_ns),
        ]
