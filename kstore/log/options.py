"""The options of an opening that are no options of a topic: those of kstore.open, LogStore, PartitionLog and
LogWriter. The table has for each its default and what checks it."""

from __future__ import annotations

from functools import partial

from kstore.arguments import (
    DURABILITY,
    INDEX_INTERVAL_BYTES,
    MAX_DECOMPRESSED_BYTES,
    MAX_EPOCH,
    boolean,
    choice,
    integer,
)
from kstore.errors import visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal

    Use = Literal["read", "write", "store"]

_INT32 = 2**31 - 1


class _Option(NamedTuple):
    uses: tuple[Use, ...]
    default: object
    check: Callable[[str, Any], object]  # not asked for a None that is the default


def _topic_id(name: str, value: object) -> object:
    from uuid import UUID  # few programs give a topic id

    if not isinstance(value, UUID):
        raise TypeError(f"{name} must be a uuid.UUID, not {value!r}")
    return value


def _clock(name: str, value: object) -> object:
    if not callable(value):
        raise TypeError(f"{name} must be a function that returns the time in milliseconds, not {value!r}")
    return value


_OF_CHECKPOINTS = ("clean", "recovery_point", "log_start_offset")  # which a log that is open has in memory
_ALL: tuple[Use, ...] = ("read", "write", "store")
_OPTIONS = {
    "recover": _Option(("read",), True, boolean),
    "index_interval_bytes": _Option(("read",), INDEX_INTERVAL_BYTES, partial(integer, most=_INT32)),
    "max_decompressed_bytes": _Option(_ALL, MAX_DECOMPRESSED_BYTES, partial(integer, least=1)),
    "clean": _Option(("read", "write"), None, boolean),
    "recovery_point": _Option(("read", "write"), None, integer),
    "log_start_offset": _Option(("read", "write"), None, integer),
    "durability": _Option(("write", "store"), "none", partial(choice, choices=DURABILITY)),
    "keep_cut": _Option(("write", "store"), False, boolean),
    "leader_epoch": _Option(("write", "store"), None, partial(integer, most=MAX_EPOCH)),
    "shared": _Option(("write", "store"), False, boolean),
    "topic_id": _Option(("write",), None, _topic_id),
    "clock": _Option(("write", "store"), None, _clock),
    "producer_id_expiration_ms": _Option(("write", "store"), 86_400_000, partial(integer, least=1)),
}


def names_of(use: Use) -> tuple[str, ...]:
    """The options that a use has."""
    return tuple(name for name, option in _OPTIONS.items() if use in option.uses)


def checked(use: Use, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a use, those that are not given with their defaults. TypeError, ValueError."""
    refuse_others(use, given)
    found = {}
    for name in names_of(use):
        option = _OPTIONS[name]
        value = given.get(name, option.default)
        found[name] = value if value is None is option.default else option.check(name, value)
    for name in _OF_CHECKPOINTS if found.get("shared") else ():
        if found.get(name) is not None:
            raise ValueError(
                f"{name} is not an option with shared=True, because other processes may have the log open: "
                "open it without shared first"
            )
    return found


def refuse_others(use: Use, given: Iterable[str]) -> None:
    """TypeError for an option that a use does not have; it says so if writing has it."""
    known = names_of(use)
    for name in given:
        if name not in known:
            from kstore.typed import ConfigOptions

            what = "reading" if use == "read" else "writing"
            is_for_writing = name in ("config", *names_of("write"), *ConfigOptions.__annotations__)
            more = f"they are {', '.join(known)}"
            if use == "read" and is_for_writing:
                more = "give mode 'a' or 'r+' to write"
            raise TypeError(f"{visible(name)} is not an option for {what}: {more}")
