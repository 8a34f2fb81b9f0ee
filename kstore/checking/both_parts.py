"""The check of partitions whose older segments were shipped to a URL."""

from __future__ import annotations

import os
from itertools import pairwise

from kstore.checking.codes import found
from kstore.checking.finding import Report, worst_first
from kstore.errors import LogChangedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.recovery.presence import is_partition
from kstore.remote.remote_files import mirrored
from kstore.remote.tiered_log import RemotePart, TieredLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from kstore.checking.finding import Finding


def with_remote(
    local: Report,
    path: str,
    check: Callable[[list[str]], Report],
    url: str,
    storage_options: Mapping[str, Any] | None,
) -> Report:
    """The report about the directory at `path`, with the findings about what was shipped of it, and about both as one
    log. `check` checks paths. LogNotFoundError, LibraryError, OSError."""
    path = path.rstrip("/")
    remote = mirrored(url, storage_options or {})
    reports = local, check([remote])
    findings = [finding for each in reports for finding in each.findings]
    for name in [""] if is_partition(path) else [f"/{name}" for name in sorted(os.listdir(remote))]:
        if os.path.isdir(f"{remote}{name}"):
            part = RemotePart(f"{url}{name}", storage_options, f"{remote}{name}")
            findings += _between(f"{path}{name}", part)
    return Report(
        local.path,
        worst_first(findings),
        sum(each.partitions for each in reports),
        sum(each.files for each in reports),
        sum(each.bytes for each in reports),
        sum(each.seconds for each in reports),
    )


def _between(path: str, remote: RemotePart) -> Iterator[Finding]:
    """What is wrong between the parts of a partition."""
    try:
        segments = TieredLog(path, remote).segments
    except LogNotFoundError:  # only the remote part is left
        return
    except LogChangedError as e:
        yield found("segments_overlap", path, str(e))
        return
    for older, newer in pairwise(segments):
        end, base = older.read_next_offset(), newer.base_offset
        if older.directory != newer.directory and end < base:
            yield found("offsets_missing", path, offsets=(end, base - 1))
