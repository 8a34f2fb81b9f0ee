"""A copy of one partition, and the checkpoints that go with it."""

from __future__ import annotations

from kstore.copying.earlier_copy import kept_earlier
from kstore.copying.file_copy import FileCopy
from kstore.copying.rewritten_copy import RewrittenCopy
from kstore.copying.wanted import Checkpoints
from kstore.engine.io.directory import write_whole
from kstore.errors import CorruptFileError, LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import checkpoints, layout
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import locate
from kstore.log.recovery.report import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.copying.destination import Destination
    from kstore.copying.wanted import PartitionCopy, Wanted
    from kstore.log.files.layout import TopicPartition

_ATTEMPTS = 30  # each takes over what the one before has copied
_ATTEMPTS_AT_DAMAGE = 3


def copy_partition(
    source: str, name: str, destination: Destination, wanted: Wanted
) -> tuple[PartitionCopy, Checkpoints]:
    """Copies the partition at a path into the folder `name` of a destination, "" for the destination itself.

    The copy is the partition at one moment. If another process deletes, compacts or truncates meanwhile, it
    is made of a later moment; LogChangedError if that happens again and again. LogNotFoundError,
    CorruptFileError, OSError."""
    make: type[FileCopy | RewrittenCopy] = RewrittenCopy if wanted.is_rewritten else FileCopy
    for attempt in range(_ATTEMPTS):
        try:
            copy = make(source, name, destination, wanted)
            copied, known = copy.copy()
            error = kept_earlier(copy, copied) or _lost(copy, copied)
            if (error is None and not copied.gaps) or _counts(attempt, source):
                if error is not None:
                    raise error
                return copied, known
        except LogChangedError:
            if attempt + 1 == _ATTEMPTS:
                raise
        except CorruptFileError:
            if wanted.on_error == "skip" and make is FileCopy and not wanted.is_for_broker:
                make = RewrittenCopy  # headers cannot be read, so transactions are found batch by batch
            elif _counts(attempt, source):
                raise
    raise AssertionError


def _counts(attempt: int, source: str) -> bool:
    """Whether damage, or a loss, that an attempt has found counts. Beside a writer it does if it is found
    again: files may come and go together, and a broker may have been writing what was read."""
    return attempt >= _ATTEMPTS_AT_DAMAGE or not is_locked(locate(source).directory)


def _lost(copy: FileCopy | RewrittenCopy, copied: PartitionCopy) -> CorruptFileError | None:
    """The error about records that a source has lost, unless they are left out."""
    if not copied.gaps or copy.wanted.on_error == "skip":
        return None
    source = copy.source
    error = CorruptFileError(in_short([gap.removeprefix(f"{source}: ") for gap in copied.gaps]), file=source)
    error.add_note(f"kstore check {source} tells more; kstore copy --on-error skip copies the rest")
    return error


def earlier_checkpoints(directory: str, tp: TopicPartition) -> Checkpoints:
    """What the checkpoints of a copy say of a partition. OSError."""
    names = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.CLEANER_OFFSETS)
    point, start, cleaner = (checkpoints.look_into(f"{directory}/{name}")[0].get(tp) for name in names)
    return Checkpoints(point or 0, start, cleaner)


def write_checkpoints(directory: str, known: Mapping[TopicPartition, Checkpoints]) -> None:
    """Writes the checkpoints of a directory and, last, the marker of a clean shutdown. OSError."""
    tables: dict[str, dict[TopicPartition, int | None]] = {
        layout.RECOVERY_POINTS: {tp: each.recovery_point for tp, each in known.items()},
        layout.HIGH_WATERMARKS: {tp: each.recovery_point for tp, each in known.items()},
        layout.LOG_STARTS: {tp: each.log_start for tp, each in known.items()},
        layout.CLEANER_OFFSETS: {tp: each.cleaner for tp, each in known.items()},
    }
    for name, table in tables.items():
        lines = {tp: offset for tp, offset in sorted(table.items()) if offset is not None}
        if lines or name == layout.RECOVERY_POINTS:
            checkpoints.write_offsets(f"{directory}/{name}", lines)
    write_whole(f"{directory}/{layout.CLEAN_SHUTDOWN}", layout.OWN_CLEAN_SHUTDOWN)
