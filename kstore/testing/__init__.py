"""Tools for tests of programs that use kstore or Kafka: a broker inside the process, failing system calls,
and the states after a power cut.

`broker` starts a broker, which any Kafka client can use. `failing` lets a system call fail; `count_calls`
counts them. A `Recorder` records the changes of a directory, and `crash_states` yields every state that a
disk may have after a power cut. The module kstore.testing.fixtures has fixtures for pytest. No other module
of kstore imports this package.
"""

from kstore.light_typing import TYPE_CHECKING
from kstore.testing.faults import count_calls, failing
from kstore.testing.image import Image
from kstore.testing.power_cuts import MODELS, State, crash_states
from kstore.testing.recorder import Call, Recorder, Trace

if TYPE_CHECKING:
    from kstore.testing.brokers import Broker, Clock, broker

__all__ = [
    "MODELS",
    "Broker",
    "Call",
    "Clock",
    "Image",
    "Recorder",
    "State",
    "Trace",
    "broker",
    "count_calls",
    "crash_states",
    "failing",
]


def __getattr__(name: str) -> object:
    if name not in ("Broker", "Clock", "broker"):
        raise AttributeError(f"module 'kstore.testing' has no attribute {name!r}")
    from kstore.testing import brokers  # who tests a log needs no server

    return getattr(brokers, name)
