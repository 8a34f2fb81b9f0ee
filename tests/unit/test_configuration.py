"""The options that a log was given are kept in its directory, and count at the next opening."""

import errno
import json
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

import kstore
from kstore import LogConfig, LogStore
from kstore.__main__ import main
from kstore.testing import failing

NAME = "kstore.json"
OLD = 1_600_000_000_000


def old_segments(path: Path, **options: object) -> None:
    """Three segments whose records are years old."""
    with kstore.open(path, "a", **options) as log:  # type: ignore[call-overload]
        for _ in range(3):
            log.append(b"v", timestamp=OLD)
            log.roll()


def kept(path: Path) -> dict[str, str]:
    options: dict[str, str] = json.loads((path / NAME).read_bytes()).get("config", {})
    return options


def test_options_count_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    kstore.open(path, "a", segment_bytes=2 << 20, retention_ms=-1).close()
    assert kept(path) == {"retention.ms": "-1", "segment.bytes": "2097152"}
    with kstore.open(path, "a") as log:
        assert (log.config.segment_bytes, log.config.retention_ms) == (2 << 20, -1)
        assert log.config.given_options() == {"segment_bytes": 2 << 20, "retention_ms": -1}
    with kstore.open(path, "r+", config=LogConfig(segment_bytes=3 << 20), compression_type="zstd") as log:
        assert (log.config.segment_bytes, log.config.retention_ms) == (3 << 20, -1)
    with kstore.open(path, "a", segment_bytes=None) as log:
        assert (log.config.segment_bytes, log.config.compression_type) == (1 << 30, "zstd")
    assert kept(path) == {"compression.type": "zstd", "retention.ms": "-1"}
    with kstore.open(path, "a") as log:
        log.configure(retention_ms=None, compression_type=None)
    assert kept(path) == {}
    with kstore.open(path, "a") as log:
        assert log.config == LogConfig()


def test_configure_is_kept_and_undone_if_it_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", retention_ms=5) as log:
        with failing(1, errno.EIO), pytest.raises(OSError, match="Input/output"):
            log.configure(retention_ms=6)
        assert log.config.retention_ms == 5
        assert kept(path) == {"retention.ms": "5"}
        log.configure(retention_ms=7)
        assert kept(path) == {"retention.ms": "7"}
        with pytest.raises(kstore.InvalidConfigError):
            log.configure(retention_mss=None)
        with pytest.raises(kstore.InvalidConfigError):
            log.configure(retention_ms="x")
        assert kept(path) == {"retention.ms": "7"}


def test_a_full_disk_keeps_no_options(tmp_path: Path) -> None:
    """The log opens all the same: something may have to be deleted there."""
    warned = 0
    for nth in range(1, 60):
        with warnings.catch_warnings(record=True) as caught, failing(nth, errno.ENOSPC):
            warnings.simplefilter("always")
            with suppress(OSError), kstore.open(tmp_path / str(nth), "a", retention_ms=5) as log:
                assert log.config.retention_ms == 5
        warned += any("not kept for the next opening" in str(each.message) for each in caught)
    assert warned


def test_by_name_and_as_an_object_alike(tmp_path: Path) -> None:
    """Neither says how long records are kept, unless retention_ms is named."""
    for name, options in (
        ("named", {"segment_bytes": 2 << 20}),
        ("object", {"config": LogConfig(segment_bytes=2 << 20)}),
    ):
        path = tmp_path / f"{name}-0"
        old_segments(path, **options)
        for again in (options, {}):
            with kstore.open(path, "a", **again) as log:  # type: ignore[call-overload]
                with pytest.raises(kstore.InvalidConfigError, match="7 days"):
                    log.retain()
                assert log.log_start_offset == 0
        with kstore.open(path, "a", config=LogConfig(retention_ms=604_800_000)) as log:
            assert sum(decision.delete for decision in log.retain()) == 3
    with LogStore(tmp_path, mode="a", background=False, config=LogConfig(segment_bytes=2 << 20)) as store:
        store.create_topic("s")
        log = store.log("s")  # type: ignore[assignment]
        for _ in range(2):
            log.append(b"v", timestamp=OLD)
            log.roll()
        with pytest.raises(kstore.InvalidConfigError, match="7 days"):
            log.retain()


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t-0"
    old_segments(path)
    one = str(path)
    assert main(["retain", one]) != 0
    assert "is not known" in capsys.readouterr().err
    assert main(["alter", one, "--config", "retention.ms=-1", "--config", "segment.bytes=2000000"]) == 0
    assert main(["describe", one]) == 0
    assert "retention.ms=-1, segment.bytes=2000000\n" in capsys.readouterr().out
    assert main(["describe", one, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["config"]["retention.ms"], told["log_end_offset"]) == ("-1", 3)
    assert main(["retain", one]) == 0
    assert kstore.open(path).log_start_offset == 0
    assert main(["retain", one, "--config", "retention.ms=1", "--dry-run"]) == 0
    assert "delete" in capsys.readouterr().out
    assert main(["alter", one, "--delete-config", "segment.bytes"]) == 0
    assert kept(path) == {"retention.ms": "-1"}
    assert main(["retain", one, "--config", "retention.ms=1"]) == 0  # for this command, and no other
    assert kept(path) == {"retention.ms": "-1"}
    assert kstore.open(path).log_start_offset == 3
    assert main(["alter", one]) != 0
    assert main(["alter", one, "--partitions", "3"]) != 0
    assert main(["alter", str(tmp_path / "missing-0"), "--config", "retention.ms=1"]) != 0


def test_a_store_that_knows_the_topic_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with LogStore(data, mode="a", background=False) as store:
        store.create_topic("t", retention_ms=5)
    path = data / "t-0"
    with kstore.open(path, "a", segment_bytes=2 << 20) as log:
        assert (log.config.retention_ms, log.config.segment_bytes) == (5, 2 << 20)
        with pytest.warns(UserWarning, match=r"alter_topic\(\) keeps them"):
            log.configure(segment_bytes=3 << 20)
    assert not (path / NAME).exists()
    with kstore.open(path, "a") as log:
        assert (log.config.retention_ms, log.config.segment_bytes) == (5, 1 << 30)
    assert main(["alter", str(path), "--config", "retention.ms=1"]) != 0
    assert f"kstore alter {data} t" in capsys.readouterr().err
    kstore.open(data / "unknown-0", "a", retention_ms=9).close()  # which no store has made
    with kstore.open(data / "unknown-0", "a") as log:
        assert log.config.retention_ms == 9


def test_a_damaged_file_is_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    kstore.open(path, "a", retention_ms=-1).close()
    good = (path / NAME).read_bytes()
    for wrong in (
        b"{",
        b"",
        b'{"version": 2, "config": {}}',
        b'{"version": 1, "config": {"x": "1"}}',
        good.replace(b'"-1"', b'"-2"'),
        good.replace(b'"-1"', b'"1"'),
    ):
        (path / NAME).write_bytes(wrong)
        with pytest.raises(kstore.CorruptCheckpointError, match=NAME) as caught:
            kstore.open(path, "a", retention_ms=5)
        assert "move it away" in str(caught.value.__notes__)
        assert main(["retain", str(path), "--defaults"]) != 0
        assert kstore.open(path).log_end_offset == 0
    (path / NAME).write_bytes(good)
    kstore.open(path, "a").close()
