"""With which options Java runs Spark in tests: it begins soon, and optimizes little, because it does not live
long."""

import sys
from pathlib import Path

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = Path(sys.prefix, "spark.jsa")  # tests/spark/archive.py makes it


def options() -> str:
    """With the archive of Spark's classes, if there is one. Where it does not fit, Java passes it over, and
    says nothing."""
    if not ARCHIVE.is_file() or ARCHIVE.stat().st_size == 0:
        return FAST
    return f"{FAST} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
