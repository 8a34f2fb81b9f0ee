"""What a writer of a shared log takes in of the others, and how it leaves them."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from kstore.config import LogConfig, in_python
from kstore.errors import KstoreError
from kstore.log.files.manifest import ManifestFile
from kstore.log.producers.manager import ProducerStateManager
from kstore.log.segments.segment_set import SegmentSet
from kstore.log.segments.truncation import complete_truncation
from kstore.log.write.recovering import recovered, with_producers


class OtherWriters:
    """What `LogEnd.share` calls when other processes have changed a shared log."""

    def __init__(
        self, segments: SegmentSet, options: Mapping[str, Any], apply_config: Callable[[LogConfig], None]
    ) -> None:
        self._segments = segments
        self._options = options
        self._apply_config = apply_config

    def reload(self, active_base: int) -> None:
        """They have changed more than the end of the log. OSError, CorruptFileError."""
        self._segments.reload(active_base)
        self._reload_config()

    def recover(self, active_base: int, log_start_offset: int) -> None:
        """One of them has died in a change: the log is recovered from the active segment on, as an opening
        would do it. What is before was not touched. OSError, CorruptFileError."""
        log = self._segments
        point = {"clean": False, "recovery_point": active_base, "log_start_offset": log_start_offset}
        manifest = ManifestFile(log.directory)
        producers = ProducerStateManager(log.directory, self._options["producer_id_expiration_ms"])
        loaded = recovered(log.lease, manifest, log.config, {**self._options, **point})
        epochs = with_producers(log.directory, loaded, producers, log.clock_ms())
        log.begin_anew(loaded, producers, epochs, manifest)
        if manifest.known.truncations.pending:
            complete_truncation(log)
        self._reload_config()

    def reload_producers(self, *, anew: bool) -> None:
        """Their producers have appended. OSError, CorruptRecordError."""
        self._segments.reload_producers(anew=anew)

    def _reload_config(self) -> None:
        lease = self._segments.lease
        if lease.kept is None or lease.kept.of_store:
            return
        config = LogConfig(**in_python(self._segments.manifest.known.options))
        if config != self._segments.config:
            self._apply_config(config)


def is_last_to_leave(segments: SegmentSet) -> bool:
    """Begins to leave a log: whether no other process has it open. Then the caller closes it; else what was
    appended is on the disk now, unless the log refuses to write."""
    session = segments.lease.session
    if session is None or session.end is None or session.leave():
        segments.log_end.look()
        return True
    if not segments.log_end.is_closed:
        with contextlib.suppress(OSError, KstoreError):  # `refusal` says it
            segments.flush()
    return False
