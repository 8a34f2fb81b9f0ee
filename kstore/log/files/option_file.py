"""The saved options of a log that is not in a store: a file in its directory, which a broker ignores."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstore.engine.io.file import read_whole, sync_directory, unlink, write_whole
from kstore.errors import CorruptCheckpointError, InvalidConfigError
from kstore.log.files import layout
from kstore.log.files.checked_json import corrupt, decode, encode
from kstore.log.later import later

if TYPE_CHECKING:
    from kstore.config import LogConfig
else:
    later(globals(), {"kstore.config": "LogConfig"})

NAME = layout.OPTIONS
_VERSION = 1
_WHAT = "configuration of a log"


def read_options(path: Path) -> dict[str, str]:
    """The options saved in a partition directory, in Kafka's notation. CorruptCheckpointError, OSError."""
    file = path / NAME
    try:
        data = read_whole(str(file))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    try:
        return _options_in(file, data)
    except CorruptCheckpointError as e:
        e.add_note(
            "put it back from a backup. Without it, the log has the default options: move it away, and give "
            "the options that differ to kstore.open(path, 'a', …), which keeps them"
        )
        raise


def _options_in(file: Path, data: bytes) -> dict[str, str]:
    try:
        content = decode(file, data, _WHAT)
        if content["version"] != _VERSION:
            raise corrupt(file, _WHAT, f"version {_VERSION}", content["version"])
        options: dict[str, str] = dict(content["config"])
        if not all(isinstance(value, str) for value in options.values()):
            raise TypeError(f"{options!r:.200}")
        LogConfig.from_topic(options)
        return options
    except (ValueError, KeyError, TypeError, AttributeError, InvalidConfigError) as e:
        raise corrupt(file, _WHAT, "options of a topic", f"{type(e).__name__}: {e}") from None


def write_options(path: Path, options: Mapping[str, str]) -> None:
    """Replace the saved options, durably and atomically. OSError."""
    if options == read_options(path):
        return
    if options:
        write_whole(str(path / NAME), encode({"version": _VERSION, "config": dict(sorted(options.items()))}))
    else:
        unlink(str(path / NAME), missing_ok=True)
        sync_directory(str(path))


def in_python(options: Mapping[str, str]) -> dict[str, Any]:
    """Convert options from Kafka's notation to those of LogConfig. InvalidConfigError."""
    parsed = LogConfig.from_topic(options)
    names = [name.replace(".", "_") for name in options]
    return {name: getattr(parsed, name) for name in names if hasattr(parsed, name)}
