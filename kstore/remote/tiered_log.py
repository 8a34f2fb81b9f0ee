"""A partition whose older segments are under a URL, where kstore.ship() has put them."""

from __future__ import annotations

from kstore.errors import LogChangedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.partition import PartitionLog
from kstore.log.recovery.gaps import is_compacted
from kstore.log.recovery.refresh import refreshed
from kstore.log.recovery.report import Gaps
from kstore.log.recovery.steps import Code, Step
from kstore.remote.remote_files import mirrored
from kstore.remote.shipped import continued

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Unpack

    from kstore.log.files.layout import TopicPartition
    from kstore.log.producers.transactions import Transactions
    from kstore.log.recovery.loader import Loaded
    from kstore.typed import ReaderOptions, StrPath


class RemotePart:
    """What was shipped of a partition, as it was when it was opened last. It is opened when its records are
    first needed. mirror: a local directory that shows it already."""

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, mirror: str | None = None
    ) -> None:
        self.url = url
        self._options = dict(storage_options or {})
        self._mirror = mirror
        self._log: PartitionLog | None = None

    def snapshot(self, until: int) -> Loaded | None:
        """The remote log, which is opened again if it ends below an offset; None if nothing was shipped.
        LibraryError, CorruptFileError, OSError."""
        if self._log is None or self._log.log_end_offset < until:
            try:
                self._log = PartitionLog(self._mirror or mirrored(self.url, self._options))
                self._mirror = None
            except LogNotFoundError:
                return None
        return self._log.snapshot


class RemoteDirectories:
    """The remote directory that a log directory was shipped to, with the RemotePart of each partition."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._url, self._options = url, storage_options
        self._parts: dict[TopicPartition, RemotePart] = {}

    def log(self, tp: TopicPartition, path: StrPath, **options: Unpack[ReaderOptions]) -> TieredLog:
        """The log of the partition at a local path, with its remote part. LogNotFoundError, CorruptFileError,
        OSError."""
        part = self._parts.get(tp)
        if part is None:
            part = self._parts[tp] = RemotePart(f"{self._url}/{tp}", self._options)
        return TieredLog(path, part, **options)


class TieredLog(PartitionLog):
    """A partition that is read as one log: the segments that were shipped to a URL, below those that are
    here. It is open for reading, and has all methods of PartitionLog. `refresh()` and followers take in what
    is appended here; remote segments stay readable while local ones are deleted."""

    def __init__(self, path: StrPath, remote: RemotePart, **options: Unpack[ReaderOptions]) -> None:
        super().__init__(path, **options)
        self._remote = remote
        self._local = self._loaded
        self._loaded = _joined(remote, self._local)

    def remote_gaps(self) -> list[Step]:
        """Return what is missing below the local part, as steps. Reads headers of every remote segment.
        Internal. CorruptFileError, OSError."""
        first = self._local.segments[0].base_offset if self._local.segments else self._local.log_end_offset
        there = self._remote.snapshot(0)
        base = self.segments[0].base_offset if self.segments else first
        steps = []
        if there is None or first <= base:  # only segments were deleted here, else the log starts later
            begun = base if is_compacted(self.path) or self._local.log_start_offset > first else 0
        else:
            steps = [step for step in there.recovery.gaps.between if step.offsets[0] < first]
            begun = min((offset for _, offset in there.leader_epochs.entries), default=base)
        if begun < base:
            file = self.segments[0].path if self.segments else self.path
            steps.insert(0, Step(Code.OFFSETS_MISSING, file, offsets=(begun, base), is_loss=True))
        return steps

    def _view(
        self,
        snapshot: Loaded,
        transactions: Transactions | None,
        earlier: tuple[Loaded, Transactions] | None = None,
    ) -> TieredLog:
        view = super()._view(snapshot, transactions, earlier)
        view.__dict__ |= {"_remote": self._remote, "_local": self._local}
        assert isinstance(view, TieredLog)
        return view

    def _blank(self) -> TieredLog:
        return object.__new__(TieredLog)

    def _refreshed(self) -> Loaded:
        local = refreshed(self.path, self._local, self._options)
        if local is self._local:
            return self._loaded
        joined = _joined(self._remote, local)
        self._local = local
        return joined


def _joined(remote: RemotePart, local: Loaded) -> Loaded:
    """The two parts as one log. LogChangedError if they are not parts of one."""
    first = local.segments[0].base_offset if local.segments else local.log_end_offset
    start = local.log_start_offset
    # one behind the first segment was set by a deletion of records, so no remote record is left
    there = remote.snapshot(first) if first > 0 and start <= first else None
    older = [] if there is None else [each for each in there.segments if each.base_offset < first]
    if there is None or not older:
        return local
    end = older[-1].end_offset if len(older) < len(there.segments) else there.log_end_offset
    if end > first:  # the segment that follows was perhaps deleted here before it could be shipped
        end = older[-1].read_next_offset()
    if end > first:
        text = f"it is not what was shipped to {remote.url}, where offset {first} is inside a segment"
        raise LogChangedError(older[-1].path, first, there.log_start_offset, there.log_end_offset, text)
    recovery = local.recovery
    if end < first:
        gap = Step(Code.OFFSETS_MISSING, older[-1].path, offsets=(end, first), is_loss=True)
        recovery = recovery._replace(gaps=Gaps(lambda: [gap, *local.recovery.gaps.steps]))
    return local.replace(
        segments=(*older, *local.segments),
        log_start_offset=there.log_start_offset if start == first else start,
        leader_epochs=continued(there.leader_epochs.until(first), local.leader_epochs),
        recovery=recovery,
    )
