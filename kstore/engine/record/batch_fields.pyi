from collections.abc import Iterable

import numpy

from kstore.engine.io.buffers import ReadWindow

CODECS: tuple[str, ...]
FIELDS: dict[str, int]
NUMPY_KINDS: dict[str, str]
TABLE: tuple[tuple[str, str, int], ...]
TIMESTAMP_TYPES: tuple[str, ...]

def header_table(w: ReadWindow, path: str, start: int, fields: Iterable[str] | None) -> numpy.ndarray:
    """The headers of the batches that the window may show, from byte `start` on; see Segment.read_headers."""

__pyx_capi__: dict[str, object]  # what other extension modules cimport
