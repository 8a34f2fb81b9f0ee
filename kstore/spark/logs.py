"""What kstore reports in Spark's Python processes, to Python's logging under the name kstore.spark.

A Python process that Spark starts has no configuration of logging. There lines go to standard error, which
is the log of the executor, or of the driver.
"""

import logging
import sys


def reported_to(name: str) -> logging.Logger:
    """The logger of this name; in a process that Spark started its lines are printed, unless there is a
    handler."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    own = logging.getLogger("kstore.spark")
    if spec is not None and spec.name.startswith("pyspark.") and not (own.handlers or logging.root.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        own.addHandler(handler)
        own.setLevel(logging.INFO)
    return logging.getLogger(name)
