"""What a signal handler, a clock or a finalizer may do with a log while the same thread is inside it."""

import contextlib
from collections.abc import Callable, Iterator

import kstore
from tests.interrupts.world import Broken, World


@contextlib.contextmanager
def refusal_is_fine(world: World) -> Iterator[None]:
    """kstore may refuse the call; anything else that goes wrong is noted, since whoever is below may swallow it."""
    try:
        yield
    except (kstore.KstoreError, OSError) as e:
        if not str(e):
            world.complaints.append(f"{type(e).__name__} without a word")
    except Broken as e:
        world.complaints.append(str(e))
    except BaseException as e:  # noqa: BLE001
        world.complaints.append(f"{type(e).__name__}: {e}")


def append(world: World) -> None:
    value = world.values(1)
    with refusal_is_fine(world):
        if world.log is not None:
            world.ack(world.log.append(value[0], world.key_of(value[0])), value)


def flush(world: World) -> None:
    with refusal_is_fine(world):
        if world.log is not None:
            world.log.flush()


def close(world: World) -> None:
    with refusal_is_fine(world):
        if world.log is not None:
            world.ends_log = True
            world.log.close()


def read(world: World) -> None:
    with refusal_is_fine(world):
        if world.log is not None:
            world.look(world.log, "within the operation")


def roll(world: World) -> None:
    with refusal_is_fine(world):
        if world.log is not None:
            world.log.roll()


def use_appender(world: World) -> None:
    value = world.values(1)
    with refusal_is_fine(world):
        if world.log is not None:
            with world.log.appender(linger_ms=1000) as out:
                ticket = out.append(value[0], world.key_of(value[0]))
                out.flush()
                offset = ticket.wait()
            world.ack(offset, value)


def open_another(world: World) -> None:
    with refusal_is_fine(world):
        kstore.open(world.directory.parent / "third-0", "a").close()
    with refusal_is_fine(world):
        kstore.open(world.directory).close()


ACTIONS: dict[str, Callable[[World], None]] = {
    "append": append,
    "flush": flush,
    "close": close,
    "read": read,
    "roll": roll,
    "appender": use_appender,
    "open": open_another,
}
