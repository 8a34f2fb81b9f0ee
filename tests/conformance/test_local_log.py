"""LocalLogTest: the names of directories and files, spec 1.1 and 1.2."""

import pytest

from kstore.log.files.layout import (
    is_valid_topic,
    parse_directory,
    parse_file,
    parse_offset,
    segment_stem,
)

UUID = "0123456789abcdef" * 2
CUT = "n" + "o" * 212


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("test_topic-0", "test_topic", 0),
        ("foo.bar-testtopic-42", "foo.bar-testtopic", 42),
        ("a-b-c-7", "a-b-c", 7),
        (f"foo.bar-testtopic-42.{UUID}-delete", "foo.bar-testtopic", 42),
        (f"foo.bar-testtopic-42.{UUID}-future", "foo.bar-testtopic", 42),
        (f"foo.bar-testtopic-42.{UUID}-stray", "foo.bar-testtopic", 42),
        ("__consumer_offsets-49", "__consumer_offsets", 49),
        (f"{'t' * 249}-2147483647", "t" * 249, 2147483647),
    ],
)
def test_parse_topic_partition_name(name: str, topic: str, partition: int) -> None:
    """The topic may hold dots and dashes; special directories parse as what they were."""
    assert parse_directory(name) == (topic, partition)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "testtopic0",
        f"testtopic0.{UUID}-delete",
        "testtopic1999a",
        "-0",
        "-1999a",
        f"-1999a.{UUID}-delete",
        "testtopic-",
        f"testtopic-.{UUID}-delete",
        "testtopic-1999a",
        f"testtopic-1999a.{UUID}-delete",
        "non_kafka_dir",
        "non_kafka_dir-delete",
        "lost+found",
        "remote-log-index-cache",
        "foo-2147483648",
        "foo-1_0",
        "foo- 1",
    ],
)
def test_parse_invalid_names(name: str) -> None:
    """No separator, no topic, no partition, a partition that is no 32-bit number."""
    assert parse_directory(name) is None


def test_log_delete_dir_name() -> None:
    """A delete name is cut to 255 characters, and parses."""
    name = f"{CUT}-5.{UUID}-delete"
    assert len(name) == 255
    assert parse_directory(name) == (CUT, 5)


@pytest.mark.parametrize(
    ("topic", "valid"),
    [("a", True), ("a.b_c-D9", True), ("t" * 249, True), ("t" * 250, False), ("", False),
     (".", False), ("..", False), ("...", True), ("a b", False), ("é", False), ("a/b", False)],
)  # fmt: skip
def test_topic_names(topic: str, valid: bool) -> None:
    """Spec 1.1: at most 249 of these characters, neither `.` nor `..`."""
    assert is_valid_topic(topic) is valid


def test_offset_from_file() -> None:
    """20 digits or more, and the number before the first dot."""
    assert segment_stem(0) == "0" * 20
    assert segment_stem(2**63 - 1) == "09223372036854775807"
    for suffix in ("", ".deleted", ".cleaned", ".swap"):
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            name = f"{segment_stem(45)}{kind}{suffix}"
            assert parse_offset(name) == 45
            assert parse_file(name) == (segment_stem(45), 45, kind, suffix)
    assert parse_offset(f"{segment_stem(4711)}.snapshot") == 4711
    assert parse_offset("abc.log") is None
    assert parse_offset("9223372036854775808.log") is None
    assert parse_file("leader-epoch-checkpoint") is None
