"""Defects that are planted into the record of a workload, to see that the search finds them.

Each takes the record of calls that kstore made and returns the record of a kstore with a defect: a sync is
left out, a file is not written, or two calls change places.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from kstore.testing import Call, Trace

Which = Callable[[str, Call], bool]  # of a call and what was being done
Plant = Callable[[Sequence[Call]], list[Call]]


def planted(trace: Trace, plant: Plant) -> Trace:
    """The record that a kstore with this defect would have left."""
    return Trace(trace.base, trace.numbers, plant(trace.calls), trace.setting)


def _with_doing(calls: Sequence[Call]) -> Iterator[tuple[str, Call]]:
    """Each call with the operation within which it was made, as "7 truncate_to 5"."""
    doing = ""
    for call in calls:
        if call.name == "mark":
            doing = call.value.doing
        yield doing, call


def _without(which: Which) -> Plant:
    """Leaves out the calls that `which` chooses."""
    return lambda calls: [call for doing, call in _with_doing(calls) if not which(doing, call)]


def _unsynced(which: Which) -> Plant:
    """Leaves out syncs, of a file and of a directory."""
    return _without(lambda doing, call: "sync" in call.name and which(doing, call))


def _unwritten(name: str, doing: str) -> Plant:
    """Leaves the file `name` as it was while such an operation is done."""

    def plant(calls: Sequence[Call]) -> list[Call]:
        left_out = {
            call.file
            for done, call in _with_doing(calls)
            if call.name == "create" and name in call.path and re.search(doing, done)
        }
        return [call for call in calls if not call.file or call.file not in left_out]

    return plant


def _sealed_files(calls: Sequence[Call]) -> list[Call]:
    """Syncs of a segment whose successor is there."""
    last: dict[str, str] = {}  # the newest segment of each directory

    def is_sealed(call: Call) -> bool:
        directory, _, name = call.path.rpartition("/")
        if call.name == "create" and name.endswith(".log"):
            last[directory] = max(name, last.get(directory, ""))
        return "sync" in call.name and name.endswith(".log") and name < last.get(directory, "")

    return _without(lambda _, call: is_sealed(call))(calls)


def _files_of_a_dead_writer(calls: Sequence[Call]) -> list[Call]:
    """Syncs of files that a killed process has written."""
    known: set[int] = set()
    dead: set[int] = set()

    def is_of_dead(doing: str, call: Call) -> bool:
        if call.name == "mark" and doing.endswith(" kill"):
            dead.update(known)
        known.add(call.file)
        return call.name in ("sync", "syncs") and call.file in dead and not call.path.endswith(".snapshot")

    return _without(is_of_dead)(calls)


def _checkpoint_before_files(calls: Sequence[Call]) -> list[Call]:
    """The recovery point is stored before the segments below it are synced."""
    made: list[Call] = []
    waiting: list[Call] = []
    for call in calls:
        if "sync" in call.name and call.path.endswith((".log", ".index", ".timeindex")):
            waiting.append(call)
            continue
        made.append(call)
        if call.name == "rename" and "recovery-point" in call.target:
            made += waiting
            waiting.clear()
    return made


def _first_segment_first(calls: Sequence[Call]) -> list[Call]:
    """A truncation deletes its segments in the wrong order."""
    made: list[Call] = []
    for doing, group in groupby(_with_doing(calls), key=lambda pair: pair[0]):
        own = [call for _, call in group]
        deletes = [i for i, call in enumerate(own) if _deletes(call)]
        if " truncate_to" in doing:
            turned = sorted((own[i] for i in deletes), key=lambda call: call.path.rpartition("/")[2])
            for i, call in zip(deletes, turned, strict=True):
                own[i] = call
        made += own
    return made


def _deletes(call: Call) -> bool:
    return (call.name == "unlink" and bool(call.file)) or call.target.endswith(".deleted")


def _not_set_aside(calls: Sequence[Call]) -> list[Call]:
    """Deleted segments keep their names until their delay is over."""
    calls = [call for call in calls if not call.target.endswith(".deleted")]
    return [call for call in calls if not (call.name == "unlink" and call.path.endswith(".deleted"))]


def _while(doing: str, *suffixes: str) -> Which:
    return lambda done, call: bool(re.search(doing, done)) and call.path.endswith(suffixes)


DEFECTS: dict[str, Plant] = {
    "a truncated file is not synced": _unsynced(_while("truncate_to", ".truncated.log.cleaned")),
    "what a recovery cuts off is not synced": _unsynced(_while(r"\d open", ".log")),
    "checkpoints are renamed before they are synced": _unsynced(_while("", "-checkpoint.tmp")),
    "no directory is synced": _unsynced(lambda _, call: call.name.endswith("directory")),
    "sealed files are not synced": _sealed_files,
    "files of a dead writer are not synced": _files_of_a_dead_writer,
    "the index of aborted transactions is not synced": _unsynced(_while("", ".txnindex")),
    "a truncation leaves the recovery point": _unwritten("recovery-point", "truncate_to"),
    "a truncation deletes the first segment first": _first_segment_first,
    "delete_records does not store the log start": _unwritten("log-start", "delete_records"),
    "the recovery point is stored before files are synced": _checkpoint_before_files,
    "deleted segments keep their names": _not_set_aside,
    "a recovery makes no index of aborted transactions": _unwritten(".txnindex", r"\d open"),
    "snapshots are not deleted": _without(lambda _, call: _deletes(call) and ".snapshot" in call.path),
}
STORE_DEFECTS: dict[str, Plant] = {
    "the table of topics is renamed before it is synced": _unsynced(_while("", "kstore.json.tmp")),
    "new and deleted partitions are not synced": _unsynced(lambda _, call: call.name.endswith("directory")),
    "committed positions are not synced": _unsynced(_while("", ".positions", ".positions.tmp")),
}
