# cython: nonecheck=True
# (nothing here runs a row at a time, and Values may be made by __new__ alone)
"""Columns handed to other libraries as Arrow's C structs, in the capsules of the PyCapsule interface.

Whoever takes a struct calls its release function once, from any thread and perhaps without the GIL. Every node of a
tree holds references of its own, because a consumer may move a child out and keep it longer than its parent. A capsule
that nobody took from releases what it holds itself.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cython cimport final
from libc.errno cimport EINVAL, EIO, ENOMEM
from libc.stdint cimport int64_t
from libc.string cimport memset, strncpy

from kstore.engine.columns.c_data cimport ArrowArray, ArrowArrayStream, ArrowSchema
from kstore.engine.columns.array cimport Field, Values

cdef extern from "Python.h":
    bint Py_IsInitialized() noexcept nogil

cdef enum:
    NULLABLE = 2  # ARROW_FLAG_NULLABLE
    ERROR_ROOM = 1024


# ---- schemas --------------------------------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release is not NULL:
            schema.children[i].release(schema.children[i])
        PyMem_RawFree(schema.children[i])
    PyMem_RawFree(schema.children)
    if schema.dictionary is not NULL:
        if schema.dictionary.release is not NULL:
            schema.dictionary.release(schema.dictionary)
        PyMem_RawFree(schema.dictionary)
    drop(schema.private_data)
    schema.release = NULL


cdef void drop(void *owner) noexcept nogil:
    """Gives up a reference. At the end of the process, when the interpreter is gone, there is nothing to give it to."""
    if owner is not NULL and Py_IsInitialized():
        with gil:
            Py_DECREF(<object>owner)


cdef int fill_schema(ArrowSchema *out, Field field) except -1:
    """On failure, what was filled can be released."""
    cdef bytes name = field.name.encode()
    cdef int64_t i
    owner = (name, field)
    memset(out, 0, sizeof(ArrowSchema))
    out.name = name
    out.format = field.format
    out.flags = NULLABLE if field.nullable else 0
    out.release = release_schema
    Py_INCREF(owner)
    out.private_data = <void *><PyObject *>owner
    if field.children:
        out.children = <ArrowSchema **>PyMem_RawCalloc(len(field.children), sizeof(void *))
        if out.children is NULL:
            raise MemoryError()
        for i in range(len(field.children)):
            out.children[i] = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
            if out.children[i] is NULL:
                raise MemoryError()
            out.n_children += 1
            fill_schema(out.children[i], field.children[i])
    if field.words is not None:
        out.dictionary = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
        if out.dictionary is NULL:
            raise MemoryError()
        fill_schema(out.dictionary, field.words.field)
    return 0


cdef void free_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


def schema_capsule(Field field not None):
    """A new capsule with a schema, for __arrow_c_schema__."""
    cdef ArrowSchema *schema = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
    if schema is NULL:
        raise MemoryError()
    capsule = PyCapsule_New(schema, "arrow_schema", free_schema)
    fill_schema(schema, field)
    return capsule


# ---- arrays ---------------------------------------------------------------------------------------------------------

cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release is not NULL:
            array.children[i].release(array.children[i])
        PyMem_RawFree(array.children[i])
    PyMem_RawFree(array.children)
    if array.dictionary is not NULL:
        if array.dictionary.release is not NULL:
            array.dictionary.release(array.dictionary)
        PyMem_RawFree(array.dictionary)
    PyMem_RawFree(array.buffers)
    drop(array.private_data)
    array.release = NULL


cdef int fill_array(ArrowArray *out, Values values) except -1:
    """On failure, what was filled can be released."""
    cdef Py_ssize_t i, count = len(values.buffers)
    cdef Py_buffer view
    memset(out, 0, sizeof(ArrowArray))
    out.release = release_array
    out.length = values.length
    out.null_count = values.null_count
    Py_INCREF(values)
    out.private_data = <void *><PyObject *>values
    out.buffers = <const void **>PyMem_RawCalloc(count or 1, sizeof(void *))
    if out.buffers is NULL:
        raise MemoryError()
    out.n_buffers = count
    for i in range(count):
        if values.buffers[i] is not None:  # its address stays as long as `values` holds it
            PyObject_GetBuffer(values.buffers[i], &view, PyBUF_SIMPLE)
            out.buffers[i] = view.buf
            PyBuffer_Release(&view)
    if values.children:
        out.children = <ArrowArray **>PyMem_RawCalloc(len(values.children), sizeof(void *))
        if out.children is NULL:
            raise MemoryError()
        for i in range(len(values.children)):
            out.children[i] = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
            if out.children[i] is NULL:
                raise MemoryError()
            out.n_children += 1
            fill_array(out.children[i], values.children[i])
    if values.field.words is not None:
        out.dictionary = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
        if out.dictionary is NULL:
            raise MemoryError()
        fill_array(out.dictionary, values.field.words)
    return 0


cdef void free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    PyMem_RawFree(array)


def array_capsule(Values values not None):
    """A new capsule with an array, for __arrow_c_array__."""
    cdef ArrowArray *array = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
    if array is NULL:
        raise MemoryError()
    capsule = PyCapsule_New(array, "arrow_array", free_array)
    fill_array(array, values)
    return capsule


# ---- streams --------------------------------------------------------------------------------------------------------

@final
cdef class Source:
    """Behind a stream: its schema, the batches to come, and the text of the last error."""

    cdef Field field
    cdef object batches
    cdef char[ERROR_ROOM] text

    cdef int failed(self, error) noexcept:
        """Keeps the error's text for get_last_error and tells its errno."""
        message = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[: ERROR_ROOM - 1]
        strncpy(self.text, message, ERROR_ROOM - 1)
        if isinstance(error, MemoryError):
            return ENOMEM
        return EIO if isinstance(error, OSError) else EINVAL


cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept nogil:
    with gil:
        source = <Source>stream.private_data
        memset(out, 0, sizeof(ArrowSchema))
        try:
            fill_schema(out, source.field)
        except BaseException as e:
            if out.release is not NULL:
                out.release(out)
            return source.failed(e)
        return 0


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept nogil:
    with gil:
        source = <Source>stream.private_data
        memset(out, 0, sizeof(ArrowArray))
        try:
            batch = next(source.batches, None)
            if batch is not None:  # None: the end, which a released array says
                fill_array(out, batch.values)
        except BaseException as e:
            if out.release is not NULL:
                out.release(out)
            return source.failed(e)
        return 0


cdef const char *stream_error(ArrowArrayStream *stream) noexcept nogil:
    with gil:
        source = <Source>stream.private_data
        return source.text if source.text[0] else NULL


cdef void release_stream(ArrowArrayStream *stream) noexcept nogil:
    drop(stream.private_data)
    stream.release = NULL


cdef void free_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    PyMem_RawFree(stream)


def stream_capsule(Field field not None, batches):
    """A new capsule with a stream of what `batches` gives, for __arrow_c_stream__; what it raises ends the stream."""
    cdef Source source = Source.__new__(Source)
    cdef ArrowArrayStream *stream
    source.field = field
    source.batches = batches
    stream = <ArrowArrayStream *>PyMem_RawCalloc(1, sizeof(ArrowArrayStream))
    if stream is NULL:
        raise MemoryError()
    capsule = PyCapsule_New(stream, "arrow_array_stream", free_stream)
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = release_stream
    Py_INCREF(source)
    stream.private_data = <void *><PyObject *>source
    return capsule
