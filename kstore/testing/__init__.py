"""Tools for tests of programs that use kstore: failing system calls, and the states after a power cut.

`failing` lets a system call fail; `count_calls` counts them. A `Recorder` records the changes of a directory,
and `crash_states` yields every state that a disk may have after a power cut. The module
kstore.testing.fixtures has fixtures for pytest. No other module of kstore imports this package.
"""

from kstore.testing.faults import count_calls, failing
from kstore.testing.image import Image
from kstore.testing.power_cuts import MODELS, State, crash_states
from kstore.testing.recorder import Call, Recorder, Trace

__all__ = ["MODELS", "Call", "Image", "Recorder", "State", "Trace", "count_calls", "crash_states", "failing"]
