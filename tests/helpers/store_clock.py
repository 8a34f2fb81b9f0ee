"""The clock of a store in tests: it stands still until a test lets time pass."""

from kstore import LogStore

T = 1_700_000_000_000


class StoreClock:
    """What a store takes for its clock; its background work is done when the test says so."""

    def __init__(self) -> None:
        self.now = T

    def __call__(self) -> int:
        return self.now

    def pass_on(self, store: LogStore, ms: int, runs: int = 1) -> None:
        """So much later; what is due then is done on this thread."""
        for _ in range(runs):
            self.now += ms
            store._work.run_due(self.now)
