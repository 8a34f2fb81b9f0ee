CODECS: tuple[str, ...]
FIELDS: dict[str, int]
NUMPY_KINDS: dict[str, str]
TABLE: tuple[tuple[str, str, int], ...]
TIMESTAMP_TYPES: tuple[str, ...]

__pyx_capi__: dict[str, object]  # what other extension modules cimport
