"""The manifest: kstore.json, kstore's own file in a partition or in a log directory. A broker ignores it.

In a partition it has the saved options, the last truncations, the losses that a repair has noted, and the id
of the partition in committed positions. In a log directory it has the table of topics.

Only a process that has the directory locked for writing replaces a manifest. A cursor of any process may
create the first one of a partition, because it needs the id. So the manifest of a partition always has an id.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from types import MappingProxyType

from kstore.engine.io.directory import sync_directory, unlink, write_whole
from kstore.engine.io.file import File, read_whole, stamp_at
from kstore.engine.record.batch import crc32c
from kstore.errors import CorruptCheckpointError, InvalidConfigError, LogFailedError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.checked_json import corrupt, decode, encode, has_checksum
from kstore.log.files.listing import is_there
from kstore.log.files.topic_table import TopicTable, options_in
from kstore.log.files.truncations import NO_TRUNCATIONS, Truncations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from kstore.typed import StrPath

NAME = layout.MANIFEST
_VERSION = 1
_NO_CHANGE = b'"change": null\n}\n'  # the end of the manifest of a log directory without an unfinished change
_NO_FILE = {getattr(errno, name) for name in ["EISDIR", "ELOOP", "EINVAL", "EACCES", "ENXIO", "EFBIG"]}
_ID, _TRUNCATIONS, OLDER_TABLE = "kstore-cursors.id", "kstore-truncations.json", "kstore-topics.json"
# the fields for which an earlier version had files of their own
_OLDER = {"kstore-config.json": "options", _TRUNCATIONS: "truncations", _ID: "id", OLDER_TABLE: "table"}

Stamp: TypeAlias = tuple[int, int, int] | None
"""Inode, change time and size of a manifest, which differ after it was replaced; None if there is none."""


class Manifest(NamedTuple):
    """The content of a manifest. `options` are in Kafka's notation. `id` has 16 bytes. `gaps`: the ranges
    of offsets that a repair has noted as missing, each as its first offset and its length; `lost_ends`: those
    that were lost at the end of the log, and that later records get again."""

    id: bytes = b""
    options: Mapping[str, str] = MappingProxyType({})
    truncations: Truncations = NO_TRUNCATIONS
    table: TopicTable = TopicTable()
    gaps: tuple[tuple[int, int], ...] = ()
    lost_ends: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Manifest:
        """From the content of a file. KeyError, TypeError, ValueError, AttributeError, InvalidConfigError."""
        own_id = bytes.fromhex(content.get("id", ""))
        if content["version"] != _VERSION or len(own_id) not in (0, 16):
            raise ValueError(f"version {content['version']!r:.80}, id {own_id!r:.80}")
        gaps, lost_ends = (
            tuple((int(first), int(count)) for first, count in content.get(name, ()))
            for name in ("gaps", "lost_ends")
        )
        options, truncations = options_in(content), Truncations.of(content)
        return cls(own_id, options, truncations, TopicTable.of(content), gaps, lost_ends)

    def with_truncations(self, truncations: Truncations) -> Manifest:
        """The manifest with other truncations."""
        return self._replace(truncations=truncations)

    def encode(self) -> bytes:
        """Encode the content of the file."""
        own = {
            "version": _VERSION,
            "id": self.id.hex(),
            "config": dict(sorted(self.options.items())),
            "gaps": self.gaps,
            "lost_ends": self.lost_ends,
        }
        content = {name: value for name, value in own.items() if value}
        return encode(content | self.truncations.content() | self.table.content())


class ManifestFile:
    """The manifest of a partition that is open for writing. Readers in this process see `known` at once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.known = converted(directory)

    def reload(self) -> None:
        """Take in what another process has written. CorruptCheckpointError, OSError."""
        known = read_manifest(self._directory)
        if known != self.known:
            self.known = known

    def keep_options(self, options: Mapping[str, str]) -> None:
        """Replace the saved options, durably. OSError."""
        if options != self.known.options:
            self._write(self.known._replace(options=options))

    def expect(self, offset: int, pending: str = "records") -> None:
        """Note a truncation before anything is removed: if this process dies, the next writer completes it.
        OSError: nothing is noted. LogFailedError: it is not known whether it is noted."""
        before = self.known
        noted = before.truncations.without_pending().expecting(offset, pending)
        # records that are appended later may get the offsets behind it
        gaps = tuple(gap for gap in before.gaps if sum(gap) <= offset and pending != "all")
        try:
            self._write(before.with_truncations(noted)._replace(gaps=gaps))
        except OSError as e:
            try:
                if read_manifest(self._directory) != before:
                    self._write(before)  # or the next writer would remove the records that are appended now
            except (OSError, CorruptCheckpointError):
                raise LogFailedError(
                    f"{e}; so it is not known whether {self._directory}/{NAME} says that the log is "
                    f"truncated at offset {offset}. Open the log again when the disk works"
                ) from e
            raise

    def carry_out(self, last_stable_offset: int) -> None:
        """Note that the truncation was carried out, for readers in this process. `store` writes it before
        anything is appended: a reader in another process may have begun meanwhile."""
        self.known = self.known.with_truncations(self.known.truncations.carried_out(last_stable_offset))

    def note_losses(self, gaps: Sequence[tuple[int, int]], lost_ends: Sequence[tuple[int, int]]) -> None:
        """Replace the noted losses, durably. OSError."""
        self._write(self.known._replace(gaps=tuple(gaps), lost_ends=tuple(lost_ends)))

    def store(self) -> None:
        """Write the file, durably. OSError."""
        self._write(self.known)

    def _write(self, manifest: Manifest) -> None:
        made = None
        if not manifest.id:
            made = create(self._directory, manifest)
            manifest = manifest._replace(id=made.id or os.urandom(16))
        if made != manifest:
            write_manifest(self._directory, manifest)
        self.known = manifest


def read_manifest(directory: StrPath) -> Manifest:
    """The manifest of a directory; if there is none, made of the files of an earlier version.
    CorruptCheckpointError, OSError."""
    try:
        found = _read(directory, NAME)
        if found is None:
            parts = ((field, _read(directory, name)) for name, field in _OLDER.items())
            older = {field: getattr(part, field) for field, part in parts if part is not None}
            # without older files: a writer may have converted them meanwhile
            found = Manifest(**older) if older else _read(directory, NAME)
    except CorruptCheckpointError as e:
        e.add_note(
            "put it back from a backup; the table of topics also from another log directory of the store. Or "
            "move it away: then the default options apply, which you can change and save again, and no group "
            "has a position in the log"
        )
        raise
    return found or Manifest()


def write_manifest(directory: StrPath, manifest: Manifest, *, replaces: bool = True) -> None:
    """Write the manifest of a directory, durably and atomically. OSError; FileExistsError without
    `replaces`, if the directory has one."""
    write_whole(f"{directory}/{NAME}", manifest.encode(), replaces=replaces)


def create(directory: StrPath, manifest: Manifest) -> Manifest:
    """Create the manifest of a directory, durably, and give it an id. Returns the one that is there then,
    which another process may have created. CorruptCheckpointError, OSError."""
    made = manifest._replace(id=manifest.id or os.urandom(16))
    try:
        write_manifest(directory, made, replaces=False)
    except FileExistsError:
        return read_manifest(directory)
    return made


def converted(directory: StrPath) -> Manifest:
    """The manifest of a directory that this process has locked for writing. The files of an earlier version
    become part of it. CorruptCheckpointError, OSError."""
    older = [name for name in _OLDER if is_there(f"{directory}/{name}")]
    manifest = read_manifest(directory)
    if older:
        with suppress(OSError):  # the disk may be full: then the next opening converts them
            manifest = create(directory, manifest)
            for name in older:
                unlink(f"{directory}/{name}")
            sync_directory(str(directory))
    return manifest


def topic_being_deleted(directory: StrPath) -> str | None:
    """The topic of an unfinished deletion, or None. CorruptCheckpointError, OSError."""
    for name in (NAME, OLDER_TABLE):
        with suppress(FileNotFoundError):
            file = File(f"{directory}/{name}")
            end = file.read(max(file.size() - len(_NO_CHANGE), 0), len(_NO_CHANGE))
            if end == _NO_CHANGE:  # the common case: do not parse a long file
                return None
            change = read_manifest(directory).table.change
            return change.topic if change is not None and change.delete else None
    return None


def stamp_of(directory: StrPath) -> Stamp:
    """Which manifest a directory has now."""
    try:
        return stamp_at(f"{directory}/{NAME}")
    except OSError:
        return None


def truncations_of(path: StrPath, stamp: Stamp) -> Truncations:
    """The truncations of a log that has this manifest; unknown ones if it is damaged. OSError."""
    # a writer writes the manifest before it removes an older file
    for name in (_TRUNCATIONS, NAME) if stamp is None else (NAME,):
        try:
            data = read_whole(f"{path}/{name}")
            # the common case: do not parse it
            if b'"truncations"' not in data and has_checksum(f"{path}/{name}", data, "manifest"):
                return NO_TRUNCATIONS
            return _decoded(path, name, data).truncations
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, CorruptCheckpointError) as e:
            if isinstance(e, OSError) and e.errno not in _NO_FILE:
                raise
            return Truncations.unknown(e)
    return NO_TRUNCATIONS


def _read(directory: StrPath, name: str) -> Manifest | None:
    try:
        data = read_whole(f"{directory}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        path = f"{directory}/{name}"
        if name == NAME and os.path.islink(path):
            raise corrupt(path, "manifest", "a file", "a link that leads nowhere") from None
        return None
    return _decoded(directory, name, data)


def _decoded(directory: StrPath, name: str, data: bytes) -> Manifest:
    path = f"{directory}/{name}"
    try:
        content = _older_id(data) if name == _ID else decode(path, data, "manifest")
        return Manifest.of(content)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidConfigError) as e:
        raise corrupt(path, "manifest", "a manifest", f"{type(e).__name__}: {e}") from None


def _older_id(data: bytes) -> dict[str, object]:
    found = bytes.fromhex(data.decode())[:16]
    if data != b"%s%08x\n" % (found.hex().encode(), crc32c(found)):
        raise ValueError(f"{data[:80]!r} is no id with a checksum")
    return {"version": _VERSION, "id": found.hex()}
