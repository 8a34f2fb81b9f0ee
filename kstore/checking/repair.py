"""kstore.repair: a plan of what a check found, and its run.

Recovery (kstore recover, or any opening for writing) does what a broker does: it ends the log at the first
damaged batch. A repair first moves damaged bytes into .cut files, so that recovery finds sound batches only
and loses none of them.
"""

from __future__ import annotations

import os

from kstore.arguments import boolean, local_path
from kstore.checking.check import check_paths
from kstore.checking.codes import ENDS, GAPS
from kstore.checking.directory import COMPLETE, read_names
from kstore.checking.finding import Finding
from kstore.checking.moving import damage_of, move_bytes, name_for_repaired
from kstore.engine.io.directory import rename, sync_directory
from kstore.errors import KstoreError, visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.checkpoints import write_offsets
from kstore.log.files.log_dir_state import read_checkpoint
from kstore.log.files.log_directory import PartitionLease
from kstore.log.files.manifest import ManifestFile
from kstore.log.recovery.file_kind import kind_of
from kstore.log.recovery.gaps import Ranges, merged
from kstore.log.recovery.loader import load
from kstore.log.recovery.presence import is_partition
from kstore.log.recovery.repairs import Repairs
from kstore.opening import open as open_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from kstore.checking.finding import Report
    from kstore.log.files.layout import TopicPartition
    from kstore.log.recovery.loader import Loaded
    from kstore.typed import StrPath

_MOVED = ("corrupt_batch", "foreign_segment", "unreadable_records", "torn_tail", "offsets_fall")
_LOGS = (*_MOVED, "not_a_log")  # of .log files
# files that recovery makes again from the batches, or that are no logs
_SET_ASIDE = (
    "snapshot_differs",
    "snapshot_damaged",
    "epochs_differ",
    "epochs_damaged",
    "not_a_log",
    "no_name_of_a_segment",
    "index_without_log",  # which shows that a .log was lost
)
_RECOVERED = (
    *_MOVED,
    *_SET_ASIDE,
    *GAPS,
    "index_damaged",
    "index_differs",
    "time_index_short",
    "no_offset_index",
    "no_time_index",
    "broken_transaction_index",
    "transaction_index_differs",
    "transactions_behind_end",
    "offsets_far_apart",
    "segments_overlap",
    "behind_damage",
    "removal_under_way",
    "compaction_unfinished",
    "compaction_replaces",
    "compaction_all_but_finished",
    "damaged_replaces",
    "file_unfinished",
    "truncation_left",
    "spare_room",
    "below_log_start",
    "log_start_beyond_end",
    *ENDS,
    "ends_late",
    "checkpoint_damaged",
    "log_start_unknown",
    "not_closed",
)
_OF_DIRECTORY = (
    "not_closed",
    "checkpoint_damaged",
    "log_start_unknown",
    "checkpoint_lacks",
    "checkpoint_beyond_end",
    "change_unfinished",
)


class RepairStep(NamedTuple):
    """A step of a repair.

    `action`: "move_bytes" (copy the `ranges` of bytes of `file` to .cut files, and replace the file by one
    without them), "set_aside" (rename `file` to a .cut file), "note_gaps" (note in kstore.json that the
    `ranges` of offsets are missing, so that later checks report them as notes), "note_ends" (note that these
    offsets were lost at the end of the log), "recover" (open the partition
    for writing, which makes indexes, snapshots and leader epochs from the batches), "recover_store" (the same
    for the partitions of a log directory that were not closed, and for its checkpoints). `reasons`: the codes
    of the findings.
    """

    action: str
    partition: str
    file: str
    ranges: Ranges
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        why = f" ({', '.join(self.reasons)})" if self.reasons else ", because a partition in it is repaired"
        if self.action == "move_bytes":
            size = sum(count for _, count in self.ranges)
            first = self.ranges[0][0]
            return visible(
                f"move {size} bytes of {self.file} into .cut files, the first at byte {first}{why}"
            )
        if self.action == "set_aside":
            return visible(f"rename {self.file} to a .cut file{why}")
        if self.action in ("note_gaps", "note_ends"):
            ranges = ", ".join(f"{first} to {first + count - 1}" for first, count in self.ranges)
            what = "lacks the offsets" if self.action == "note_gaps" else "lost at its end the offsets"
            return visible(f"note that {self.partition} {what} {ranges}{why}")
        return visible(f"recover {self.partition}{why}")


class RepairPlan(NamedTuple):
    """The plan of a repair, which was carried out if `is_done`.

    `steps` in order. `left`: problems that a repair does not treat, such as lost records. `kept`: the .cut
    files that were made.
    """

    steps: tuple[RepairStep, ...]
    left: tuple[Finding, ...]
    is_done: bool = False
    kept: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The plan as values for JSON."""
        return {
            "is_done": self.is_done,
            "steps": [step._asdict() for step in self.steps],
            "left": [finding._asdict() for finding in self.left],
            "kept": list(self.kept),
        }

    def __str__(self) -> str:
        count = f"{len(self.steps)} steps" if len(self.steps) != 1 else "1 step"
        lines = [("done: " if self.is_done else "plan: ") + (count if self.steps else "nothing to repair")]
        lines += [f"  {step}" for step in self.steps]
        lines += [f"  kept: {visible(path)}" for path in self.kept]
        if self.left:
            lines.append("a repair does not treat:")
            lines += [f"  {finding}" for finding in self.left]
        return "\n".join(lines)


def repair(path: StrPath, *others: StrPath, run: bool = False) -> RepairPlan:
    """Plan the repair of the findings of kstore.check(path, *others), and carry the plan out if `run`.

    A repair moves damaged batches and wrong files to .cut files beside the logs; no readable record is lost.
    It rebuilds indexes, snapshots, leader epochs and checkpoints from the batches. A second repair does
    nothing.

    The logs are locked while they are changed. LogLockedError if one is open for writing, and
    LogNotFoundError if a path does not exist; nothing is changed then. OSError if a file cannot be read,
    before anything is changed, or if a change fails: repair again. ValueError for a URL. KstoreError if an
    opening for writing would remove undamaged batches from a partition: that partition, and later ones in
    the plan, are not opened.
    """
    boolean("run", run)
    paths = [local_path("path", each) for each in (path, *others)]
    plan = plan_of(paths, check_paths(paths))
    return run_plan(plan, paths) if run else plan


def plan_of(paths: list[str], report: Report) -> RepairPlan:
    """The plan for the findings of a report. Damaged segments are read again. OSError if a file was not read:
    a plan without its damage would be wrong. KstoreError if a file that is not read may have records that
    the log lacks."""
    for finding in report.findings:
        if finding.code in ("unreadable_file", "too_large"):
            raise OSError(f"no plan is made, because {finding.file} cannot be read: {finding.meaning}")
        if finding.code == "not_read" and ".log" in os.path.basename(finding.file):
            _require_no_loss(finding.file, report)
    around = [path for path in paths if not is_partition(path)]
    by_partition: dict[str, list[Finding]] = {}
    of_directories: dict[str, list[Finding]] = {path: [] for path in around}
    left = []
    for finding in report.findings:
        place = finding.file if os.path.isdir(finding.file) else os.path.dirname(finding.file)
        if finding.code in GAPS and finding.severity == "note":
            continue  # a compaction or a truncation explains it
        if place in of_directories and finding.code in _OF_DIRECTORY:
            of_directories[place].append(finding)
        elif _may_repair(place) and finding.code in _RECOVERED and place not in of_directories:
            by_partition.setdefault(place, []).append(finding)
        elif finding.severity != "note":
            left.append(finding)
    steps = [step for place in sorted(by_partition) for step in _steps_for(place, by_partition[place])]
    for place, findings in of_directories.items():
        if findings or any(step.partition.startswith(f"{place}/") for step in steps):
            reasons = tuple(sorted({finding.code for finding in findings}))
            steps.append(RepairStep("recover_store", place, "", (), reasons))
    return RepairPlan(tuple(steps), tuple(left))


def _require_no_loss(file: str, report: Report) -> None:
    """Raise KstoreError if a file that is not read is packed, or if its partition has lost records."""
    partition = os.path.dirname(file)
    lossy = (*GAPS, *ENDS, "index_without_log", "directory_empty")
    places = [each.file for each in report.findings if each.code in lossy and each.severity != "note"]
    is_lossy = any(place == partition or os.path.dirname(place) == partition for place in places)
    kind = kind_of(file)
    if kind != "empty" and (kind or is_lossy):
        what = kind or "perhaps a copy of a segment: give it its name back"
        raise KstoreError(
            f"no plan is made, because {file} may have records that the log lacks. It is {what}. Or move it "
            "elsewhere"
        )


def _may_repair(partition: str) -> bool:
    """Whether a directory is a partition in use that kstore may write."""
    name = os.path.basename(os.path.realpath(partition))
    tp = layout.parse_directory(name)
    if tp is not None and (tp.topic == layout.CLUSTER_METADATA or str(tp) != name):
        return False
    return os.path.isdir(partition)


def _steps_for(partition: str, findings: list[Finding]) -> Iterator[RepairStep]:
    reasons: dict[str, set[str]] = {}
    for finding in findings:
        reasons.setdefault(finding.file, set()).add(finding.code)
    # damage_of() finds the gaps of a damaged file: the opening may have ended it at the damage
    gaps = [
        (finding.offsets[0], finding.offsets[1] - finding.offsets[0] + 1)
        for finding in findings
        if finding.code in GAPS and finding.offsets and not reasons[finding.file].intersection(_LOGS)
    ]
    # a finding without a byte is about the file as a whole
    added = {each.file for each in findings if each.code == "foreign_segment" and each.position < 0}
    lost_ends = [each.offsets for each in findings if each.code in ENDS and each.offsets]
    end = 0  # of the sound batches of damaged files
    for file, codes in sorted(reasons.items()):
        told = tuple(sorted(codes))
        is_damaged = codes.intersection(_LOGS) and file not in added
        moved, missing, behind = damage_of(partition, file) if is_damaged else ((), (), 0)
        gaps += missing
        end = max(end, behind)
        if codes == {"index_without_log"} and (gaps or lost_ends):
            continue  # the loss is noted; recovery deletes the index
        if codes.intersection(_SET_ASIDE) or file in added:
            if os.path.lexists(file):
                yield RepairStep("set_aside", partition, file, (), told)
        elif moved:
            yield RepairStep("move_bytes", partition, file, moved, told)
    codes = {finding.code for finding in findings}
    if gaps:
        told = tuple(sorted(codes.intersection((*GAPS, *_LOGS))))
        yield RepairStep("note_gaps", partition, "", merged(gaps), told)
    if ends := merged((max(first, end), last + 1 - max(first, end)) for first, last in lost_ends):
        yield RepairStep("note_ends", partition, "", ends, tuple(sorted(codes.intersection(ENDS))))
    yield RepairStep("recover", partition, "", (), tuple(sorted(codes)))


def run_plan(plan: RepairPlan, paths: list[str]) -> RepairPlan:
    """Carry out a plan. LogLockedError, OSError, KstoreError."""
    from kstore.store import LogStore  # imported here: it imports all of a store

    partitions = list(dict.fromkeys(step.partition for step in plan.steps if step.action != "recover_store"))
    before = {partition: _cut_files(partition) for partition in partitions}
    leases = []
    try:
        for partition in partitions:  # all, before anything is changed
            lease = PartitionLease(partition, reads_options=False)
            leases.append(lease)
            lease.take()
        for step in plan.steps:
            if step.action == "move_bytes":
                move_bytes(step.file, step.ranges)
            elif step.action == "set_aside":
                repairs = Repairs(step.partition)
                repairs.set_aside(os.path.basename(step.file))
                repairs.sync_names()
            elif step.action == "note_gaps":
                manifest = ManifestFile(step.partition)
                known = manifest.known
                manifest.note_losses(merged([*known.gaps, *step.ranges]), known.lost_ends)
            elif step.action == "note_ends":
                manifest = ManifestFile(step.partition)
                known = manifest.known
                manifest.note_losses(known.gaps, merged([*known.lost_ends, *step.ranges]))
    finally:
        for lease in leases:
            lease.leave(clean=False)
    for partition in partitions:
        _refuse_loss(load(partition, clean=False, recovery_point=0), partition)
    kept: list[str] = []
    for partition in partitions:
        with open_log(partition, "r+", clean=False, recovery_point=0, keep_cut=True):
            _write_sound_lines(partition, {})
            kept += _renamed(_cut_files(partition) - before[partition])
            sync_directory(partition)
    if any(step.action == "recover_store" for step in plan.steps):
        stores = [path for path in paths if not is_partition(path)]
        ends = {path: _ends_of(path) for path in stores}
        try:
            for path in stores:
                for tp in _without_line(path, ends[path]):
                    with open_log(f"{path}/{tp}", "r+"):
                        pass  # closing it writes the lines
            with LogStore(*stores, mode="a", background=False):
                for path in stores:
                    _write_sound_lines(path, ends[path])
        except KstoreError as e:
            e.add_note("the partitions are repaired; the checkpoints of the log directory are not")
            raise
    return plan._replace(is_done=True, kept=tuple(kept))


def _ends_of(directory: str) -> dict[TopicPartition, int]:
    """The ends of the logs in a log directory, whose opening for writing loses nothing. KstoreError,
    OSError."""
    ends = {}
    for tp in read_names(directory).partitions:
        if tp.topic != layout.CLUSTER_METADATA:
            loaded = load(f"{directory}/{tp}")
            _refuse_loss(loaded, f"{directory}/{tp}")
            ends[tp] = loaded.log_end_offset
    return ends


def _without_line(directory: str, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that a checkpoint of all of them lacks, or has beyond their end. OSError."""
    known = []
    for file in (f"{directory}/{name}" for name in COMPLETE):
        if os.path.lexists(file):
            known.append(read_checkpoint(file).offsets)
        elif file.endswith(layout.RECOVERY_POINTS):
            known.append({})
    return [tp for tp, end in ends.items() if any(not 0 <= each.get(tp, -1) <= end for each in known)]


def _refuse_loss(loaded: Loaded, partition: str) -> None:
    """Raise an error if the opening for writing that was loaded would remove sound batches."""
    for step in loaded.recovery.steps:
        if step.sound is not None and step.sound.last_offset >= loaded.log_start_offset:
            text = f"{step.file}: {step.text(done=False)}"
            raise KstoreError(f"{partition} is not recovered, because records would leave the log: {text}")


def _write_sound_lines(directory: str, ends: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint of the cleaner that is damaged or cut off, or has offsets beyond the ends of logs,
    by one with its sound lines. The opening has kept a copy of a damaged one, by which later ones know that
    lines are lost. OSError."""
    file = f"{directory}/{layout.CLEANER_OFFSETS}"
    if os.path.lexists(file):
        offsets, damage = read_checkpoint(file)
        sound = {tp: min(offset, ends.get(tp, offset)) for tp, offset in offsets.items()}
        if damage or sound != offsets or (not offsets and os.stat(file).st_size):
            write_offsets(file, sound)


def _renamed(cut_files: Iterable[str]) -> Iterator[str]:
    """Give .cut files of segments that recovery has made the name of those of a repair. Yields the names of
    all. OSError."""
    for path in sorted(cut_files):
        if ".log." in os.path.basename(path) and not path.endswith(layout.REPAIRED):
            name = name_for_repaired(path.removesuffix(layout.CUT))
            rename(path, name)
            path = name
        yield path


def _cut_files(partition: str) -> set[str]:
    return {f"{partition}/{name}" for name in os.listdir(partition) if name.endswith(layout.CUT)}
