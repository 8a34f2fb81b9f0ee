"""Which partition a record without a key goes to: one for a while, then the next, so that batches are not
torn."""

import random
from collections.abc import Sequence

_SPELL_BYTES = 16384  # Kafka's batch.size


class StickyPartitioner:
    """Stays at a partition until it has got about 16 KiB, then goes on to the next one.

    Threads may share it: if two count at one moment, one change comes a little later.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = partitions
        self._at = random.randrange(len(partitions)) if partitions else 0
        self._left = _SPELL_BYTES

    def partition_for(self, size: int) -> int:
        """The partition for a record, or records, of so many bytes."""
        at = self._at
        self._left -= size
        if self._left <= 0:
            self._at = (at + 1) % len(self._partitions)
            self._left = _SPELL_BYTES
        return self._partitions[at]

    def partition_for_all(self) -> int:
        """The partition for a whole column of records; the next ones go elsewhere."""
        return self.partition_for(_SPELL_BYTES)
