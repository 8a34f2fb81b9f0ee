"""The .keys files in what a power cut left: which of them a file system would let pass for their .log.

Such a file says for which inode and ctime of the .log it was made. Where a test writes files out, these are
others, so no .keys file would be believed. On a real file system they are the same, as long as no later
change of the .log has reached the disk; bytes of it may be missing. So the harshest case is: whatever has the
right size, and holds nothing but bytes that were there when the .keys file was made, or zeros where they
never reached the disk, is taken for the same state."""

import struct
from hashlib import sha256
from pathlib import Path

from tests.helpers.forge import crc32c

_HEADER, _BLOCK = 64, 512
_made: dict[bytes, bytes] = {}  # by digest of a .keys file: what its .log held then


def remember(directory: Path) -> None:
    """Notes for which content of their .log the .keys files in a partition were made."""
    for path in directory.glob("*.keys"):
        log = path.with_suffix(".log")
        if log.exists():
            _made.setdefault(sha256(path.read_bytes()).digest(), log.read_bytes())


def settle(root: Path) -> int:
    """Lets the .keys files below `root` pass for their .log, where a file system might; how many do."""
    count = 0
    for path in root.rglob("*.keys"):
        content, log = path.read_bytes(), path.with_suffix(".log")
        then = _made.get(sha256(content).digest())
        if then is None or not log.exists():
            continue
        now = log.read_bytes()
        if len(now) == len(then) and all(a in (b, 0) for a, b in zip(now, then, strict=True)):
            stat = log.stat()
            path.write_bytes(_marked(content, stat.st_ino, stat.st_ctime_ns))
            _made[sha256(path.read_bytes()).digest()] = then
            count += 1
    return count


def _marked(content: bytes, inode: int, ctime_ns: int) -> bytes:
    """The same file for another inode and time, with its checksums."""
    header = content[:40] + struct.pack("<Qq", inode, ctime_ns) + content[56:60]
    made = header + struct.pack("<I", crc32c(header))
    for number in range((len(content) - _HEADER) // _BLOCK):
        body = content[_HEADER + number * _BLOCK + 4 : _HEADER + (number + 1) * _BLOCK]
        sound = crc32c(header + struct.pack("<Q", number) + body)
        made += struct.pack("<I", sound) + body
    return made
