"""Whether a directory is a partition's: any other would be read as a log without records."""

import glob
from pathlib import Path

from kstore.errors import LogNotFoundError
from kstore.log.files import layout
from kstore.log.files.listing import scan_directory

_SIGNS = (layout.LEADER_EPOCHS, layout.METADATA)
_WEAK_SIGNS = (
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    layout.CLEAN_SHUTDOWN,
)  # a log directory has them too
_MOST_NAMED = 5


def require_partition(path: Path) -> None:
    """LogNotFoundError for a directory without any file of a partition; it names the partitions below, if there are any.

    What is no directory at all is left to who opens it.
    """
    if not path.is_dir():
        return
    weak = False
    directories = []
    with scan_directory(str(path)) as entries:
        for entry in entries:
            if _is_sign(entry.name):
                return
            weak = weak or entry.name in _WEAK_SIGNS
            directories.append(entry.name)
    below = sorted(tp for tp in map(layout.parse_directory, directories) if tp is not None)
    below = [tp for tp in below if (path / str(tp)).is_dir()]
    if below:
        named = ", ".join(map(str, below[:_MOST_NAMED]))
        more = f" and {len(below) - _MOST_NAMED} more" if len(below) > _MOST_NAMED else ""
        error = LogNotFoundError(f"{path} is a log directory, not a partition: it holds {named}{more}")
        error.is_log_directory = True
        raise error
    if not weak and not path.resolve().name.endswith(
        "-delete"
    ):  # Kafka may have deleted the files of such a one
        raise LogNotFoundError(f"no partition at {path}: the directory has no .log file")


def not_found(path: Path) -> LogNotFoundError:
    """The error for a path that is no directory. It names partitions of that topic, if there are any beside."""
    topic = path.name
    beside = (
        sorted(p.name for p in path.parent.glob(f"{glob.escape(topic)}-*") if p.is_dir()) if topic else []
    )
    known = [
        name for name in beside if (tp := layout.parse_directory(name)) is not None and tp.topic == topic
    ]
    hint = f"; partitions of topic {topic} beside it: {', '.join(known[:_MOST_NAMED])}" if known else ""
    return LogNotFoundError(f"no partition directory at {path}{hint}")


def _is_sign(name: str) -> bool:
    if name in _SIGNS or layout.parse_file(name) is not None:
        return True
    return name.endswith(".snapshot") and layout.parse_offset(name) is not None
