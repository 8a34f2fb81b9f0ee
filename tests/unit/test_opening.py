"""What kstore.open takes and refuses, and that it makes nothing where it refuses."""

import typing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kstore
from kstore.config import ConfigOptions


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"durability": "groups"}, ValueError, "durability is one of 'none', 'group', 'each'"),
        ({"durability": None}, ValueError, "durability is one of"),
        ({"compression_type": "zst"}, kstore.InvalidConfigError, "zstd"),
        ({"segment_byte": 1}, kstore.InvalidConfigError, "nearest"),
        ({"config": {}}, TypeError, "LogConfig"),
        ({"leader_epoch": 2**31}, ValueError, "leader_epoch"),
        ({"leader_epoch": 1.5}, TypeError, "leader_epoch"),
        ({"leader_epoch": True}, TypeError, "leader_epoch"),
        ({"recovery_point": 1.0}, TypeError, "recovery_point"),
        ({"log_start_offset": -1}, ValueError, "log_start_offset"),
        ({"max_decompressed_bytes": None}, TypeError, "max_decompressed_bytes"),
        ({"producer_id_expiration_ms": 0}, ValueError, "producer_id_expiration_ms"),
        ({"keep_cut": "yes"}, TypeError, "keep_cut"),
        ({"clean": 1}, TypeError, "clean"),
        ({"topic_id": "x"}, TypeError, "topic_id"),
        ({"clock": 5}, TypeError, "clock"),
    ],
)
def test_a_wrong_option_leaves_nothing_behind(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        kstore.open(tmp_path / "t-0", "a", **options)
    assert list(tmp_path.iterdir()) == []


def test_the_typed_options_are_those_of_the_configuration() -> None:
    """mypy checks kstore.open(path, "a", ...) by this class."""
    typed = typing.get_type_hints(ConfigOptions)
    fields = {
        name: kind
        for name, kind in typing.get_type_hints(kstore.LogConfig).items()
        if not name.startswith("_")
    }
    assert typed.keys() == fields.keys()
    for name, either in typed.items():
        kind = typing.Union[tuple(k for k in typing.get_args(either) if k is not type(None))]  # noqa: UP007
        assert either == kind | None  # None: the default again
        if typing.get_origin(kind) is typing.Literal:
            for word in typing.get_args(kind):
                kstore.LogConfig(**{name: word})
            with pytest.raises(kstore.InvalidConfigError) as caught:
                kstore.LogConfig(**{name: "no such word"})
            assert str(caught.value).endswith(", ".join(typing.get_args(kind)))
        else:
            assert fields[name] in (kind, either), name


def test_what_is_no_partition_is_not_read_as_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    (tmp_path / "orders-0").mkdir()
    for mode in ("r", "r+"):
        for name in ("photos", "orders-0"):
            with pytest.raises(kstore.LogNotFoundError, match=r"no partition at .*no \.log file"):
                kstore.open(tmp_path / name, mode)
    assert list((tmp_path / "orders-0").iterdir()) == []
    with kstore.open(tmp_path / "orders-0", "a") as log:
        log.append(b"x")
    assert [record.value for record in kstore.open(tmp_path / "orders-0")] == [b"x"]


def test_a_log_directory_is_not_opened_and_its_partitions_are_named(tmp_path: Path) -> None:
    for n in range(7):
        kstore.open(tmp_path / "data" / f"orders-{n}", "a").close()
    before = sorted(tmp_path.rglob("*"))
    for mode in ("r", "r+", "a"):
        with pytest.raises(
            kstore.LogNotFoundError, match=r"log directory.*: it holds orders-0, .*orders-4 and 2 more"
        ):
            kstore.open(tmp_path / "data", mode)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "sign", ["leader-epoch-checkpoint", "partition.metadata", "00000000000000000000.log"]
)
def test_a_partition_that_was_not_written_yet_is_empty(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / sign).write_text(
        {"l": "0\n0\n", "p": "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n", "0": ""}[sign[0]]
    )
    with kstore.open(path) as log:
        assert (log.log_start_offset, log.log_end_offset, list(log)) == (0, 0, [])
    assert sign != "partition.metadata" or kstore.open(path).topic_id() == UUID(int=5)


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [
        ("../other", 0, ValueError),
        ("..", 0, ValueError),
        ("", 0, ValueError),
        ("a/b", 0, ValueError),
        ("/etc", 0, ValueError),
        ("a\0", 0, ValueError),
        (None, 0, TypeError),
        ("t", -1, ValueError),
        ("t", 1.0, TypeError),
        ("t", True, TypeError),
        ("t", "0/../../other-0", TypeError),
        ("t", 2**31, ValueError),
        ("gone", 0, kstore.LogNotFoundError),
    ],
)
def test_a_store_opens_only_what_lies_in_it(
    tmp_path: Path, topic: Any, partition: Any, error: type[Exception]
) -> None:
    for place in ("other-0", "store/t-0"):
        with kstore.open(tmp_path / place, "a") as log:
            log.append(place.encode())
    store = kstore.LogStore(tmp_path / "store")
    with pytest.raises(error):
        store.open(topic, partition)
    assert [record.value for record in store.open("t")] == [b"store/t-0"]
