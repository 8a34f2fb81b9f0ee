"""What failed in the background of a store, and why."""

from __future__ import annotations

import contextlib

from kstore.errors import LogChangedError, LogClosedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.segments.reports import Reports

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from kstore.log.files.layout import TopicPartition
    from kstore.store.topic_catalog import TopicCatalog

STORE = "the store"  # what a task failed for, if it is no part of the store


class Failures:
    """Reasons by task and what the task failed for, until the task succeeds. Each is logged once."""

    def __init__(self) -> None:
        self.reports = Reports("kstore.store")
        self._reasons: dict[tuple[str, object], str] = {}

    def all(self) -> dict[str, str]:
        """What failed, and why."""
        return {f"{task} of {of}": reason for (task, of), reason in list(self._reasons.items())}

    @contextlib.contextmanager
    def noted(self, task: str, of: object = STORE, *, is_step: bool = False) -> Iterator[None]:
        """Notes what fails, and that the task does not fail any more; a step of a task notes only what
        fails."""
        try:
            yield
        except (LogClosedError, LogChangedError):  # deleted or closed meanwhile; or the next run looks again
            pass
        except Exception as e:  # noqa: BLE001 - `health` reports it
            self.add(task, of, f"{type(e).__name__}: {e}")
        else:
            if not is_step:
                self.drop(task, of)

    @contextlib.contextmanager
    def noted_of(
        self, catalog: TopicCatalog, task: str, tp: TopicPartition, *, is_step: bool = False
    ) -> Iterator[None]:
        """Notes what fails for a partition, unless that was deleted meanwhile."""
        topic = catalog.topics.get(tp.topic)
        with self.noted(task, tp, is_step=is_step):
            try:
                yield
            except Exception as e:
                if topic is None or catalog.was_deleted(topic) or tp not in catalog.partitions:
                    raise LogClosedError(f"{tp} was deleted") from e
                raise

    def add(self, task: str, of: object, reason: str) -> None:
        """A task failed."""
        if self._reasons.get((task, of)) != reason:
            self._reasons[task, of] = reason
            self.reports.warning("%s of %s failed: %s", task, of, reason)

    def drop(self, task: str, of: object) -> None:
        """A task does not fail any more."""
        self._reasons.pop((task, of), None)

    def drop_where(self, is_over: Callable[[str, object], bool]) -> None:
        """Tasks of which that is true do not fail any more."""
        for task, of in list(self._reasons):
            if is_over(task, of):
                self.drop(task, of)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions were deleted, or are configured anew."""
        self.drop_where(lambda _, of: of in partitions)

    def report(self) -> None:
        """Gives what was logged to Python's handlers."""
        self.reports.pass_on()
