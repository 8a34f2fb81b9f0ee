"""The files of a copy against its manifest."""

from __future__ import annotations

import os

from kstore.checking.codes import found
from kstore.copying.manifest import compare
from kstore.engine.io.sources import directory_around
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout

if TYPE_CHECKING:
    from kstore.checking.finding import Finding

_CODES = {
    "missing": "copy_file_missing",
    "size": "copy_file_differs",
    "content": "copy_file_differs",
    "unlisted": "copy_file_unlisted",
}


def check_copy(directory: str, manifest: str) -> list[Finding]:
    """The differences between the files of a directory and a manifest that kstore.copy() has written. Reads
    every file. CorruptCheckpointError if the manifest is damaged. OSError."""
    findings = []
    is_remote = directory_around(directory) is not None
    for path, kind, expected, is_there in compare(directory, manifest):
        if is_remote and os.path.basename(path) == layout.RECOVERY_POINTS:
            continue  # what shows a remote directory has none
        code = _CODES[kind]
        meaning = f"{found(code, '').meaning}: expected {expected}, found {is_there}"
        findings.append(found(code, os.path.join(directory, path), meaning))
    return findings
