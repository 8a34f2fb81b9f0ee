"""The batches of a scan, each of which moves a cursor."""

from cython cimport final
from libc.stdint cimport INT64_MAX, int64_t

from kstore.errors import CorruptRecordError, LogChangedError


@final
cdef class CursorBatches:
    """Iterates what `make` makes of each batch of a scanner, and moves the cursor behind the batch.

    It moves when all else is done: from there to the loop of whoever iterates is C code, so no interrupt
    comes between: a batch behind which a cursor stands was given. It ends after `most` rows, or more, and
    when somebody else has moved the cursor. An exception goes to `failed`, which raises it; if it does not,
    this is the end."""

    cdef object scanner, cursor, make, is_cut, failed
    cdef int64_t at, left
    cdef readonly bint is_at_end     # of the scan
    cdef readonly bint was_moved     # the cursor, by somebody else
    cdef readonly object change      # LogChangedError: the same is in other files now, perhaps

    def __init__(self, cursor, scanner, make, is_cut, failed=None, int64_t most=INT64_MAX):
        self.cursor, self.scanner, self.make, self.is_cut, self.failed = cursor, scanner, make, is_cut, failed
        self.at, self.left = -1, most

    def __iter__(self):
        return self

    def __next__(self):
        if self.scanner is None or self.left <= 0:
            raise StopIteration
        cursor = self.cursor
        if not cursor._is_at(self.at):
            self.was_moved = True
            raise StopIteration
        scanner, self.scanner = self.scanner, None  # whatever is raised: a batch that was not given is read again
        try:
            batch = next(scanner)
            if self.is_cut():  # it may be what came instead
                raise LogChangedError(cursor._view.path, -1, 0, 0, "it was truncated")
            behind = batch.column("offset").values[-1].item() + 1
            given = self.make(batch)
            mark = behind, scanner._batch_before(behind)
        except StopIteration:
            self.is_at_end = True
            raise
        except LogChangedError as e:
            self.change = e
        except Exception as e:
            if isinstance(e, CorruptRecordError) and self.is_cut():  # its batches lay elsewhere before
                self.change = LogChangedError(cursor._view.path, -1, 0, 0, "it was truncated")
            elif self.failed is None:
                raise
            else:
                self.failed(e)
        else:
            self.left -= len(batch)
            self.at = behind
            self.scanner = scanner
            cursor._mark = mark
            cursor._place = behind
            return given
        raise StopIteration
