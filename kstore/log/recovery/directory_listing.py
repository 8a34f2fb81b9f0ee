"""The names in a partition directory, and what an interrupted deletion or compaction makes of them (spec 8.2)."""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from kstore.engine.segment.segment import Segment
from kstore.log.files import layout
from kstore.log.files.listing import list_directory
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import Recovery
from kstore.log.recovery.steps import Code, Step

_LOG = (".log", ".log.swap")


def _logs_in(names: Iterable[str]) -> set[int]:
    """The offsets of segments that have their .log, under its name or as a .swap file."""
    offsets = (layout.segment_offset(name.removesuffix(".swap")) for name in names)
    return {offset for offset in offsets if offset is not None}


class DirectoryListing:
    """The names in the directory, and what they are after passes 1 to 3, which become steps of the recovery."""

    def __init__(self, directory: str, recovery: Recovery) -> None:
        self.directory = directory
        self.recovery = recovery
        self.names = set(list_directory(directory))
        self._listed = frozenset(self.names)
        self.renamed: set[str] = set()  # final names of files that are still called .swap
        # offsets of segments that are being removed: the .log is the first file that is called .deleted
        self.removed: set[int] = set()

    def changed_from(self) -> int | None:
        """The first offset of a segment that came or went since the directory was listed; None if none did."""
        return min(_logs_in(self._listed) ^ _logs_in(list_directory(self.directory)), default=None)

    def is_as_it_was(self) -> bool:
        """Whether the directory has the same logs, under the same names, up to the last that was there when it was listed."""
        listed = set(list_directory(self.directory))
        if listed == self._listed:  # nearly always; to look at every name would take longer than all the rest
            return True
        last = max(_logs_in(self._listed), default=-1)
        before, now = (
            {name for name in names if name.endswith(_LOG) and (layout.parse_offset(name) or 0) <= last}
            for names in (self._listed, listed)
        )
        return before == now or last < 0

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
        self.names.discard(name)
        self.delete(code, name, detail=detail)

    def finish_interrupted_work(self, make: Callable[[str, int, dict[str, str]], Segment]) -> None:
        """Passes 1 to 3 of spec 8.2."""
        extras = [name for name in self.names if name.endswith((".deleted", ".cleaned", ".swap"))]
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
        swaps = []
        for name in sorted(extras):
            if name.endswith(".deleted"):
                offset = layout.segment_offset(name.removesuffix(".deleted"))
                if offset is not None:
                    self.removed.add(offset)
                if not name.endswith(".checkpoint.deleted"):
                    self._drop(Code.REMOVAL_UNDER_WAY, name)
            elif name.endswith(".cleaned") or (
                first_cleaned is not None and (layout.parse_offset(name) or 0) >= first_cleaned
            ):
                self._drop(Code.COMPACTION_UNFINISHED, name)
            else:
                swaps.append(name)
        placed = sorted(
            (offset, name)
            for name in self.names
            if not name.endswith(".swap") and (offset := layout.parse_offset(name)) is not None
        )
        for name in swaps:
            offset = layout.segment_offset(name.removesuffix(".swap"))
            if offset is None:
                continue
            swapped = make(layout.segment_stem(offset), offset, dict.fromkeys(layout.SEGMENT_KINDS, ".swap"))
            end = swapped.read_next_offset()
            for _, other in placed[bisect_left(placed, (offset, "")) : bisect_left(placed, (end, ""))]:
                if other in self.names:
                    self._drop(Code.COMPACTION_REPLACES, other, name)
        for name in swaps:
            if name in self.names:
                self._finish_swap(name)

    def _finish_swap(self, name: str) -> None:
        final = name.removesuffix(".swap")
        file = layout.parse_file(final)
        if file is None or file.extra or file.stem != layout.segment_stem(file.offset):
            # left as it is: with another name it might replace a segment later
            self.note(Code.NO_NAME_OF_A_SWAP, name)
            return
        self.names.discard(name)
        self.names.add(final)
        self.renamed.add(final)
        self.note(Code.COMPACTION_ALL_BUT_FINISHED, name, deed=lambda repairs: repairs.rename(name, final))

    def suffixes(self, stem: str) -> dict[str, str]:
        """How the files of a segment are named on disk, where that is not their final name."""
        return {kind: ".swap" for kind in layout.SEGMENT_KINDS if stem + kind in self.renamed}
