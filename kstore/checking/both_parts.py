"""The check of partitions whose older segments were shipped to a URL."""

from __future__ import annotations

import os
from itertools import pairwise

from kstore.checking.codes import found
from kstore.checking.finding import Report, worst_first
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptFileError, LogChangedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.partition import PartitionLog
from kstore.log.recovery.presence import is_partition
from kstore.remote.remote_files import mirrored
from kstore.remote.shipped import Shipped, difference, id_of, manifest_name, shipped_bases
from kstore.remote.tiered_log import RemotePart, TieredLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from kstore.checking.finding import Finding
    from kstore.engine.segment.segment import Segment


def with_remote(
    local: Report,
    path: str,
    check: Callable[[list[str]], Report],
    url: str,
    storage_options: Mapping[str, Any] | None,
) -> Report:
    """The report about the directory at `path`, with the findings about what was shipped of it, and about
    both as one log. `check` checks paths. LogNotFoundError, LibraryError, OSError."""
    path = path.rstrip("/")
    remote = mirrored(url, storage_options or {}, is_whole=False)
    reports = local, check([remote])
    findings = [finding for each in reports for finding in each.findings]
    for name in [""] if is_partition(path) else [f"/{name}" for name in sorted(os.listdir(remote))]:
        if os.path.isdir(f"{remote}{name}"):
            part = RemotePart(f"{url}{name}", storage_options, f"{remote}{name}")
            findings += _between(f"{path}{name}", part, f"{remote}{name}")
    return Report(
        local.path,
        worst_first(findings),
        sum(each.partitions for each in reports),
        sum(each.files for each in reports),
        sum(each.bytes for each in reports),
        sum(each.seconds for each in reports),
    )


def _between(path: str, remote: RemotePart, mirror: str) -> Iterator[Finding]:
    """What is wrong between the parts of a partition."""
    bases = shipped_bases(os.listdir(mirror))
    there = remote.snapshot(0)
    if not bases or there is None:
        return
    try:
        log = TieredLog(path, remote)
    except LogNotFoundError:  # only the remote part is left
        return
    except LogChangedError as e:
        yield found("remote_differs", path, str(e))
        return
    local = PartitionLog(path)
    newest = f"{mirror}/{manifest_name(bases[-1])}"
    position = Shipped.decode(newest, read_whole(newest)).position
    if why := difference(local.snapshot, id_of(local), position):
        yield found("remote_differs", path, f"it is not the log that was shipped to {remote.url}: {why}")
    shipped = {each.base_offset: each for each in there.segments}
    pairs = [(each, shipped[each.base_offset]) for each in local.segments if each.base_offset in shipped]
    if other := [segment.path for segment, its in pairs if not _have_a_batch(segment, its)]:
        text = f"{remote.url} has other batches with the offsets of {len(other)} segments, this one the first"
        yield found("remote_differs", other[0], text)
    for older, newer in pairwise(log.segments):
        end, base = older.read_next_offset(), newer.base_offset
        if older.directory != newer.directory and end < base:
            yield found("offsets_missing", path, offsets=(end, base - 1))


def _have_a_batch(segment: Segment, other: Segment) -> bool:
    """Whether two segments have a batch in common: LogWriter.erase() may have rewritten others. Damage is
    a finding already."""
    try:
        headers = [each.read_headers() for each in (segment, other)]
    except CorruptFileError:
        return True
    batches = [set(zip(each["base_offset"].tolist(), each["crc"].tolist(), strict=True)) for each in headers]
    return not (all(batches) and batches[0].isdisjoint(batches[1]))
