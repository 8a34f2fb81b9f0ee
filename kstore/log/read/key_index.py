"""Where the last record of a key is in one segment: its .keys file tells, or a map in memory."""

from __future__ import annotations

import os
import threading
import weakref

from kstore.engine.compact.last_offsets import KeyFile, KeyLookup, MapBuilder, Marks, OffsetMap
from kstore.errors import CorruptFileError, LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout

if TYPE_CHECKING:
    from kstore.engine.record.batch import Record, RecordBatch
    from kstore.engine.segment.segment import Segment

ABSENT = -1  # no record of the segment has the key
UNKNOWN = -2  # known only after reading all records
SLOT_BYTES = 24  # of a map, for each key
STEP = 1 << 20  # bytes of a log between two looks at signals
_MOST_MEMORY = 128 << 20  # of all maps of the process
_LEAST_MEMORY = 4 << 20  # of one


class Everything:
    """Says of each batch that its records count, as those do who read what is not committed."""

    def can_discard(self, batch: RecordBatch) -> bool:
        """False."""
        return False


# Those that have a map. No WeakSet: threads change it while another one goes through it.
_mapped: set[weakref.ref[KeyIndex]] = set()
_guard = threading.Lock()  # for one map at a time that takes of the memory; it is never waited for


def marks_of(segment: Segment) -> Marks:
    """What tells the .log of a segment, as it is now, from all others. LogChangedError, OSError."""
    found = os.fstat(segment.file().fileno())
    return Marks(segment.base_offset, found.st_size, found.st_ino, found.st_ctime_ns)


def key_file_of(segment: Segment) -> KeyFile | None:
    """The .keys file of a sealed segment; None if there is none that was made for this .log as it is."""
    try:
        file = KeyFile(segment.path_of(layout.KEYS))
        fits = file.marks == marks_of(segment) and file.marks.size == segment.size and not segment.origin
    except (OSError, CorruptFileError, LogChangedError):
        return None
    return file if fits else None


class KeyIndex(KeyLookup):
    """Of one segment. The first lookup that finds no .keys file has to read the segment; the second one makes
    a map in memory, if there is room among the maps of all segments. Threads may share it: while one makes
    the map, others read.
    """

    def __init__(self) -> None:
        self.file = self.map = None
        self.covered = 0
        self.is_growing = False
        self.gets_none = False  # a .keys file was to be made, and could not be
        self._is_doubtful = False  # the file could not answer for a key
        self._was_asked = self._is_unfit = False
        self._reserved = 0  # bytes that the map may take
        self._busy = threading.Lock()

    def use(self, file: KeyFile) -> None:
        """From here on this file tells."""
        self.file = file
        self._is_doubtful = False
        self._drop_map()

    def _drop_map(self) -> None:
        self.map = None
        _mapped.discard(weakref.ref(self))

    def has_file(self, segment: Segment) -> bool:
        """Whether a .keys file answers for a sealed segment, as far as it was read."""
        if self.file is None and not self._is_doubtful:
            self.file = key_file_of(segment)
        return self.file is not None

    def find(self, segment: Segment, key: bytes, is_sealed: bool) -> Record | int:
        """The last record with this key; or the offset of that, or of a record whose key has an equal hash:
        compare its key. ABSENT or UNKNOWN. CorruptRecordError, OSError."""
        file = self.file
        if file is not None:
            found = file.find(segment, key)
            if found != UNKNOWN:
                return found
            self.file = None
            self._is_doubtful = True
        if not self._busy.acquire(False):
            return UNKNOWN
        try:
            keys = self.map
            if keys is None:
                if is_sealed:
                    self.file = file = key_file_of(segment)
                    if file is not None and (found := file.find(segment, key)) != UNKNOWN:
                        return found
                    self._is_doubtful = file is not None
                    self.file = None
                keys = self._mapped(segment)
            size = segment.size
            if keys is None or (self.covered < size and not self._catch_up(segment, keys)):
                return UNKNOWN
            return keys.get(key) if self.covered == size else UNKNOWN  # others may have read further
        finally:
            self._busy.release()

    def _mapped(self, segment: Segment) -> OffsetMap | None:
        """A map, if this is not the first time that one would be of use."""
        if self._was_asked and not self._is_unfit:
            self._begin(segment)
        self._was_asked = True
        return self.map

    def _begin(self, segment: Segment) -> None:
        if not _guard.acquire(blocking=False):
            return
        try:
            others = [index for known in tuple(_mapped) if (index := known()) is not None]
            room = (_MOST_MEMORY - sum(index._reserved for index in others)) // 2
            if room < _LEAST_MEMORY:
                return
            most_keys = max(segment.end_offset - segment.base_offset, 0)
            self._reserved = min(room, 2 * (most_keys + 1) * SLOT_BYTES + _LEAST_MEMORY // 2)
            self.covered = 0
            self.map = OffsetMap(room // SLOT_BYTES, most_keys=most_keys)
            _mapped.add(weakref.ref(self, _mapped.discard))
        finally:
            _guard.release()

    def _catch_up(self, segment: Segment, keys: OffsetMap) -> bool:
        """Takes in what was appended. False if that cannot be: all of it must be read then."""
        builder = MapBuilder(keys, Everything(), segment.base_offset)
        self.is_growing = True
        try:
            builder.open(segment, self.covered)
            while done := builder.run(STEP):
                self.covered += done
        except (CorruptFileError, LogChangedError):  # reading it reports what is wrong
            self._is_unfit = True
        finally:
            self.is_growing = False
        if self._is_unfit or builder.is_full:
            self._is_unfit = True
            self._drop_map()
            return False
        return True


def index_of(segment: Segment) -> KeyIndex:
    """What is known of the keys of a segment. All segments of one file share it, also after it has grown."""
    index: KeyIndex | None = segment.files.key_index
    if index is None:
        index = segment.files.key_index = KeyIndex()
    return index
