"""Positions of readers that do not fit the partitions."""

from __future__ import annotations

import contextlib

from kstore.checking.codes import found, why
from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.group_file import groups_in as groups_with_positions
from kstore.log.cursors.group_file import read_positions
from kstore.log.cursors.home import Home
from kstore.log.share.descriptions import state_of
from kstore.log.share.state_file import groups_in
from kstore.store.consumer_offsets import committed_here, committed_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kstore.checking.finding import Finding
    from kstore.checking.partition import Checked
    from kstore.log.files.layout import TopicPartition


def positions_beyond(
    checked: Mapping[TopicPartition, Checked], directories: Sequence[str]
) -> Iterator[Finding]:
    """The findings about positions of groups beyond the end of their partitions. `directories`: log
    directories, which may have __consumer_offsets."""
    paths = {tp: each.path for tp, each in checked.items() if each.end is not None}

    def beyond(tp: TopicPartition, offset: int) -> int | None:
        end = checked[tp].end if tp in checked else None
        return end if end is not None and offset > end and not checked[tp].is_live else None

    sources = []
    with contextlib.suppress(KstoreError, OSError):  # damaged files of positions are findings already
        sources.append(committed_here(paths))
    for path in paths.values():
        yield from _unused(path)
    for directory in directories:
        try:
            sources.append(committed_in(directory))
        except LogNotFoundError:
            continue
        except (KstoreError, OSError):  # damage in __consumer_offsets, which is a finding already
            continue
    for source in sources:
        for group, positions in source.items():
            for tp, position in positions.items():
                end = beyond(tp, position.offset)
                if end is not None:
                    text = f"group {group!r} has the position {position.offset} in {tp}, which ends at {end}"
                    yield found("position_beyond_end", checked[tp].path, text)
    for tp, path in paths.items():
        try:
            groups = groups_in(path)
        except FileNotFoundError:  # the partition was deleted
            continue
        except OSError as e:
            yield found("unreadable_file", e.filename or path, str(e))
            continue
        for group in groups:
            try:
                state = state_of(path, tp, group)
            except FileNotFoundError:  # it was removed
                continue
            except (KstoreError, OSError) as e:
                yield found("positions_damaged", getattr(e, "file", "") or path, why(e))
                continue
            end = beyond(tp, state.end)
            if end is not None:
                text = f"share group {group!r} has reached {state.end} in {tp}, which ends at {end}"
                yield found("position_beyond_end", path, text)


def _unused(path: str) -> Iterator[Finding]:
    """The findings about positions that were committed for another partition of this name."""
    try:
        home = Home.of(path)
    except LogNotFoundError:  # it was deleted
        return
    for group in groups_with_positions(home.directory):
        try:
            entry = read_positions(home.directory, group).get(home.tp)
            if entry is not None and entry.commit.partition_id != home.known_id():
                text = f"the position of group {group!r} in {home.tp} is of another partition of that name"
                yield found("position_unused", path, text)
        except (KstoreError, OSError):  # a finding already
            continue
