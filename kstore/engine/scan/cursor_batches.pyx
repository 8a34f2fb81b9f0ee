"""The batches of a scan as a run of a feed: who stops between two of them goes on behind the one given last."""

from cython cimport final
from libc.stdint cimport INT64_MAX, int64_t

from kstore.errors import LogChangedError


@final
cdef class CursorBatches:
    """Iterates what `make` makes of each batch of a scanner, up to `most` rows or a few more.

    `next_offset` moves when all else is done: from there to the loop of whoever iterates is C code, so no
    interrupt comes between: a batch behind which it is was given. An exception goes to `failed`, which raises
    it; if it does not, this is the end.
    """

    cdef object scanner, make, failed
    cdef int64_t left
    cdef readonly int64_t next_offset  # the offset behind the batch that it gave last, -1 before the first
    cdef readonly object change        # the LogChangedError at which it ended; None if it did not
    cdef readonly bint is_stopped      # it gives nothing any more
    cdef readonly bint is_done         # it has given `most` rows

    def __init__(self, scanner, make, failed=None, int64_t most=INT64_MAX):
        self.scanner, self.make, self.failed = scanner, make, failed
        self.next_offset, self.left = -1, most

    def stop(self):
        """Nothing more is given; from any thread."""
        self.is_stopped = True

    @property
    def skipped(self):
        """What on_error="skip" has left out so far."""
        return self.scanner.skipped

    def __iter__(self):
        return self

    def __next__(self):
        if self.is_stopped or self.change is not None:
            raise StopIteration
        if self.left <= 0:
            self.is_done = True
            raise StopIteration
        try:
            batch = next(self.scanner)
            behind = batch.column("offset").values[-1].item() + 1
            given = self.make(batch)
        except LogChangedError as e:
            self.change = e
        except StopIteration:
            raise
        except Exception as e:
            self.is_stopped = True  # whoever goes on reads what was not given again
            if self.failed is None:
                raise
            self.failed(e)
        else:
            self.left -= len(batch)
            self.next_offset = behind
            return given
        raise StopIteration
