__pyx_capi__: dict[str, object]  # what other extension modules cimport
