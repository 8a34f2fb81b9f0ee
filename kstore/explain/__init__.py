"""Why a log is as it is, and what happens next, as data: `kstore.explain.retention(log)` and so on.

The functions change nothing. `kstore explain` prints their results.
"""

from kstore.explain.byte_sizes import CodecSize, Sizes, sizes
from kstore.explain.compactions import CompactionState, CompactionWait, compaction
from kstore.explain.kept_segments import Retention, SegmentRetention, retention
from kstore.explain.lookups import BatchRead, Lookup, SegmentLookup, lookup
from kstore.explain.open_transactions import OpenPartition, OpenTransaction, transactions
from kstore.explain.openings import Opening, OpeningStep, opening

__all__ = [
    "BatchRead",
    "CodecSize",
    "CompactionState",
    "CompactionWait",
    "Lookup",
    "OpenPartition",
    "OpenTransaction",
    "Opening",
    "OpeningStep",
    "Retention",
    "SegmentLookup",
    "SegmentRetention",
    "Sizes",
    "compaction",
    "lookup",
    "opening",
    "retention",
    "sizes",
    "transactions",
]
