"""Fetch: stored batches, sent from their files to the socket."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kstore.errors import KstoreError
from kstore.log.files.layout import TopicPartition
from kstore.serving.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from kstore.log.recovery.loader import Loaded
    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions

MAX_BYTES: Final = 55 << 20  # Kafka's fetch.max.bytes of a broker
_READ_COMMITTED = 1


class _Wanted(NamedTuple):
    """A partition of a request."""

    tp: TopicPartition
    offset: int
    leader_epoch: int
    max_bytes: int


def wrong_epoch(now: Loaded, epoch: int) -> int:
    """The error if a client knows another leader epoch than a log has; -1 if it knows none."""
    if epoch < 0:
        return 0
    known = max(now.leader_epochs.latest or 0, 0)
    if epoch == known:
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < known else ErrorCode.UNKNOWN_LEADER_EPOCH


class Fetcher:
    """Answers Fetch requests."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def fetch(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """The batches of each partition from an offset on, as soon as there are `minBytes`, or after
        `maxWaitMs`.

        The first partition that has any gives at least one batch, whatever the limits. The answer is
        complete, and never part of a fetch session.
        """
        by_name = {  # as in Kafka, a partition is answered once, and its last mention counts
            (topic["topic"], each["partition"]): _Wanted(
                TopicPartition(topic["topic"], each["partition"]),
                each["fetchOffset"],
                each["currentLeaderEpoch"],
                each["partitionMaxBytes"],
            )
            for topic in values["topics"]
            for each in topic["partitions"]
        }
        wanted = list(by_name.values())
        if not wanted:
            return {}
        read = _Read(self._partitions, wanted, values)
        read.all()
        if read.is_enough or values["maxWaitMs"] <= 0:
            return _answer(wanted, read)
        deadline = monotonic() + values["maxWaitMs"] / 1000
        is_armed = connection.armed.issuperset(each.tp for each in wanted)
        while not read.is_enough and deadline > monotonic():
            if not is_armed:
                self._arm(wanted, connection)
                is_armed = True
                read.all()  # what came before the event was armed
                continue
            seconds = min(deadline - monotonic(), self._partitions.longest_wait)
            if connection.wait(seconds):
                is_armed = False
            elif deadline > monotonic():
                read.all()
        if is_armed and not read.is_enough and self._partitions.longest_wait > values["maxWaitMs"] / 1000:
            connection.quiet_seconds = self._partitions.longest_wait
        return _answer(wanted, read)

    def _arm(self, wanted: list[_Wanted], connection: Connection) -> None:
        for each in wanted:
            with suppress(KstoreError, OSError, ValueError):  # reading it finds the error
                self._partitions.arm(each.tp, connection.event)
                connection.armed.add(each.tp)


class _Read:
    """The partitions of a request, read once or again and again."""

    def __init__(self, partitions: Partitions, wanted: list[_Wanted], values: dict[str, Any]) -> None:
        self.answers: list[dict[str, Any]] = []
        self.is_enough = False
        self._partitions = partitions
        self._wanted = wanted
        self._min_bytes = values["minBytes"]
        self._max_bytes = min(values["maxBytes"], MAX_BYTES)
        self._is_committed = values["isolationLevel"] == _READ_COMMITTED
        self._isolation: Literal["read_committed", "read_uncommitted"] = (
            "read_committed" if self._is_committed else "read_uncommitted"
        )

    def all(self) -> None:
        """Read all partitions as they are now."""
        self.answers = []
        size, has_failed = 0, False
        for each in self._wanted:
            answer = self._one(each, self._max_bytes - size, is_first=size == 0)
            size += answer["records"].size if answer["records"] else 0
            has_failed = has_failed or answer["errorCode"] != 0
            self.answers.append(answer)
        self.is_enough = has_failed or size >= self._min_bytes

    def _one(self, wanted: _Wanted, left: int, *, is_first: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {"partitionIndex": wanted.tp.partition, "errorCode": 0}
        code: int
        try:
            log = self._partitions.log(wanted.tp)
            now = log.snapshot
            start, end = now.log_start_offset, now.log_end_offset
            code = wrong_epoch(now, wanted.leader_epoch)
            if not code and not start <= wanted.offset <= end:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            if not code:
                span = None
                if wanted.offset < end and (is_first or left > 0):
                    most = max(min(wanted.max_bytes, left), 0)
                    span = log.span(wanted.offset, most, self._isolation, min_one_message=is_first)
                answer["highWatermark"] = end
                answer["logStartOffset"] = start
                answer["records"] = span or b""
                if self._is_committed:
                    answer["lastStableOffset"] = log.last_stable_offset()
                    aborted = (span.aborted if span else None) or []
                    answer["abortedTransactions"] = [
                        {"producerId": producer, "firstOffset": first} for producer, first in aborted
                    ]
                else:
                    answer["abortedTransactions"] = None
                return answer
        except (KstoreError, OSError) as error:
            code = code_of(error)
        except ValueError:  # no topic can have such a name
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer | {
            "errorCode": code,
            "highWatermark": -1,
            "abortedTransactions": None,
            "records": b"",
        }


def _answer(wanted: list[_Wanted], read: _Read) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for each, answer in zip(wanted, read.answers, strict=True):
        topics.setdefault(each.tp.topic, []).append(answer)
    return {"responses": [{"topic": name, "partitions": answers} for name, answers in topics.items()]}
