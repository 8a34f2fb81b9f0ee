"""A log in Apache Kafka's on-disk format, inside a Python process: no broker, no server.

    import kstore

    with kstore.open("orders-0", "a") as log:          # creates the directory orders-0
        log.append(b"first", key=b"a")
        log.append(b"second", key=b"b")

    with kstore.open("orders-0") as log:               # reads it; also while another process writes
        for record in log:
            print(record.offset, record.key, record.value)
        print(log.get(1).value)

Start with help(kstore.open). It returns a PartitionLog (to read) or a LogWriter (to write). LogConfig has the
options of a log, LogStore keeps the topics of a log directory, KstoreError is the base class of all
exceptions.
"""

from __future__ import annotations

from kstore._version import __version__

# Where the public names come from. A module is imported when one of its names is first used, so that `import
# kstore` takes no time; __init__.pyi says it to type checkers and editors, and stubtest compares the
# two.
_SOURCES = {
    "kstore.checking.check": "check",
    "kstore.checking.finding": "Finding Report",
    "kstore.checking.repair": "RepairPlan RepairStep repair",
    "kstore.config": "LogConfig",
    "kstore.copying.adoption": "Adoption adopt",
    "kstore.copying.operation": "CopyReport copy",
    "kstore.copying.wanted": "PartitionCopy",
    "kstore.engine.append.record_accumulator": "Ticket",
    "kstore.engine.append.record_appender": "Appended",
    "kstore.engine.record.batch": "Record RecordBatch",
    "kstore.engine.record.batch_builder": "encode_batch",
    "kstore.engine.scan.batch_reader": "Skipped",
    "kstore.engine.segment.index": "AbortedTxn",
    "kstore.engine.segment.segment": "OffsetAndTimestamp Segment",
    "kstore.errors": """
        CorruptCheckpointError CorruptFileError CorruptIndexError CorruptRecordError CorruptSnapshotError
        CursorLockedError InvalidConfigError InvalidProducerEpochError InvalidRecordError
        InvalidRecordStateError
        InvalidTimestampError InvalidTxnStateError KstoreError LibraryError LogChangedError LogClosedError
        LogFailedError LogLockedError LogNotFoundError OffsetOutOfRangeError OffsetOverflowError
        OffsetsOutOfOrderError OutOfOrderSequenceError PolicyViolationError RecordTooLargeError
        ReentrantCallError TransactionCoordinatorFencedError UnexpectedAppendOffsetError
        UnsupportedCodecError
    """,
    "kstore.log.compact.report": "CompactedSegment Compaction ErasedSegment Erasure",
    "kstore.log.cursors.cursor": "Cursor",
    "kstore.log.cursors.cursor_columns": "CursorColumns",
    "kstore.log.cursors.offset_commits": "OffsetAndMetadata",
    "kstore.log.files.layout": "TopicPartition",
    "kstore.log.follow.follower": "Follower",
    "kstore.log.follow.position": "Position",
    "kstore.log.follow.waiting": "wait",
    "kstore.log.partition": "PartitionLog",
    "kstore.log.read.offset_lookup": """
        EARLIEST EARLIEST_LOCAL EARLIEST_PENDING_UPLOAD LATEST LATEST_TIERED MAX_TIMESTAMP
    """,
    "kstore.log.read.page_cache": "Residency",
    "kstore.log.read.slice": "Slice",
    "kstore.log.read.span": "Span",
    "kstore.log.recovery.report": "DataLossWarning",
    "kstore.log.send.sending": "Sent",
    "kstore.log.share.acquired_record": "AcknowledgeType AcquiredRecord",
    "kstore.log.share.descriptions": "ShareGroupState",
    "kstore.log.share.share_group": "NextRecord ShareGroup",
    "kstore.log.write.appender": "Appender",
    "kstore.log.write.retention": "Decision",
    "kstore.log.compact.key_files": "KeyFileReport",
    "kstore.log.writer": "LogWriter",
    "kstore.descriptors": "OpenFiles limit_open_files open_files",
    "kstore.opening": "get_include open open_async",
    "kstore.page": "Page",
    "kstore.reporting.report": "report",
    "kstore.serving.server": "Server",
    "kstore.serving.service": "serve",
    "kstore.shipping.partition_shipping": "ShippedPartition",
    "kstore.shipping.ship": "ShipReport ship",
    "kstore.store": "LogStore",
    "kstore.store.consumer_offsets": "CursorTransfer",
    "kstore.store.descriptions": "StoreHealth TopicDescription",
    "kstore.store.metrics": "Histogram PartitionMetrics StoreMetrics TopicMetrics",
    "kstore.store.read.store_cursor": "StoreColumns StoreCursor TopicColumns",
    "kstore.store.read.store_follower": "StoreFollower",
    "kstore.store.read.table": "Table",
    "kstore.store.read.topic_reader": "TopicRecord",
    "kstore.typed": "ConfigOptions",
}
_MODULES = {name: module for module, names in _SOURCES.items() for name in names.split()}

__all__ = ["__version__", "explain", *sorted(_MODULES)]  # noqa: PLE0604 - all are strings


def __getattr__(name: str) -> object:
    if name == "explain":  # a package; its import gives it its name here
        __import__("kstore.explain")
        return globals()[name]
    if name not in _MODULES:
        raise AttributeError(f"module 'kstore' has no attribute {name!r}")
    value: object = getattr(__import__(_MODULES[name], fromlist=[name]), name)  # without `importlib`: 0.5 ms
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
