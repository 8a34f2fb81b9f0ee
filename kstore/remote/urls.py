"""Reading from a path that may be a URL."""

from __future__ import annotations

from kstore.arguments import is_url, path_text
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def readable(path: object, storage_options: Mapping[str, Any] | None = None, *, name: str = "path") -> str:
    """A path to read from; for a URL, that of a local directory that shows what is there.

    storage_options: those of fsspec for the URL's protocol. LogNotFoundError, LibraryError, OSError;
    TypeError for options without a URL.
    """
    text = path_text(name, path)
    if is_url(text):
        from kstore.remote.remote_files import mirrored

        return mirrored(text, storage_options or {})
    if storage_options is not None:
        raise TypeError(f"storage_options are those of a URL, and {name} is none")
    return text
