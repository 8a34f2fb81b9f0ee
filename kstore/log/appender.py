"""log.appender(): small appends of many threads become few batches."""

import contextlib
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kstore.engine.batcher import Batcher
from kstore.errors import KstoreError
from kstore.log.wakeup import Wakeup

if TYPE_CHECKING:
    from kstore.log.writer import LogWriter


class Appender(Batcher):
    """Takes records from many threads and appends them in batches of up to `batch_bytes`.

    A batch waits for company at most `linger_ms`, then a thread of this object appends it. Use it in a `with`, or
    close it: what still waits is lost with the process.
    """

    def __init__(self, log: "LogWriter", *, linger_ms: float = 5.0, batch_bytes: int = 16384) -> None:
        if linger_ms < 0:
            raise ValueError(f"linger_ms {linger_ms} is negative")
        self._linger = linger_ms / 1000
        self._batch = Wakeup()  # a batch is being gathered
        self._stopped = Wakeup()
        self._is_stopped = False
        self._thread = threading.Thread(
            target=_linger,
            args=(weakref.ref(self), self._batch, self._stopped),
            name="kstore-appender",
            daemon=True,
        )
        self._thread.start()

    def _began(self) -> None:
        self._batch.set()

    def close(self) -> None:
        """Appends what was gathered, and ends. OSError."""
        if self._is_stopped:
            return
        try:
            self._close()
        finally:
            self._stop()
            self._thread.join()

    def _stop(self) -> None:
        self._is_stopped = True
        self._stopped.set()
        self._batch.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._stop()


def _linger(appender: "weakref.ref[Appender]", batch: Wakeup, stopped: Wakeup) -> None:
    while batch.take():
        own = appender()
        if own is None or own._is_stopped:
            return
        ticket, linger = own._first_ticket, own._linger
        del own
        if stopped.take(linger):
            return
        own = appender()
        if own is None:
            return
        with contextlib.suppress(OSError, KstoreError):  # whoever appends or flushes next meets it
            own._flush_ticket(ticket)
        del own
