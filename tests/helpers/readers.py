"""What reads a log from its beginning to its end, for a test that all of them have to pass."""

from pathlib import Path
from typing import Any

import kstore


def from_cursor(path: Path) -> Any:
    return kstore.open(path).cursor("g")


def from_following_cursor(path: Path) -> Any:
    return kstore.open(path).cursor("g", follow=True, timeout=0)


def from_follower(path: Path) -> Any:
    return kstore.open(path).follow(0, timeout=0)


def from_store_cursor(path: Path) -> Any:
    return kstore.LogStore(path.parent).cursor("g", ["t"])


def from_following_store_cursor(path: Path) -> Any:
    return kstore.LogStore(path.parent).cursor("g", ["t"], follow=True, timeout=0)


def from_store_follower(path: Path) -> Any:
    return kstore.LogStore(path.parent).follow(["t"], start="earliest", timeout=0)


READERS = (from_cursor, from_following_cursor, from_follower, from_store_cursor, from_store_follower)
