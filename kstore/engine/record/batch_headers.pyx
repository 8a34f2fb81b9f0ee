"""The headers of many batches, as a table for numpy."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from kstore.engine.record.batch cimport raise_fault
from kstore.engine.record.batch_walk cimport WALK_DAMAGED, FAR, LOOK, NEAR, WALK_NONE, WALK_SYSTEM, step
from kstore.engine.io.read_window cimport ReadWindow
from libkstore.format cimport ks_batch, ks_fault


cdef packed struct row:
    int64_t position
    ks_batch batch


cdef object header_layout = None


cdef object header_dtype():
    """The layout of `row` for numpy, made once (numpy is imported only when columns are asked for)."""
    global header_layout
    if header_layout is None:
        import numpy

        fields = (
            ("base_offset", "i8"), ("last_offset", "i8"), ("base_timestamp", "i8"), ("max_timestamp", "i8"),
            ("producer_id", "i8"), ("size", "i8"), ("crc", "u4"), ("leader_epoch", "i4"),
            ("last_offset_delta", "i4"), ("base_sequence", "i4"), ("records_count", "i4"), ("producer_epoch", "i2"),
            ("attributes", "i2"), ("magic", "i1"),
        )
        names, formats, offsets, at = ["position"], ["i8"], [0], 8
        for name, kind in fields:  # ks_batch has its widest fields first, so there is no padding between them
            names.append(name)
            formats.append(kind)
            offsets.append(at)
            at += int(kind[1])
        header_layout = numpy.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": sizeof(row)}
        )
    return header_layout


cdef object header_table(ReadWindow w, str path, int64_t start):
    """The headers of the batches that the window may show, from byte `start` on; see Segment.read_headers."""
    import numpy

    cdef ks_batch b
    cdef ks_fault fault
    cdef int64_t position = start, size = 0, count = 0, room = 0, ahead = FAR
    cdef row *rows = NULL
    cdef Py_buffer view
    table = numpy.empty(0, dtype=header_dtype())
    while True:
        # numpy asks for huge pages, which spares most of the page faults; its arrays are sized by what the rest
        # of the log would fill at the rate so far, so that the second is often the last. What is left may be a hole.
        room = 1024 if count == 0 else count + <int64_t>min(
            1.05 * count * (w.limit - position) / (position - start), 64.0 * count
        )
        larger = numpy.empty(room + 64, dtype=header_dtype())
        larger[:count] = table
        table = larger
        room = len(table)
        PyObject_GetBuffer(table, &view, PyBUF_SIMPLE)
        try:
            rows = <row *>view.buf
            with nogil:
                while count < room:
                    size = step(w, position, ahead, &b, &fault)
                    if size < 0:
                        break
                    ahead = LOOK if size > NEAR else FAR
                    rows[count].position = position
                    rows[count].batch = b
                    count += 1
                    position += size
        finally:
            PyBuffer_Release(&view)
        if size == WALK_SYSTEM:
            w.raise_failure(-1)
        if size == WALK_DAMAGED:
            raise_fault(&fault, path, position, -1)
        if size == WALK_NONE:
            return table[:count]
