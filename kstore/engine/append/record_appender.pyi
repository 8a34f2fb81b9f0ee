from datetime import datetime
from typing import Final, Literal, NamedTuple

from kstore.engine.append.log_appender import LogAppender
from kstore.typed import BytesLike, Cells, HeaderLists, Headers, Times

NO_KEY: Final[str]

class Appended(NamedTuple):
    """The result of `append_batches`: the first and last offset that the batches have now, and the number of
    batches.

    `duplicate` is True if nothing was written because producers had sent all of these batches before; the
    offsets are those that they got then. If they had sent some of them, only the others are appended, and the
    result is about these."""

    first_offset: int
    last_offset: int
    batch_count: int
    duplicate: bool = False

class RecordAppender(LogAppender):
    """A log that takes records and batches. Thread-safe: one thread at a time is in here."""

    def append(
        self,
        value: BytesLike | None,
        key: BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Appends one record and returns its offset.

        value, key: bytes-like, or None. In a compacted log a value of None deletes the key. timestamp:
        milliseconds since 1970, or a datetime with a time zone. None: the time of the append; -1: no
        timestamp. headers: (str, bytes or None) pairs, or a mapping.

        With durability "group" or "each" the record is on the disk when this returns.

        Raises:
            InvalidTimestampError: the configuration does not allow the timestamp.
            InvalidRecordError: cleanup_policy is compact, and there is no key.
            RecordTooLargeError: the record is larger than max_message_bytes, or a reader with this
                max_decompressed_bytes would refuse it.
            OSError: it could not be written. After any of these the log is as it was."""
    def extend(
        self,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
        headers: HeaderLists | None = None,
        *,
        batch_bytes: int = 16384,
    ) -> range:
        """Appends many records in batches of up to `batch_bytes`, and returns the range of their offsets.

        values and keys: sequences of bytes-like objects or None, numpy arrays (S, V, or two-dimensional
        uint8), or an object that exports Arrow binary, string or fixed-size binary (PyCapsule interface).
        Elements of an S array have no zero bytes at their end, as in numpy: use V (array.view("V8") of an S8)
        to append all bytes. timestamps: integers of ms, datetimes with a time zone,
        numpy datetime64 or int64, Arrow timestamps, or one int or datetime for all; None for now. A null of
        Arrow is a record without a timestamp (-1). headers: pairs for all records, or one such sequence for
        each. The GIL is free while records are encoded and written. Arrays are not copied: do not change them
        meanwhile.

        Each batch is written whole or not at all. An error in an argument is raised before anything is
        written. After an error of the system, the batches before it stay, and `log_end_offset` is their end."""
    def check_extend(
        self,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
        headers: HeaderLists | None = None,
    ) -> None:
        """Checks these columns as extend() does, and appends nothing. LogStore calls it before it extends several
        logs at once. The errors are those of extend()."""
    def append_batches(
        self,
        encoded: BytesLike,
        *,
        keep_offsets: bool = False,
        leader_epoch: int | None = None,
        origin: Literal["client", "coordinator"] = "client",
        transaction_version: int = -1,
    ) -> Appended:
        """Appends batches that a producer or another log has encoded; returns an Appended.

        encoded: bytes-like, whole batches one after another. A last one that is cut short is ignored. Each is
        checked as a broker checks it (sections 6.3 and 6.5 of docs/spec.md) before the first is written:
        size, checksum, header, records, timestamps, producer. Then it gets its offset, in a part of the
        header that the checksum does not cover; the records are not changed. Each batch is appended as a
        whole or not at all. keep_offsets: True does what a follower does: the batches keep their offsets,
        which must increase from log_end_offset on, and their leader epochs. Batches of a higher epoch than
        `leader_epoch` are not appended. Beyond what a follower checks, records must be readable, and none
        later than the largest timestamp in its batch's header, by which lookups by time go:
        InvalidRecordError, InvalidTimestampError. The configuration's rules for records are not applied.
        leader_epoch: the leader epoch to write into the batches. Default: that of the log. origin: "client",
        or "coordinator", which may also append transaction markers and any sequence number.
        transaction_version: that of the transactions that markers end, 0 to 2.

        CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
        OffsetsOutOfOrderError, UnexpectedAppendOffsetError, the errors about producers and transactions,
        OSError: the log is unchanged; after an error of the system, the batches before it may stay, and
        `log_end_offset` is their end. LogFailedError: the log refuses to write until it is opened again."""
