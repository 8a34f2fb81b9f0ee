"""Why retention keeps a segment, and when it deletes it at the earliest."""

from __future__ import annotations

import os
from time import time_ns

from kstore.arguments import any_integer, instance
from kstore.broker.topic_options import topic_options
from kstore.config import LogConfig, given_in_text
from kstore.errors import CorruptCheckpointError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.arguments import checked_groups
from kstore.log.cursors.home import Home
from kstore.log.files.layout import TopicPartition
from kstore.log.files.log_dir_state import is_known_compacted
from kstore.log.partition import PartitionLog
from kstore.log.write.given_retention import retention_of
from kstore.log.write.needs import needs_of
from kstore.log.write.retention import SegmentFacts, decide_for, earliest, facts_of, kept_from

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from kstore.log.write.retention import Facts

    _Rule = Literal["start_offset", "size", "time"]
_OPTIONS = ("cleanup.policy", "retention.ms", "retention.bytes")


class SegmentRetention(NamedTuple):
    """Why retention keeps or deletes a segment, and when it deletes it at the earliest.

    `next_offset` is where the next segment begins; `size` is in bytes, times are in ms since 1970.
    `largest_timestamp` is that of its records, or the time when its .log file was changed, if no record has
    one; `timestamp_is_mtime` is True then. `delete`, `rule` and `reason` are those of the Decision that
    `log.retain()` makes now. `deletable_at_ms` is the first time at which retention deletes it if nothing is
    appended or changed, by the rule `deletable_by`: "start_offset", "size" or "time". Both are None if it is
    never deleted so.
    """

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int
    timestamp_is_mtime: bool
    delete: bool
    rule: _Rule | None
    reason: str
    deletable_at_ms: int | None
    deletable_by: _Rule | None


class Retention(NamedTuple):
    """What retention does with the segments of a log, the oldest first, at the time `now_ms`.

    `options`: the options that decide, in Kafka's notation, as far as they were set. `source`: where they are
    saved: "log", "store", "broker" (in __cluster_metadata) or "given". `kstore explain` also has
    "server.properties", and the sources of all options, joined by ", ", if they differ. `notes`: sentences
    about options that were not set.
    """

    path: str
    now_ms: int
    log_start_offset: int
    log_end_offset: int
    options: dict[str, str]
    source: str
    segments: tuple[SegmentRetention, ...]
    notes: tuple[str, ...]


def retention(
    log: PartitionLog,
    *,
    config: LogConfig | None = None,
    now_ms: int | None = None,
    keep_for: Iterable[str] = (),
) -> Retention:
    """Explain why retention keeps or deletes each segment of a log, and when it deletes it at the earliest.

    config: the configuration of the topic. Default: that of the log, if it is open for writing; else the
    options that are saved for the topic, by kstore or by a broker. now_ms: the time in ms since 1970.
    Default: now. keep_for: groups of cursors and share groups, as for `log.retain()`.

    The answer holds as long as nothing is appended, deleted or configured. As for `log.retain()`, nothing is
    deleted by age if retention_ms was not set. CorruptFileError, OSError.
    """
    now_ms = time_ns() // 1_000_000 if now_ms is None else any_integer("now_ms", now_ms)
    return explained(log, *config_of(log, config), now_ms, keep_for)


def explained(
    log: PartitionLog, config: LogConfig, source: str, now_ms: int, keep_for: Iterable[str]
) -> Retention:
    """The explanation for a configuration that is saved at `source`. CorruptFileError, OSError."""
    tp = log.topic_partition or TopicPartition(os.path.basename(log.path), 0)
    needs = {
        group: needs_of(log.path, tp, group, Home.of(log.path).durable_commit(group))
        for group in checked_groups("keep_for", keep_for)
    }
    applied, notes = _applied(log.path, config, source)
    now = log.snapshot
    decisions = decide_for(now, applied, now_ms, needs)
    facts = facts_of(now.segments, now.log_end_offset)
    times = earliest(
        facts,
        applied,
        log_start_offset=now.log_start_offset,
        log_end_offset=now.log_end_offset,
        high_watermark=now.log_end_offset,
        now_ms=now_ms,
    )
    needed = min(kept_from(now, needs).values(), default=now.log_end_offset)
    segments = [
        SegmentRetention(
            *_values_of(fact),
            decision.delete,
            decision.rule,
            decision.reason,
            *((None, None) if time is None or fact.next_offset > needed else time),
        )
        for fact, decision, time in zip(facts, decisions, times, strict=True)
    ]
    start, end, options = now.log_start_offset, now.log_end_offset, options_of(config, _OPTIONS)
    return Retention(log.path, now_ms, start, end, options, source, tuple(segments), notes)


def options_of(config: LogConfig, names: Iterable[str]) -> dict[str, str]:
    """Those of these options that were set, in Kafka's notation."""
    given = given_in_text(config)
    return {name: given[name] for name in names if name in given}


def config_of(log: PartitionLog, config: LogConfig | None) -> tuple[LogConfig, str]:
    """The configuration of a log, and where it is saved. TypeError for a path; CorruptFileError, OSError."""
    instance("log", log, PartitionLog)
    if config is not None:
        return instance("config", config, LogConfig), "given"
    own = getattr(log, "config", None)  # of a LogWriter
    if own is not None:
        return own, "log"
    known = topic_options(log.path)
    return known.config(), known.source


def _applied(path: str, config: LogConfig, source: str) -> tuple[LogConfig, tuple[str, ...]]:
    """The configuration as retain() applies it, and sentences about what was not set. OSError."""
    given, notes = config.given_options(), []
    config = retention_of(config)
    if "retention_ms" not in given:
        config = config.replace(retention_ms=-1)
        text = "retention.ms is not set for the topic, so kstore deletes nothing by age"
        if source == "broker":
            text += ". A broker takes it from its server.properties; Kafka's default is 7 days"
        notes.append(text)
    if "cleanup_policy" not in given and config.deletes:
        try:
            text = "the log is known to be compacted" if is_known_compacted(path) else ""
        except CorruptCheckpointError as e:
            text = f"it is not known whether the log was compacted ({e})"
        if text:
            config = config.replace(cleanup_policy=())
            notes.append(f"{text}, and cleanup.policy is not set, so kstore deletes nothing by age or size")
    return config, tuple(notes)


def _values_of(fact: Facts) -> SegmentFacts:
    """The facts about a segment, which are read from its files here. OSError."""
    return SegmentFacts(
        fact.base_offset, fact.next_offset, fact.size, fact.largest_timestamp, fact.timestamp_is_mtime
    )
