"""For tests of programs that use kstore: let its system calls fail, and see what a power cut may leave.

`failing` lets a call fail; `count_calls` tells how many calls there are. A `Recorder` notes what a program
does to a directory, and `crash_states` makes of it every state that a disk may hold after a power cut. The
module kstore.testing.fixtures has fixtures for pytest. Nothing else of kstore imports this.
"""

from kstore.testing.faults import count_calls, failing
from kstore.testing.image import Image
from kstore.testing.power_cuts import MODELS, State, crash_states
from kstore.testing.recorder import Call, Recorder, Trace

__all__ = ["MODELS", "Call", "Image", "Recorder", "State", "Trace", "count_calls", "crash_states", "failing"]
