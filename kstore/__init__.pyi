from kstore import explain as explain
from kstore._version import __version__ as __version__
from kstore.checking.check import check as check
from kstore.checking.finding import Finding as Finding
from kstore.checking.finding import Report as Report
from kstore.checking.repair import RepairPlan as RepairPlan
from kstore.checking.repair import RepairStep as RepairStep
from kstore.checking.repair import repair as repair
from kstore.config import LogConfig as LogConfig
from kstore.copying.adoption import Adoption as Adoption
from kstore.copying.adoption import adopt as adopt
from kstore.copying.operation import CopyReport as CopyReport
from kstore.copying.operation import copy as copy
from kstore.copying.wanted import PartitionCopy as PartitionCopy
from kstore.descriptors import OpenFiles as OpenFiles
from kstore.descriptors import limit_open_files as limit_open_files
from kstore.descriptors import open_files as open_files
from kstore.engine.append.record_accumulator import Ticket as Ticket
from kstore.engine.append.record_appender import Appended as Appended
from kstore.engine.record.batch import Record as Record
from kstore.engine.record.batch import RecordBatch as RecordBatch
from kstore.engine.record.batch_builder import encode_batch as encode_batch
from kstore.engine.scan.batch_reader import Skipped as Skipped
from kstore.engine.segment.index import AbortedTxn as AbortedTxn
from kstore.engine.segment.segment import OffsetAndTimestamp as OffsetAndTimestamp
from kstore.engine.segment.segment import Segment as Segment
from kstore.errors import CorruptCheckpointError as CorruptCheckpointError
from kstore.errors import CorruptFileError as CorruptFileError
from kstore.errors import CorruptIndexError as CorruptIndexError
from kstore.errors import CorruptRecordError as CorruptRecordError
from kstore.errors import CorruptSnapshotError as CorruptSnapshotError
from kstore.errors import CursorLockedError as CursorLockedError
from kstore.errors import InvalidConfigError as InvalidConfigError
from kstore.errors import InvalidProducerEpochError as InvalidProducerEpochError
from kstore.errors import InvalidRecordError as InvalidRecordError
from kstore.errors import InvalidRecordStateError as InvalidRecordStateError
from kstore.errors import InvalidTimestampError as InvalidTimestampError
from kstore.errors import InvalidTxnStateError as InvalidTxnStateError
from kstore.errors import KstoreError as KstoreError
from kstore.errors import LibraryError as LibraryError
from kstore.errors import LogChangedError as LogChangedError
from kstore.errors import LogClosedError as LogClosedError
from kstore.errors import LogFailedError as LogFailedError
from kstore.errors import LogLockedError as LogLockedError
from kstore.errors import LogNotFoundError as LogNotFoundError
from kstore.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
from kstore.errors import OffsetOverflowError as OffsetOverflowError
from kstore.errors import OffsetsOutOfOrderError as OffsetsOutOfOrderError
from kstore.errors import OutOfOrderSequenceError as OutOfOrderSequenceError
from kstore.errors import PolicyViolationError as PolicyViolationError
from kstore.errors import RecordTooLargeError as RecordTooLargeError
from kstore.errors import ReentrantCallError as ReentrantCallError
from kstore.errors import TransactionCoordinatorFencedError as TransactionCoordinatorFencedError
from kstore.errors import UnexpectedAppendOffsetError as UnexpectedAppendOffsetError
from kstore.errors import UnsupportedCodecError as UnsupportedCodecError
from kstore.log.compact.key_files import KeyFileReport as KeyFileReport
from kstore.log.compact.report import CompactedSegment as CompactedSegment
from kstore.log.compact.report import Compaction as Compaction
from kstore.log.compact.report import ErasedSegment as ErasedSegment
from kstore.log.compact.report import Erasure as Erasure
from kstore.log.cursors.cursor import Cursor as Cursor
from kstore.log.cursors.cursor_columns import CursorColumns as CursorColumns
from kstore.log.cursors.offset_commits import OffsetAndMetadata as OffsetAndMetadata
from kstore.log.files.layout import TopicPartition as TopicPartition
from kstore.log.follow.follower import Follower as Follower
from kstore.log.follow.position import Position as Position
from kstore.log.follow.waiting import wait as wait
from kstore.log.partition import PartitionLog as PartitionLog
from kstore.log.read.offset_lookup import EARLIEST as EARLIEST
from kstore.log.read.offset_lookup import EARLIEST_LOCAL as EARLIEST_LOCAL
from kstore.log.read.offset_lookup import EARLIEST_PENDING_UPLOAD as EARLIEST_PENDING_UPLOAD
from kstore.log.read.offset_lookup import LATEST as LATEST
from kstore.log.read.offset_lookup import LATEST_TIERED as LATEST_TIERED
from kstore.log.read.offset_lookup import MAX_TIMESTAMP as MAX_TIMESTAMP
from kstore.log.read.page_cache import Residency as Residency
from kstore.log.read.slice import Slice as Slice
from kstore.log.read.span import Span as Span
from kstore.log.recovery.report import DataLossWarning as DataLossWarning
from kstore.log.send.sending import Sent as Sent
from kstore.log.share.acquired_record import AcknowledgeType as AcknowledgeType
from kstore.log.share.acquired_record import AcquiredRecord as AcquiredRecord
from kstore.log.share.descriptions import ShareGroupState as ShareGroupState
from kstore.log.share.share_group import NextRecord as NextRecord
from kstore.log.share.share_group import ShareGroup as ShareGroup
from kstore.log.write.appender import Appender as Appender
from kstore.log.write.retention import Decision as Decision
from kstore.log.writer import LogWriter as LogWriter
from kstore.opening import get_include as get_include
from kstore.opening import open as open
from kstore.opening import open_async as open_async
from kstore.page import Page as Page
from kstore.reporting.report import report as report
from kstore.serving.server import Server as Server
from kstore.serving.service import serve as serve
from kstore.shipping.partition_shipping import ShippedPartition as ShippedPartition
from kstore.shipping.ship import ShipReport as ShipReport
from kstore.shipping.ship import ship as ship
from kstore.store import LogStore as LogStore
from kstore.store.consumer_offsets import CursorTransfer as CursorTransfer
from kstore.store.descriptions import StoreHealth as StoreHealth
from kstore.store.descriptions import TopicDescription as TopicDescription
from kstore.store.metrics import Histogram as Histogram
from kstore.store.metrics import PartitionMetrics as PartitionMetrics
from kstore.store.metrics import StoreMetrics as StoreMetrics
from kstore.store.metrics import TopicMetrics as TopicMetrics
from kstore.store.read.store_cursor import StoreColumns as StoreColumns
from kstore.store.read.store_cursor import StoreCursor as StoreCursor
from kstore.store.read.store_cursor import TopicColumns as TopicColumns
from kstore.store.read.store_follower import StoreFollower as StoreFollower
from kstore.store.read.table import Table as Table
from kstore.store.read.topic_reader import TopicRecord as TopicRecord
from kstore.typed import ConfigOptions as ConfigOptions

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "AbortedTxn",
    "AcknowledgeType",
    "AcquiredRecord",
    "Adoption",
    "Appended",
    "Appender",
    "CompactedSegment",
    "Compaction",
    "ConfigOptions",
    "CopyReport",
    "CorruptCheckpointError",
    "CorruptFileError",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptSnapshotError",
    "Cursor",
    "CursorColumns",
    "CursorLockedError",
    "CursorTransfer",
    "DataLossWarning",
    "Decision",
    "ErasedSegment",
    "Erasure",
    "Finding",
    "Follower",
    "Histogram",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "KeyFileReport",
    "KstoreError",
    "LibraryError",
    "LogChangedError",
    "LogClosedError",
    "LogConfig",
    "LogFailedError",
    "LogLockedError",
    "LogNotFoundError",
    "LogStore",
    "LogWriter",
    "NextRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OpenFiles",
    "OutOfOrderSequenceError",
    "Page",
    "PartitionCopy",
    "PartitionLog",
    "PartitionMetrics",
    "PolicyViolationError",
    "Position",
    "Record",
    "RecordBatch",
    "RecordTooLargeError",
    "ReentrantCallError",
    "RepairPlan",
    "RepairStep",
    "Report",
    "Residency",
    "Segment",
    "Sent",
    "Server",
    "ShareGroup",
    "ShareGroupState",
    "ShipReport",
    "ShippedPartition",
    "Skipped",
    "Slice",
    "Span",
    "StoreColumns",
    "StoreCursor",
    "StoreFollower",
    "StoreHealth",
    "StoreMetrics",
    "Table",
    "Ticket",
    "TopicColumns",
    "TopicDescription",
    "TopicMetrics",
    "TopicPartition",
    "TopicRecord",
    "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetError",
    "UnsupportedCodecError",
    "__version__",
    "adopt",
    "check",
    "copy",
    "encode_batch",
    "explain",
    "get_include",
    "limit_open_files",
    "open",
    "open_async",
    "open_files",
    "repair",
    "report",
    "serve",
    "ship",
    "wait",
]
