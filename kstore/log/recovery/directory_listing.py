"""The names in a partition directory, and what an interrupted deletion or compaction makes of them (spec
8.2)."""

from bisect import bisect_left
from collections.abc import Callable

from kstore.engine.segment.segment import Segment
from kstore.log.files import layout
from kstore.log.files.listing import digest, read_directory
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import Recovery
from kstore.log.recovery.steps import Code, Step

KINDS = (*layout.SEGMENT_KINDS, layout.KEYS, ".snapshot")
BITS = {kind: 1 << i for i, kind in enumerate(KINDS)}
_LOG = BITS[".log"]


class DirectoryListing:
    """What the directory holds, and what that is after passes 1 to 3, which become steps of the recovery.

    Most names are a base offset in 20 digits and one of KINDS: `files` has, for each such offset in order,
    the BITS of the kinds that are there. `others` are all other names.
    """

    def __init__(self, directory: str, recovery: Recovery) -> None:
        self.directory = directory
        self.recovery = recovery
        self.files, others, self._inodes, self._device, self._digest = read_directory(directory, KINDS)
        self.others = set(others)
        self._listed = self.files.copy(), others, self._inodes.copy()
        self.renamed: set[str] = set()  # final names of files that are still called .swap
        # offsets of segments that are being removed: the .log is the first file that is called .deleted
        self.removed: set[int] = set()

    def has(self, offset: int, kind: str) -> bool:
        """Whether a segment has its file of a kind, under the name that a broker gives it."""
        return bool(self.files.get(offset, 0) & BITS[kind])

    def file_of(self, segment: Segment) -> tuple[int, int]:
        """The device and inode of a segment's .log when the directory was listed; (0, 0) if that is not
        known."""
        if segment.suffixes or segment.origin:
            return 0, 0
        return self._device, self._inodes.get(segment.base_offset, 0)

    def changed_from(self) -> int | None:
        """The first offset of a segment that came or went since the directory was listed; None if none
        did."""
        before, now = ({offset for offset, _ in logs} for logs in (_logs(*self._listed), self._logs_now()))
        return min(before ^ now, default=None)

    def is_as_it_was(self) -> bool:
        """Whether the directory has the same logs, under the same names, up to the last that was there when
        it was listed."""
        if digest(self.directory) == self._digest:  # nearly always
            return True
        before = _logs(*self._listed)
        last, _ = max(before, default=(-1, 0))
        return before == {log for log in self._logs_now() if log[0] <= last}

    def _logs_now(self) -> set[tuple[int, int]]:
        files, others, inodes, *_ = read_directory(self.directory, KINDS)
        return _logs(files, others, inodes)

    def note(
        self,
        code: Code,
        name: str,
        *,
        detail: object = "",
        offset: int = -1,
        deed: Callable[[Repairs], object] | None = None,
    ) -> None:
        """Adds a step that concerns one file."""
        file = f"{self.directory}/{name}"
        self.recovery.steps.append(Step(code, file, detail=detail, offsets=(offset, -1), deed=deed))

    def delete(self, code: Code, name: str, *, detail: object = "") -> None:
        """Adds the step that deletes a file."""
        self.note(code, name, detail=detail, deed=lambda repairs: repairs.delete(name))

    def _drop(self, code: Code, name: str, detail: object = "") -> None:
        self._leave_out(name)
        self.delete(code, name, detail=detail)

    def _set_aside(self, name: str, detail: str) -> None:
        """Adds the step that keeps a segment's file, since the one that replaces it is damaged."""
        self._leave_out(name)
        self.note(Code.DAMAGED_REPLACES, name, detail=detail, deed=lambda repairs: repairs.set_aside(name))
        self.recovery.losses.append(f"{self.directory}/{detail}, which replaces {name}, is damaged")

    def _leave_out(self, name: str) -> None:
        file = _named(name)
        if file is None:
            self.others.discard(name)
            return
        offset, bit = file
        self.files[offset] &= ~bit
        if bit == _LOG:
            self._inodes.pop(offset, None)

    def _is_there(self, name: str) -> bool:
        file = _named(name)
        return name in self.others if file is None else bool(self.files.get(file[0], 0) & file[1])

    def finish_interrupted_work(self, make: Callable[[str, int, dict[str, str]], Segment]) -> None:
        """Passes 1 to 3 of spec 8.2."""
        extras = [name for name in self.others if name.endswith((".deleted", ".cleaned", ".swap"))]
        if not extras:
            return
        first_cleaned = min(
            (
                offset
                for name in extras
                if name.endswith(".cleaned") and (offset := layout.parse_offset(name)) is not None
            ),
            default=None,
        )
        swaps, cleaned, void = [], [], False
        for name in sorted(extras):
            if name.endswith(".deleted"):
                offset = layout.segment_offset(name.removesuffix(".deleted"))
                if offset is not None:
                    self.removed.add(offset)
                if not name.endswith(".checkpoint.deleted"):
                    self._drop(Code.REMOVAL_UNDER_WAY, name)
            elif name.endswith(".cleaned"):
                cleaned.append(name)
            elif first_cleaned is not None and (layout.parse_offset(name) or 0) >= first_cleaned:
                self._drop(Code.COMPACTION_UNFINISHED, name)
                void = True
            else:
                swaps.append(name)
        if void:
            self._sync_names()  # if a .cleaned file went first, the .swap files would count
        for name in cleaned:
            self._drop(Code.COMPACTION_UNFINISHED, name)
        placed = [(offset, name) for offset, bits in self.files.items() for name in names_of(offset, bits)]
        placed += [
            (offset, name)
            for name in self.others
            if not name.endswith(".swap") and (offset := layout.parse_offset(name)) is not None
        ]
        placed.sort()
        for name in swaps:
            offset = layout.segment_offset(name.removesuffix(".swap"))
            if offset is None:
                continue
            swapped = make(layout.segment_stem(offset), offset, dict.fromkeys(layout.SEGMENT_KINDS, ".swap"))
            end = swapped.read_next_offset()
            is_sound = swapped.recovery_walk().error is None
            end = end if is_sound else max(end, offset + 1)
            for _, other in placed[bisect_left(placed, (offset, "")) : bisect_left(placed, (end, ""))]:
                if not self._is_there(other):
                    continue
                if is_sound or not other.endswith(".log"):
                    self._drop(Code.COMPACTION_REPLACES, other, name)
                else:
                    self._set_aside(other, name)
        if swaps:
            self._sync_names()  # or what was replaced may come back
        for name in swaps:
            if name in self.others:
                self._finish_swap(name)

    def _sync_names(self) -> None:
        self.note(Code.NAMES_SYNCED, "", deed=lambda repairs: repairs.sync_names())

    def _finish_swap(self, name: str) -> None:
        final = name.removesuffix(".swap")
        file = layout.parse_file(final)
        if file is None or file.extra or file.stem != layout.segment_stem(file.offset):
            # left as it is: with another name it might replace a segment later
            self.note(Code.NO_NAME_OF_A_SWAP, name)
            return
        self._leave_out(name)
        self.files[file.offset] = self.files.get(file.offset, 0) | BITS[file.kind]
        self.renamed.add(final)
        self.note(Code.COMPACTION_ALL_BUT_FINISHED, name, deed=lambda repairs: repairs.rename(name, final))

    def suffixes(self, stem: str) -> dict[str, str]:
        """How the files of a segment are named on disk, where that is not their final name."""
        return {kind: ".swap" for kind in layout.SEGMENT_KINDS if stem + kind in self.renamed}


def names_of(offset: int, bits: int) -> list[str]:
    """The names of the files of these kinds."""
    return [layout.segment_stem(offset) + kind for kind, bit in BITS.items() if bits & bit]


def _named(name: str) -> tuple[int, int] | None:
    """The offset and the bit of a name that `files` has; None for one of the others."""
    stem, _, kind = name.partition(".")
    bit = BITS.get("." + kind)
    offset = layout.parse_offset(name)
    if bit is None or offset is None or offset < 0 or stem != layout.segment_stem(offset):
        return None
    return offset, bit


def _logs(files: dict[int, int], others: list[str], inodes: dict[int, int]) -> set[tuple[int, int]]:
    """The offsets of segments that have their .log, with its inode, or 0 if that is not known; -1 if it is a
    .swap file."""
    logs = {(offset, inodes.get(offset, 0)) for offset, bits in files.items() if bits & _LOG}
    for name in others:
        if (
            name.endswith(".log.swap")
            and (offset := layout.segment_offset(name.removesuffix(".swap"))) is not None
        ):
            logs.add((offset, -1))
    return logs
