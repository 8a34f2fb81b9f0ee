"""What is done with a log beside appending, now and then: retention, compaction, erasure, .keys files."""

from __future__ import annotations

import contextlib
import weakref

from kstore.engine.io.synchronization import Mutex
from kstore.errors import KstoreError, LogClosedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.compact.segment_rewriter import SegmentRewriter
from kstore.log.later import later
from kstore.log.worker import CLEANING, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from functools import partial

    from kstore.log.compact.compactor import compact
    from kstore.log.compact.erasure import Match, erase
    from kstore.log.compact.key_files import make_missing
    from kstore.log.compact.report import Compaction, Erasure
    from kstore.log.read.progress import ProgressCallback
    from kstore.log.segments.segment_set import SegmentSet
    from kstore.log.write.given_retention import retention_of, unsaid_retention
    from kstore.log.write.retention import Decision, Need, decide_for
else:
    later(
        globals(),
        {
            "functools": "partial",
            "kstore.log.compact.key_files": "make_missing",
            "kstore.log.compact.compactor": "compact",
            "kstore.log.compact.erasure": "erase",
            "kstore.log.write.given_retention": "retention_of unsaid_retention",
            "kstore.log.write.retention": "decide_for",
        },
    )


class Maintenance:
    """The maintenance of one log, which a log that is open by itself calls; a store calls it for its logs."""

    def __init__(self, segments: SegmentSet, *, makes_key_files: bool) -> None:
        """makes_key_files: in the background, if the configuration asks for it."""
        self._segments = segments
        self.log_end = segments.log_end
        self.lease = segments.lease
        self.rewriter = SegmentRewriter(segments)
        self.key_files = KeyFiles(self.rewriter, in_background=makes_key_files)

    def retain(self, needs: Mapping[str, Sequence[Need]], *, dry_run: bool = False) -> list[Decision]:
        """Deletes old segments, given what groups need, also after a power cut. InvalidConfigError,
        OSError."""
        log = self._segments
        with log.log_end.held():
            log.check_place()
            now_ms = log.clock_ms()
            decisions = decide_for(log.snapshot(), retention_of(log.config), now_ms, needs)
            refusal = unsaid_retention(log.directory, log.config, decisions)
            if not dry_run:
                gone = sum(d.delete and (refusal is None or d.rule == "start_offset") for d in decisions)
                if gone:
                    log.delete_oldest(gone, now_ms)
                self._remove_due(now_ms)
                if gone:
                    log.store_deletion()
        log.reports.pass_on()
        if refusal is not None:
            raise refusal
        return decisions

    def delete_below(self, offset: int) -> int:
        """Deletes the sealed segments below an offset, whatever the configuration says, also after a power
        cut; how many they were. OSError."""
        log = self._segments
        with log.log_end.held():
            log.check_place()
            now_ms = log.clock_ms()
            gone = sum(segment.end_offset <= offset for segment in log.snapshot().segments[:-1])
            if gone:
                log.delete_oldest(gone, now_ms)
                self._remove_due(now_ms)
                log.store_deletion()
        log.reports.pass_on()
        return gone

    def remove_due(self, now_ms: int) -> None:
        """Removes files, and forgets producers, whose time has come. OSError."""
        log = self._segments
        if log.deleted.is_due(now_ms) or log.producers.is_expiry_due(now_ms):
            with log.log_end.held():
                log.check_place()
                self._remove_due(now_ms)

    def _remove_due(self, now_ms: int) -> None:
        self._segments.deleted.unlink(now_ms)
        self._segments.producers.forget(now_ms)

    def compact(self, *, dry_run: bool, progress: ProgressCallback | None) -> Compaction:
        """Compacts the log, as LogWriter.compact does."""
        log, rewriter = self._segments, self.rewriter
        log.log_end.refuse_reentrance()
        with rewriter.alone():
            done = compact(rewriter.state, rewriter.check, None if dry_run else rewriter, progress)
            with log.log_end.held():
                if not log.log_end.is_closed:
                    log.deleted.unlink(log.clock_ms())
        if done.segments and not dry_run:
            if log.log_end.traffic is not None:
                for at, count in ((5, 1), (6, done.records_removed), (7, done.bytes_gained)):
                    log.log_end.traffic.add(at, count)
            self.key_files.note_change()
            text = "%s: compacted offsets %d to %d (exclusive): %d bytes less"
            offsets = done.first_dirty_offset, done.end_offset
            log.reports.info(text, log.directory, *offsets, done.bytes_gained)
        log.reports.pass_on()
        return done

    def erase(
        self,
        match: Match,
        reason: str,
        *,
        blanks: bool,
        cut_files: bool,
        dry_run: bool,
        progress: ProgressCallback | None,
    ) -> Erasure:
        """Erases records, as LogWriter.erase does."""
        log, rewriter = self._segments, self.rewriter
        log.log_end.refuse_reentrance()
        with rewriter.alone():
            done = erase(
                log.directory,
                partial(rewriter.state, forgets=False),
                rewriter.check,
                None if dry_run else rewriter,
                match,
                reason,
                blanks=blanks,
                cut_files=cut_files,
                progress=progress,
            )
        if done.segments and not dry_run:
            self.key_files.note_change()
            text = "%s: erased %d records from %d segments: %s"
            log.reports.info(text, log.directory, done.records_erased, len(done.segments), reason)
        log.reports.pass_on()
        return done

    def refuse_reentrance(self) -> None:
        """ReentrantCallError if this thread is inside the log, or inside a compaction of it, for which
        closing waits."""
        self.log_end.refuse_reentrance()
        self.rewriter.running.refuse_reentrance()

    def wait_for_rewriting(self) -> None:
        """Returns when no compaction is under way; the log was closed, so none begins."""
        with self.rewriter.running:
            pass

    def stop(self, *, wait: bool = True) -> None:
        """Ends what runs in the background."""
        self.key_files.stop(wait=wait)

    def after_fork(self) -> None:
        """In a child of fork: a thread that it does not have may be at work."""
        self.rewriter.running = Mutex()


class KeyFiles:
    """Whether a log may lack .keys files, and the job that makes them. It does not keep the log alive."""

    def __init__(self, rewriter: SegmentRewriter, *, in_background: bool) -> None:
        self._changes = 1  # after which some may be missing
        self._seen = 0  # the changes after which all were made
        self._rewriter = weakref.ref(rewriter)
        self._job = Job(CLEANING, self._run) if in_background else None

    @property
    def may_be_missing(self) -> bool:
        """Whether anything has changed since all were made."""
        return self._seen != self._changes

    def note_change(self) -> None:
        """A segment was sealed or replaced, or the configuration was changed."""
        self._changes += 1
        rewriter = self._rewriter()
        if self._job is not None and rewriter is not None and rewriter.segments.config.key_files:
            with contextlib.suppress(RuntimeError, MemoryError):  # no more threads: the next time
                self._job.ask()

    def make(self, check: Callable[[], None]) -> None:
        """Makes those that are missing. `check` is called now and then, and raises what ends it."""
        rewriter = self._rewriter()
        assert rewriter is not None
        changes = self._changes
        make_missing(rewriter, check)
        self._seen = changes

    def stop(self, *, wait: bool = True) -> None:
        """The job is not done any more when this returns."""
        if self._job is not None:
            self._job.stop(wait=wait)

    def _run(self) -> None:
        rewriter = self._rewriter()
        # Without them lookups are slower. If a disk fails, an append that loses something by it raises.
        if rewriter is not None:
            with contextlib.suppress(OSError, KstoreError, MemoryError):
                make_missing(rewriter, partial(self._check, rewriter))

    def _check(self, rewriter: SegmentRewriter) -> None:
        rewriter.check()
        if self._job is not None and self._job.is_stopped:
            raise LogClosedError("the program ends")
