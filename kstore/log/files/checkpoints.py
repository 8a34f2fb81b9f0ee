"""The small text files of a log directory and of a partition (spec 1.4 to 1.6)."""

from __future__ import annotations

from kstore.engine.io.directory import write_whole
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptCheckpointError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.layout import TopicPartition
from kstore.properties import parse_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar
    from uuid import UUID

    from kstore.typed import StrPath

    _Entry = TypeVar("_Entry")

_SHOWN = 200  # characters of a damaged line


def _read(
    path: StrPath,
    content: bytes,
    parse: Callable[[list[str]], _Entry],
    form: str,
    salvage: list[_Entry] | None = None,
) -> list[_Entry]:
    """Parse a checkpoint file: a version line, the number of entries, and a line for each. An empty file has
    no entries.

    If the file is damaged, the entries of sound lines are added to `salvage` before the error is raised.
    """

    damage: tuple[int, str, str] | None = None  # the first damage: line, expected, found

    # Not splitlines(): it accepts more line ends than Java does.
    lines = content.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if lines[0].strip() != "0":
        damage = 1, "version 0", lines[0]
    if len(lines) == 1 and damage is None:
        return []
    count = -1
    try:
        count = parse_integer(lines[1].strip()) if len(lines) > 1 else 0
    except ValueError:
        damage = damage or (2, "the number of entries", lines[1])
    entries = []
    for at, text in enumerate(lines[2:], 3):
        try:
            entries.append(parse(text.split()))
        except (ValueError, TypeError):
            damage = damage or (at, form, text)
    if damage is None and len(entries) != count:
        damage = 2, f"{count} entries", str(len(entries))
    if damage is not None:
        if salvage is not None:
            salvage += entries
        line, expected, found = damage
        raise CorruptCheckpointError(
            "checkpoint file", file=str(path), position=line, expected=expected, found=found[:_SHOWN]
        )
    return entries


def _parse_number(word: str, least: int, most: int) -> int:
    number = parse_integer(word)
    if not least <= number <= most:
        raise ValueError(word)
    return number


def _parse_offset_entry(words: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = words
    if offset.startswith("-"):  # no program writes a negative offset
        raise ValueError(offset)
    return TopicPartition(topic, _parse_number(partition, -(2**31), 2**31 - 1)), _parse_number(
        offset, 0, 2**63 - 1
    )


# Parsed files by path, each with its content. Every opening of a partition reads the files of its log
# directory, which have a line for each partition. Comparing the content is much faster than parsing it again.
_parsed: dict[str, tuple[bytes, dict[TopicPartition, int], CorruptCheckpointError | None]] = {}
_MOST_PARSED = 8


def _remember(
    path: str, content: bytes, offsets: dict[TopicPartition, int], error: CorruptCheckpointError | None = None
) -> None:
    _parsed.pop(path, None)
    _parsed[path] = content, offsets, error
    for oldest in list(_parsed)[:-_MOST_PARSED]:
        _parsed.pop(oldest, None)


def _known_offsets(path: str) -> tuple[Mapping[TopicPartition, int], CorruptCheckpointError | None]:
    """The result of look_into for an existing file. OSError."""
    content = read_whole(path)
    known = _parsed.get(path)
    if known is None or known[0] != content:
        found: list[tuple[TopicPartition, int]] = []
        error = None
        try:
            found = _read(path, content, _parse_offset_entry, "TOPIC PARTITION OFFSET", found)
        except CorruptCheckpointError as e:
            error = e.with_traceback(None)  # else it would keep the frames alive
        known = content, dict(found), error
        _remember(path, *known)
    return known[1:]


def look_into(path: StrPath) -> tuple[Mapping[TopicPartition, int], CorruptCheckpointError | None]:
    """Read one of the four checkpoint files of a log directory: the offsets of its sound lines, and an error
    if it is damaged. A missing file has no lines. OSError."""
    try:
        return _known_offsets(str(path))
    except FileNotFoundError:
        return {}, None


def read_epochs(path: StrPath) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs of a leader-epoch-checkpoint, in the order of the file."""
    content = read_whole(str(path))

    def parse(words: list[str]) -> tuple[int, int]:
        epoch, start_offset = words
        return _parse_number(epoch, -(2**31), 2**31 - 1), _parse_number(start_offset, -(2**63), 2**63 - 1)

    return _read(path, content, parse, "EPOCH START_OFFSET")


def _content(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def write_offsets(path: StrPath, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace one of the four checkpoint files of a log directory, durably. OSError."""
    content = _content([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])
    write_whole(str(path), content)
    _remember(str(path), content, dict(offsets))


def write_epochs(path: StrPath, entries: Iterable[tuple[int, int]]) -> None:
    """Replace a leader-epoch-checkpoint, durably. OSError."""
    write_whole(str(path), encode_epochs(entries))


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The content of a leader-epoch-checkpoint."""
    return _content([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def write_topic_id(path: StrPath, topic_id: UUID) -> None:
    """Write a partition.metadata file, durably (spec 1.5). OSError."""
    write_whole(str(path), f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode())


def read_topic_id(path: StrPath) -> UUID:
    """The topic id in a partition.metadata file (spec 1.5)."""

    def fail(expected: str, found: object) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            "partition.metadata", file=str(path), position=1, expected=expected, found=found
        )

    import base64
    from uuid import UUID  # imported here: few programs read topic ids

    text = read_whole(str(path)).decode("utf-8", "replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        version = parse_integer(fields["version"].strip())
        topic_id = UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"].strip() + "=="))
    except (KeyError, ValueError):
        raise fail("version and topic_id", text[:200]) from None
    if version < 0:
        raise fail("version 0", version)
    if topic_id.int == 0:
        raise fail("a topic id that is not zero", topic_id)
    return topic_id


def topic_id_text(topic_id: UUID) -> str:
    """A topic id as Kafka prints it: 22 characters of URL-safe base64."""
    import base64

    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
