"""A copy of one partition whose batches are encoded again: with another codec, or with offsets from 0 on."""

from __future__ import annotations

import os
from itertools import chain, islice

from kstore.copying.beside import copy_manifest, options_of, read_beside, write_beside
from kstore.copying.losses import Expected, Loss, gaps_of
from kstore.copying.wanted import Checkpoints, PartitionCopy
from kstore.engine.io.directory import make_directory, sync_directory, unlink
from kstore.engine.io.file import File
from kstore.engine.record.batch_builder import encode_batch
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.segments.segment_truncation import encoded_again
from kstore.log.write.opening import KeptConfig
from kstore.log.writer import LogWriter

if TYPE_CHECKING:
    from kstore.copying.destination import Destination
    from kstore.copying.wanted import Wanted
    from kstore.engine.record.batch import RecordBatch


class RewrittenCopy:
    """The copy of one view of a partition, batch by batch."""

    def __init__(self, source: str, name: str, destination: Destination, wanted: Wanted) -> None:
        self.source, self.name, self.destination, self.wanted = source, name, destination, wanted
        self.target = destination.path_of(name)
        self.losses: list[Loss] = []
        self.expected: Expected | None = None

    def copy(self) -> tuple[PartitionCopy, Checkpoints]:
        make_directory(self.target)
        self.destination.clear(self.name, {})
        wanted = self.wanted
        write_beside(self.target, read_beside(self.source, self.destination.number_of(self.name), wanted))
        log = wanted.opened(self.source, recover=wanted.on_error != "skip")
        start, stop = wanted.range_of(log)
        self.losses += wanted.losses_of(log, start, stop)
        self.expected = wanted.expected_of(log, start, stop)
        if not wanted.is_bounded:
            self.destination.expect(sum(segment.size for segment in log.segments), self.name)
        batches = log.batches(
            start,
            stop,
            isolation="read_committed" if wanted.renumber else "read_uncommitted",
            on_error=wanted.on_error,
        )
        first = list(islice(batches, 1))
        base = 0 if wanted.renumber else min([start, *(batch.base_offset for batch in first)])
        File(f"{self.target}/{layout.segment_stem(base)}.log", "a")
        sizes = KeptConfig(_sizes(options_of(self.source, wanted)), keeps=False)
        with LogWriter(self.target, create=False, kept=sizes) as out:
            size = sum(self._append(out, batch, start, stop) for batch in chain(first, batches))
            end = out.log_end_offset
        begin = 0 if wanted.renumber else start
        for each in batches.skipped:
            text = f"{each.file}: {each.size} bytes at byte {each.position} were left out: {each.error}"
            self.losses.append(Loss(text, layout.segment_offset(os.path.basename(each.file)) or 0))
        for name in (*layout.CHECKPOINTS, layout.HIGH_WATERMARKS, layout.LOCK, layout.MANIFEST):
            unlink(f"{self.target}/{name}", missing_ok=True)
        copy_manifest(log, self.target, wanted)
        sync_directory(self.target)
        cleaner = None if wanted.renumber else wanted.cleaner_offset(self.source)
        known = Checkpoints(
            end, begin if begin > base else None, None if cleaner is None else max(begin, min(cleaner, end))
        )
        return PartitionCopy(begin, end, size, 0, gaps_of(self.losses)), known

    def _append(self, out: LogWriter, batch: RecordBatch, start: int, stop: int) -> int:
        """Appends what is wanted of a batch; its old size."""
        self.destination.advance(batch.size)
        codec = self.wanted.codec or batch.codec
        records = [record for record in batch.records() if start <= record.offset < stop]
        if batch.base_offset >= stop or (self.wanted.renumber and (batch.is_control or not records)):
            return batch.size
        if self.wanted.renumber:
            data = encode_batch(
                [(record.timestamp, record.key, record.value, record.headers) for record in records],
                base_offset=out.log_end_offset,
                codec=codec,
                leader_epoch=batch.leader_epoch,
                log_append_time=batch.max_timestamp if batch.timestamp_type == "LogAppendTime" else None,
                delete_horizon=batch.delete_horizon_ms,
            )
        else:
            codec = "none" if batch.is_control else codec
            data = encoded_again(batch, records, min(batch.last_offset, stop - 1), codec)
        out.append_batches(data, keep_offsets=True)
        return batch.size


def _sizes(options: dict[str, str]) -> dict[str, object]:
    """The options that decide how the files are laid out."""
    from kstore.config import in_python

    return {
        name: value
        for name, value in in_python(options).items()
        if name.startswith("segment_") or name == "index_interval_bytes"
    }
