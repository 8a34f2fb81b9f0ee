"""What readers with on_error="skip" have left out."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.engine.scan.batch_reader import Skipped


class LeftOut:
    """The damage that several readers of a log passed over, each of it once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], Skipped] = {}

    def note(self, skipped: Iterable[Skipped]) -> None:
        """Adds what one of them has left out."""
        for each in skipped:
            self._found.setdefault((each.file, each.position), each)

    def listed(self) -> list[Skipped]:
        """All of it, in the order in which it was met."""
        return list(self._found.values())
