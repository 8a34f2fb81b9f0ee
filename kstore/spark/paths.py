"""Paths of log directories: as users give them, and as the machine of an executor sees them. Needs no
Spark."""

import os
import re
from collections.abc import Iterable
from os import PathLike, fspath
from typing import TypeAlias

from kstore.spark.errors import SparkSourceError, failure

Paths: TypeAlias = str | PathLike[str] | Iterable[str | PathLike[str]]
ROOT_MAP = "KSTORE_ROOT_MAP"


def local_path(name: str, url: str) -> str:
    """An absolute path of the file system, also from a URL such as Hadoop's file:/x and file:///x; links stay
    as executors see them. KSTORE_UNSUPPORTED."""
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*)", url)
    if found is None:
        return os.path.abspath(url)
    if found[1].lower() != "file" or found[2] not in (None, "", "localhost"):
        raise failure("KSTORE_UNSUPPORTED", f"{name} must lie in a mounted file system", file=url)
    return os.path.abspath(found[3])


def is_remote(root: str) -> bool:
    """Whether it is a URL of an object store or a remote file system."""
    return "://" in root and not root.lower().startswith("file:")


def roots_of(paths: Paths, *, local: bool = False) -> tuple[str, ...]:
    """The absolute paths of log directories, and the URLs of those in an object store unless all must be
    `local`. KSTORE_INVALID_OPTION, KSTORE_UNSUPPORTED."""
    given = [fspath(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
    if not given or not all(path.strip() for path in given):
        raise failure(
            "KSTORE_INVALID_OPTION",
            "path is missing: the log directory, as in .load(path) or .option('path', …)",
        )
    stripped = [path.strip() for path in given]
    roots = tuple(
        path.rstrip("/") if is_remote(path) and not local else local_path("path", path) for path in stripped
    )
    if len({os.path.realpath(root) for root in roots}) < len(roots):
        raise failure("KSTORE_INVALID_OPTION", f"a log directory is named twice: {', '.join(roots)}")
    return roots


def no_log_directory(root: str) -> SparkSourceError:
    """The error for a path that holds no partitions and is not there, or is itself a partition."""
    reason = "no log directory there"
    if os.path.isdir(root):
        around = os.path.dirname(root)
        reason = (
            f"it is a partition; path is the log directory around it, {around}, and options name the topic"
        )
    return failure("KSTORE_PATH_NOT_FOUND", reason, file=root)


def mapped_root(root: str) -> str:
    """The root as this machine sees it: the environment variable KSTORE_ROOT_MAP is FROM=TO, several with :
    between."""
    for pair in os.environ.get(ROOT_MAP, "").split(os.pathsep):
        source, equals, target = pair.partition("=")
        source = source.rstrip("/")
        if equals and source and (root == source or root.startswith(source + "/")):
            return target.rstrip("/") + root[len(source) :]
    return root
