"""The arguments of LogStore, checked before anything is touched."""

from __future__ import annotations

import os
from pathlib import Path

from kstore.arguments import boolean, checked_url, choice, integer, is_url, number, path_text
from kstore.config import LogConfig
from kstore.errors import visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.arguments import checked_groups
from kstore.log.options import checked, names_of
from kstore.remote.urls import readable
from kstore.store.open_partitions import default_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from typing import Any

    from kstore.remote.tiered_log import RemoteDirectories


class StoreArguments(NamedTuple):
    """`config` is that of topics that do not say otherwise, `log_options` what each log is opened with."""

    paths: list[Path]
    is_writing: bool
    config: LogConfig
    log_options: dict[str, Any]
    max_open_partitions: int
    is_in_background: bool
    idle_roll_ms: int | None
    keep_for: list[str]
    expires_cursors: bool
    wait: float
    remote: RemoteDirectories | None


def checked_paths(
    dirs: tuple[str | PathLike[str], ...], storage_options: Mapping[str, Any] | None = None
) -> list[Path]:
    """The log directories: absolute paths, as the program may go to another directory. TypeError,
    ValueError."""
    if not dirs:
        raise TypeError("LogStore needs the path of a log directory")
    if not all(path_text("the path of a log directory", path) for path in dirs):
        raise ValueError(
            "LogStore needs the path of a log directory, not an empty one: '.' is the current directory"
        )
    for path in dirs[1:]:
        if path in ("a", "r", "r+") and not Path(path).is_dir():
            raise TypeError(
                f"the mode is given by name, LogStore({str(dirs[0])!r}, mode={path!r}): other arguments "
                "are log directories"
            )
    paths = [Path(readable(os.fspath(path), storage_options)).absolute() for path in dirs]
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise ValueError(f"a directory is named twice: {', '.join(map(str, paths))}")
    return paths


def checked_arguments(
    dirs: tuple[str | PathLike[str], ...],
    mode: str,
    *,
    config: LogConfig | None,
    max_open_partitions: int | None,
    background: bool,
    idle_roll_ms: int | None,
    keep_for: Iterable[str],
    wait: float,
    storage_options: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> StoreArguments:
    """The arguments of LogStore. TypeError, ValueError, InvalidConfigError."""
    choice("mode", mode, ("r", "a"))
    if mode == "a" and (urls := [path for path in dirs if is_url(path)]):
        raise ValueError(f"{urls[0]} is remote, and can only be read: mode is r, not a")
    options, remote = dict(options), None
    if (url := options.pop("remote", None)) is not None:
        if mode == "a":
            raise ValueError("a store with a remote part can only be read: mode is r, not a")
        from kstore.remote.tiered_log import RemoteDirectories

        remote = RemoteDirectories(checked_url("remote", url), storage_options)
        storage_options = None
    paths = checked_paths(dirs, storage_options)
    if mode == "r":
        given = {"config": config, "max_open_partitions": max_open_partitions, **options}
        given |= {"idle_roll_ms": idle_roll_ms, "background": None if background is True else background}
        given |= {"keep_for": keep_for or None}
        for name in [name for name, value in given.items() if value is not None]:
            raise TypeError(f"{visible(name)} is no option for reading: give mode='a' to write")
    if not (config is None or isinstance(config, LogConfig)):
        raise TypeError(f"config must be a kstore.LogConfig, not {config!r}")
    limit = default_limit()
    if max_open_partitions is not None:
        limit = integer("max_open_partitions", max_open_partitions, 1)
    boolean("background", background)
    wait = number("wait", wait, 0)
    groups = checked_groups("keep_for", keep_for)
    if idle_roll_ms is not None:
        idle_roll_ms = integer("idle_roll_ms", idle_roll_ms, 1)
    own = dict(options)
    log_options = checked("store", {n: own.pop(n) for n in names_of("store") if n in own})
    whole = (config or LogConfig()).replace(**own)
    return StoreArguments(
        paths,
        mode == "a",
        whole,
        log_options,
        limit,
        background and mode == "a",
        idle_roll_ms,
        groups,
        "offsets_retention_minutes" in whole.given_options(),
        wait,
        remote,
    )
