"""kafka-python, whose import warns of its own use of importlib.resources."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

__all__ = ["kafka"]
