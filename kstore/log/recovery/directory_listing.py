"""The names in a partition directory, and what an interrupted deletion or compaction makes of them (spec 8.2)."""

import os
from collections.abc import Callable

from kstore.engine.segment.segment import Segment
from kstore.log.files import layout
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import Recovery


class DirectoryListing:
    """The names in the directory, and what they would be after passes 1 to 3."""

    def __init__(self, directory: str, recovery: Recovery, repairs: Repairs | None) -> None:
        self.directory = directory
        self.recovery = recovery
        self.repairs = repairs
        self.names = set(os.listdir(directory))  # noqa: PTH208 - iterdir takes thrice as long
        self.renamed: set[str] = set()  # final names of files that are still called .swap

    def note(self, kind: str, name: str, text: str) -> None:
        self.recovery.note(kind, f"{self.directory}/{name}", -1, -1, text)

    def drop(self, name: str, kind: str, text: str) -> None:
        self.names.discard(name)
        self.note(kind, name, text)
        if self.repairs is not None:
            self.repairs.delete(name)

    def finish_interrupted_work(self, make: Callable[[str, int, dict[str, str]], Segment]) -> None:
        """Passes 1 to 3 of spec 8.2."""
        extras = [name for name in self.names if name.endswith((".deleted", ".cleaned", ".swap"))]
        if not extras:
            return
        cleaned = [
            offset
            for name in extras
            if name.endswith(".cleaned") and (offset := layout.parse_offset(name)) is not None
        ]
        swaps = []
        for name in sorted(extras):
            if name.endswith(".deleted"):
                if not name.endswith(".checkpoint.deleted"):
                    self.drop(name, "leftover", "would be deleted: its removal was under way")
            elif name.endswith(".cleaned") or (cleaned and (layout.parse_offset(name) or 0) >= min(cleaned)):
                self.drop(name, "leftover", "would be deleted: a compaction that was not finished")
            else:
                swaps.append(name)
        for name in swaps:
            offset = layout.segment_offset(name.removesuffix(".swap"))
            if offset is None:
                continue
            swapped = make(layout.segment_stem(offset), offset, dict.fromkeys(layout.SEGMENT_KINDS, ".swap"))
            end = swapped.read_next_offset()
            for other in [n for n in self.names if not n.endswith(".swap")]:
                at = layout.parse_offset(other)
                if at is not None and offset <= at < end:
                    self.drop(other, "leftover", f"would be deleted: {name} replaces it")
        for name in swaps:
            final = layout.parse_file(name.removesuffix(".swap"))
            if (
                final is None or final.extra or final.stem != layout.segment_stem(final.offset)
            ):  # left as it is: with another name it might replace a segment later
                self.note("orphan", name, "not the name of a file that a compaction leaves")
            elif name in self.names:
                self.names.discard(name)
                self.names.add(name.removesuffix(".swap"))
                if self.repairs is not None:
                    self.repairs.rename(name, name.removesuffix(".swap"))
                else:
                    self.renamed.add(name.removesuffix(".swap"))
                self.note("leftover", name, "would be renamed: a compaction that was all but finished")

    def suffixes(self, stem: str) -> dict[str, str]:
        """How the files of a segment are named on disk, where that is not their final name."""
        return {kind: ".swap" for kind in layout.SEGMENT_KINDS if stem + kind in self.renamed}
