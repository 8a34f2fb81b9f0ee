"""What a disk may hold after a power cut in the midst of an operation, or of the opening after that."""

import shutil
from collections.abc import Callable
from pathlib import Path

from kstore.testing import Image, Recorder, Trace, crash_states
from tests.helpers.effort import SEED, times

EVERY = 12  # of so many states the opening of one is recorded too


def check_each(
    trace: Trace,
    scratch: Path,
    check: Callable[[Path], object],
    moments: int,
    reopen: Callable[[Path], object] | None = None,
) -> int:
    """Gives a directory of each state to `check`; how many differ. At EFFORT=1 two states at each of so many
    moments; with more effort at every moment, and then more states at each.

    With `reopen`, the power fails once more while it is at work on some of them."""
    wanted = times(moments)
    most = max(2, 2 * wanted // max(len(trace.calls), 1))
    seen = set()
    left = scratch / "left"
    for state in crash_states(trace, models=("strict", "ordered"), most=most, moments=wanted, seed=SEED):
        digest = state.image.digest()
        if digest in seen:
            continue
        seen.add(digest)
        try:
            _check(state.image, left, check)
            if reopen is not None and len(seen) % EVERY == 0:
                again = scratch / "again"
                again.mkdir()
                state.image.write_to(again)
                with Recorder(again) as recorder:
                    reopen(again)
                shutil.rmtree(again)
                second = scratch / "second"
                second.mkdir()
                check_each(recorder.trace, second, check, 5)
                shutil.rmtree(second)
        except BaseException as e:
            calls = [f"  {at} {call}" for at, call in enumerate(trace.calls[: state.at + 1])][-30:]
            e.add_note(
                "\n".join([f"SEED={SEED}: after call {state.at}, {state.model}: {state.text}", *calls])
            )
            raise
    return len(seen)


def _check(image: Image, left: Path, check: Callable[[Path], object]) -> None:
    left.mkdir()
    image.write_to(left)
    check(left)
    shutil.rmtree(left)
