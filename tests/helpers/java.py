"""The options with which Java runs Spark in tests: it starts soon, and optimizes little."""

import sys
from pathlib import Path

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = Path(sys.prefix, "spark.jsa")  # tests/spark/archive.py makes it


def options() -> str:
    """With the archive of Spark's classes, if there is one. Java passes over one that does not fit."""
    if not ARCHIVE.is_file() or ARCHIVE.stat().st_size == 0:
        return FAST
    return f"{FAST} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
