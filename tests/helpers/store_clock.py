"""The clock of a store in tests: it stands still until a test lets time pass."""

from kstore import LogStore
from tests.helpers.clock import T0, Clock

T = T0


class StoreClock(Clock):
    """What a store takes for its clock; its background work is done when the test says so."""

    def pass_on(self, store: LogStore, ms: int, runs: int = 1) -> None:
        """So much later; what is due then is done on this thread."""
        for _ in range(runs):
            self.now += ms
            store._upkeep.run_due(self.now)
