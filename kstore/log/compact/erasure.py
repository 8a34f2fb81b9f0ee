"""One erasure: which records go, and the segments without them in place of those that hold them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

from kstore.arguments import choice, elements
from kstore.engine.compact.cleaner import SegmentCleaner
from kstore.engine.compact.last_offsets import OffsetMap
from kstore.engine.io.directory import sync_directory, unlink
from kstore.engine.io.file import File
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import RecordReader
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.compact.compactor import changes_met_by
from kstore.log.compact.report import ErasedSegment, Erasure
from kstore.log.compact.throttle import Throttle
from kstore.log.compact.transactions import CleanedTransactions
from kstore.log.files.log_dir_state import is_kept_checkpoint
from kstore.log.read.offset_lookup import raise_told
from kstore.log.read.page_cache import PageCache
from kstore.log.read.progress import Meter
from kstore.log.segments.cleaned import CLEANED, complete, give_up, new_log, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.engine.segment.segment import Segment
    from kstore.log.compact.segment_rewriter import LogState, SegmentRewriter
    from kstore.log.read.progress import ProgressCallback

Match = Callable[[Record], object]
_LOOK = 4096  # records between two looks whether it is to stop
_MOST = 2**31 - 1  # entries take more room than the configuration has if records lie between them no more


def matching(keys: Iterable[bytes] | None, where: Match | None, what: str, reason: str) -> Match:
    """Which records are to be erased. TypeError, ValueError."""
    blanks = choice("what", what, ("records", "values")) == "values"
    if not isinstance(reason, str):
        raise TypeError(f"reason is a str, not {reason!r}")
    if (keys is None) == (where is None):
        raise TypeError("either keys or where says which records are erased")
    match = where
    if keys is not None:
        if isinstance(keys, bytes | str):
            raise TypeError("keys are several, such as [b'ann']")
        wanted = set()
        for key in elements("keys are several", keys):
            if not isinstance(key, bytes):
                raise TypeError(f"every key is bytes, not {key!r:.80}")
            wanted.add(key)

        def match(record: Record) -> object:
            return record.key in wanted

    if not callable(match):
        raise TypeError(f"where is a function of a Record, not {where!r}")
    if not blanks:
        return match
    return lambda record: (record.value is not None or record.headers) and match(record)


@changes_met_by("erase()")
def erase(
    directory: str,
    state_of: Callable[[], LogState],
    check: Callable[[], None],
    rewriter: SegmentRewriter | None,
    match: Match,
    reason: str,
    *,
    blanks: bool,
    cut_files: bool,
    progress: ProgressCallback | None = None,
) -> Erasure:
    """Erases the records that match; without a rewriter it finds out what that would do.

    `check` is called now and then: an exception that it raises ends the erasure. CorruptFileError if one of
    the segments is damaged: nothing is changed then.
    """
    # No generators around what calls `match` or `progress`: they would make a RuntimeError of a
    # StopIteration.
    meter = Meter(progress)
    state = state_of()
    try:
        erasing = _Erasing(state, check, meter)
        meter.expect(sum(segment.size for segment in state.segments))
        if rewriter is not None and state.segments and erasing.found(state.segments[-1], match):
            rewriter.roll()
            state = state_of()
            erasing = _Erasing(state, check, meter)
            meter.expect(sum(segment.size for segment in state.segments[:-1]))
        look = state.segments if rewriter is None else state.segments[:-1]
        work = [(segment, offsets) for segment in look if (offsets := erasing.found(segment, match))]
        kept = sorted(Path(directory).glob("*.cut"))
        beside = tuple(str(path) for path in kept if not is_kept_checkpoint(path.name))
        cut, left = (beside, ()) if cut_files else ((), beside)
        meter.expect(sum((2 if rewriter is None else 3) * segment.size for segment, _ in work))
        if work and rewriter is not None and state.checkpoint is None:
            # as by a compaction: missing offsets are no loss
            rewriter.store_cleaner_offset(state.log_start_offset)
        done = [erasing.rewritten(*each, blanks, rewriter) for each in work]
    except CorruptFileError as e:
        raise_told(state.segments, e)
    if rewriter is not None:
        for path in cut:
            unlink(path)
        rewriter.remove_old_files()
    meter.end()
    return Erasure(tuple(done), cut, reason, state.now_ms, rewriter is None, left)


class _Erasing:
    """Goes through segments of a log as it is in `state`."""

    def __init__(self, state: LogState, check: Callable[[], None], meter: Meter) -> None:
        self._state = state
        self._meter = meter
        self._throttle = Throttle(state.config.log_cleaner_io_max_bytes_per_second, check)

    def _passed(self, read: int, written: int = 0) -> None:
        self._throttle.passed(read + written)
        self._meter.passed(read)

    def found(self, segment: Segment, match: Match) -> bytes:
        """The offsets of records that match, as an array of int64."""
        base, stop = segment.base_offset, min(segment.end_offset, self._state.log_end_offset)
        records = RecordReader(
            (segment,), base, stop, end_offset=stop, on_error="raise", control=False,
            aborted=None, pages=PageCache(drop=False), traffic=None,
        )  # fmt: skip
        offsets, told = array("q"), 0
        for number, record in enumerate(records, 1):
            if match(record):
                offsets.append(record.offset)
            if number % _LOOK == 0:
                about = segment.size * (record.offset - base) // (stop - base)
                self._passed(about - told)
                told = about
        self._passed(segment.size - told)
        return offsets.tobytes()

    def rewritten(
        self, segment: Segment, offsets: bytes, blanks: bool, rewriter: SegmentRewriter | None
    ) -> ErasedSegment:
        """Puts the segment without these records into its place; or only says what that would be."""
        config = self._state.config
        cleaner = SegmentCleaner(
            OffsetMap(4),
            CleanedTransactions(),
            {},
            now_ms=self._state.now_ms,
            delete_retention_ms=0,
            upper_bound=0,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=_MOST,
        )
        cleaner.erase(offsets, blanks)
        directory, base = segment.directory, segment.base_offset
        before, after = self._digest(segment.file()), ""
        try:
            file = None if rewriter is None else new_log(directory, base, segment.path)
            cleaner.begin(file, base)
            cleaner.open(segment, True)
            while (done := cleaner.run(self._throttle.step))[0]:
                self._passed(*done)
            cleaner.finish()
            if file is not None and rewriter is not None:
                indexes = cleaner.offset_index, cleaner.time_index, segment.transaction_index
                made = complete(directory, base, file, segment.mtime_ms(), indexes, cleaner.max_timestamp)
                sync_directory(directory)
                after = self._digest(File(f"{path_of(directory, base)}.log{CLEANED}"))
                rewriter.replace([segment], [made])
        finally:
            if rewriter is not None:
                give_up(directory, base)
        return ErasedSegment(
            segment.path,
            base,
            tuple(array("q", offsets)),
            segment.size,
            cleaner.size,
            before,
            after,
        )

    def _digest(self, file: File) -> str:
        """The SHA-256 of a file. OSError."""
        import hashlib  # which loads OpenSSL

        digest, at = hashlib.sha256(), 0
        while chunk := file.read(at, self._throttle.step):
            digest.update(chunk)
            at += len(chunk)
            self._passed(len(chunk))
        return digest.hexdigest()
