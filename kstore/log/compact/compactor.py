"""One compaction: passes over the log until all that may be compacted is, each in groups of segments (spec
10.4 to 10.6)."""

from __future__ import annotations

from contextlib import contextmanager

from kstore.arguments import MAX32
from kstore.engine.compact.cleaner import SegmentCleaner
from kstore.engine.compact.last_offsets import MapBuilder, OffsetMap
from kstore.engine.io.directory import sync_directory
from kstore.engine.segment.index import TransactionIndex
from kstore.errors import CorruptFileError, LogChangedError, OffsetOverflowError, PolicyViolationError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.compact.cleanable import between, cleanable, groups, legacy_horizon
from kstore.log.compact.report import CompactedSegment, Compaction
from kstore.log.compact.split import OverflowedError, copied, parts_of
from kstore.log.compact.throttle import Throttle
from kstore.log.compact.transactions import CleanedTransactions
from kstore.log.read.offset_lookup import raise_told
from kstore.log.read.progress import Meter
from kstore.log.segments.cleaned import complete, give_up, new_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kstore.config import LogConfig
    from kstore.engine.io.file import File
    from kstore.engine.segment.index import AbortedTxn
    from kstore.engine.segment.segment import Segment
    from kstore.log.compact.cleanable import Cleanable
    from kstore.log.compact.segment_rewriter import LogState, SegmentRewriter
    from kstore.log.read.progress import ProgressCallback
    from kstore.log.segments.cleaned import Cleaned

SLOT_BYTES = 24  # of the map of offsets, for each key


def _check_policy(config: LogConfig) -> None:
    """PolicyViolationError unless a log of this configuration is compacted."""
    if not config.compacts:
        raise PolicyViolationError(
            f"cleanup_policy is {','.join(config.cleanup_policy) or 'empty'}: only with compact are records "
            "removed by key"
        )


@contextmanager
def changes_met_by(call: str) -> Iterator[None]:
    """A LogChangedError says that the log changed while this call was at work."""
    try:
        yield
    except LogChangedError as e:
        e.met_by(call)
        raise


@changes_met_by("compact()")
def compact(
    state_of: Callable[[], LogState],
    check: Callable[[], None],
    rewriter: SegmentRewriter | None,
    progress: ProgressCallback | None = None,
) -> Compaction:
    """Compacts what may be compacted now; without a rewriter it finds out what that would do.

    `check` is called now and then: an exception that it raises ends the compaction. PolicyViolationError.
    CorruptFileError if a segment is damaged: it is left as it is, and so are those behind it.
    """
    state = state_of()
    _check_policy(state.config)
    found = _look(state)
    due, reason = found.reason(state.config)
    first = found
    end = found.first_dirty
    meter = Meter(progress)
    report: list[CompactedSegment] = []
    while due:
        one = _Pass(rewriter, check, state, found, meter)
        try:
            end = one.run()
        except CorruptFileError as e:
            raise_told(state.segments, e)
        except OverflowedError as e:  # Kafka's cleaner, too, begins anew then
            if rewriter is None:
                state = _with_parts(state, e)
            else:
                _split(rewriter, e)
                state = state_of()
                report += one.report
            found = _look(state)._replace(first_uncleanable=found.first_uncleanable)
            continue
        report += one.report
        if rewriter is None or end <= found.first_dirty:
            break
        state = state_of()  # if the keys did not fit: on with the rest, up to that bound
        if not state.config.compacts:
            break  # it was configured otherwise meanwhile
        again = _look(state)
        found = again._replace(first_uncleanable=min(found.first_uncleanable, again.first_uncleanable))
        due = found.first_dirty < found.first_uncleanable
    meter.end()
    return Compaction(
        first.first_dirty, first.first_uncleanable, end, first.ratio, tuple(report), reason, rewriter is None
    )


def _with_parts(state: LogState, overflow: OverflowedError) -> LogState:
    """The log with parts of a segment in its place."""
    at = state.segments.index(overflow.segment)
    return state._replace(segments=(*state.segments[:at], *_parts(overflow), *state.segments[at + 1 :]))


def _split(rewriter: SegmentRewriter, overflow: OverflowedError) -> None:
    """Replaces a segment by parts of it."""
    segment, parts = overflow.segment, _parts(overflow)
    try:
        rewriter.replace([segment], copied(parts, segment.mtime_ms()))
    finally:
        give_up(rewriter.directory, *(part.base_offset for part in parts))


def _parts(overflow: OverflowedError) -> list[Segment]:
    """OffsetOverflowError if the segment cannot be split."""
    parts = parts_of(overflow.segment)
    if len(parts) == 1:
        assert overflow.__cause__ is not None
        raise overflow.__cause__
    return parts


def _look(state: LogState) -> Cleanable:
    return cleanable(
        state.segments,
        checkpoint=state.checkpoint,
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        last_stable_offset=state.last_stable_offset,
        config=state.config,
        now_ms=state.now_ms,
    )


class _Pass:
    """Fills a map with keys, and goes through all segments that it reaches."""

    def __init__(
        self,
        rewriter: SegmentRewriter | None,
        check: Callable[[], None],
        state: LogState,
        found: Cleanable,
        meter: Meter,
    ) -> None:
        self._rewriter = rewriter
        self._state = state
        self._found = found
        self._meter = meter
        self._config = state.config
        self._throttle = Throttle(self._config.log_cleaner_io_max_bytes_per_second, check)
        self.report: list[CompactedSegment] = []

    def run(self) -> int:
        """Does it; where the compacted part ends then."""
        state, found, config = self._state, self._found, self._config
        offsets = self._fill_map()
        end = offsets.latest_offset + 1
        if end <= found.first_dirty:
            return found.first_dirty
        horizon = legacy_horizon(state.segments, found.first_dirty, config.delete_retention_ms)
        self._transactions = CleanedTransactions(state.log_start_offset)
        self._cleaner = SegmentCleaner(
            offsets,
            self._transactions,
            state.producers,
            now_ms=state.now_ms,
            delete_retention_ms=config.delete_retention_ms,
            upper_bound=found.first_uncleanable,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=config.segment_index_bytes,
        )
        if state.checkpoint is None and self._rewriter is not None:
            # from here on an opening must not take gaps between segments for damage
            self._rewriter.store_cleaner_offset(found.first_dirty)
        reached = between(state.segments, 0, end)
        for group in groups(
            reached,
            segment_bytes=config.effective_segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            first_uncleanable=found.first_uncleanable,
        ):
            self._clean(group, horizon)
        if self._rewriter is not None:
            self._rewriter.store_cleaner_offset(end)
        return end

    def _fill_map(self) -> OffsetMap:
        """The last offset of every key from the first dirty offset on, as far as they fit (spec 10.4)."""
        state, found, config = self._state, self._found, self._config
        start, end = found.first_dirty, found.first_uncleanable
        slots = min(config.log_cleaner_dedupe_buffer_size, MAX32) // SLOT_BYTES  # no more, as in Kafka
        offsets = OffsetMap(slots, config.log_cleaner_io_buffer_load_factor, most_keys=end - start)
        dirty = between(state.segments, start, end)
        # Transactions that ended before are over. Kafka's cleaner can take what their producers sent then for
        # aborted.
        transactions = CleanedTransactions(max(state.log_start_offset, start))
        transactions.add(
            txn for txn in (self._aborted(dirty[0], end) if dirty else ()) if txn.last_offset >= start
        )
        builder = MapBuilder(offsets, transactions, start)
        self._meter.expect(sum(segment.size for segment in (*dirty, *between(state.segments, 0, end))))
        ends = [*(segment.base_offset for segment in dirty[1:]), end]
        for segment, following in zip(dirty, ends, strict=True):
            begun = segment.scan_start(start)
            if begun is not None:
                builder.open(segment, begun.position)
                self._drive(lambda most: (builder.run(most), 0))
            if builder.is_full:
                break
            offsets.update_latest_offset(following - 1)
        return offsets

    def _aborted(self, first: Segment, upper_bound: int) -> list[AbortedTxn]:
        """Aborted transactions of which batches may lie between a segment's base offset and the bound."""
        state = self._state
        at = state.segments.index(first)
        return state.transactions.aborted(state.segments[at:], state.log_start_offset, upper_bound)

    def _drive(self, run: Callable[[int], tuple[int, int]]) -> None:
        """`run` reads so many bytes, and writes what is left of them; both are counted, 0 read is the end."""
        while (done := run(self._throttle.step))[0]:
            self._throttle.passed(sum(done))
            self._meter.passed(done[0])

    # ---- a group -------------------------------------------------------------------------------------------

    def _clean(self, group: list[Segment], horizon: int) -> None:
        base, rewriter = group[0].base_offset, self._rewriter
        self._transactions.index = TransactionIndex(base)
        if rewriter is None:
            self._cleaner.begin(None, base)
            self.report += self._run_cleaner(group, horizon)
            return
        try:
            log = new_log(rewriter.directory, base, group[0].path)
            self._cleaner.begin(log, base)
            done = self._run_cleaner(group, horizon)
            rewriter.replace(group, [self._complete(rewriter.directory, log, group)])
        finally:
            give_up(rewriter.directory, base)
        self.report += done

    def _run_cleaner(self, group: list[Segment], horizon: int) -> list[CompactedSegment]:
        done = [self._clean_segment(group, at, horizon) for at in range(len(group))]
        self._cleaner.finish()
        return done

    def _clean_segment(self, group: list[Segment], at: int, horizon: int) -> CompactedSegment:
        source = group[at]
        following = group[at + 1].base_offset if at + 1 < len(group) else source.end_offset
        self._transactions.add(self._aborted(source, following))
        self._cleaner.open(source, source.mtime_ms() > horizon)
        try:
            self._drive(self._cleaner.run)
        except OffsetOverflowError as e:
            raise OverflowedError(source) from e
        counts = self._cleaner.counts
        return CompactedSegment(
            source.base_offset,
            group[0].base_offset,
            source.size,
            counts["bytes_written"],
            counts["records_read"],
            counts["records_written"],
            *(counts[why] for why in ("superseded", "deleted", "keyless", "aborted", "markers")),
        )

    def _complete(self, directory: str, log: File, group: list[Segment]) -> Cleaned:
        """Brings all files to the disk under the names that they have now."""
        cleaner, transactions = self._cleaner, self._transactions.index
        assert transactions is not None
        indexes = cleaner.offset_index, cleaner.time_index, transactions
        base, mtime = group[0].base_offset, group[-1].mtime_ms()
        made = complete(directory, base, log, mtime, indexes, cleaner.max_timestamp)
        sync_directory(directory)
        return made
