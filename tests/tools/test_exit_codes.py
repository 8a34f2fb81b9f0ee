"""What is damaged, unknown or doubtful gives an exit code and a line on stderr."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

import kstore
from kstore.__main__ import main

T = 1_700_000_000_000


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for i in range(3):
            log.append(b"value", timestamp=T + i)
    return path


@pytest.fixture
def damaged(partition: Path) -> Path:
    log = partition / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)
    return partition


# ---- damage is an exit code -----------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_stat_ends_with_1_if_a_checksum_is_wrong(
    damaged: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "stat", str(damaged), "--verify", *words)
    assert (code, err) == (1, f"kstore: {damaged}: 1 thing looks wrong\n")
    assert "checksum" in out
    assert run(capsys, "stat", str(damaged), *words)[::2] == (0, "")  # it does not look


def test_stat_of_a_log_directory_ends_with_1_if_one_partition_is_damaged(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kstore.open(damaged.parent / "sound-0", "a") as log:
        log.append(b"v", timestamp=T)
    code, _, err = run(capsys, "stat", str(damaged.parent), "--verify")
    assert (code, err) == (1, f"kstore: {damaged}: 1 thing looks wrong\n")


def test_files_that_wait_for_their_deletion_are_nothing_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"internal_segment_bytes": 200, "retention_bytes": 200, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", config=kstore.LogConfig(**sizes)) as log:
        for i in range(5):
            log.append(b"x" * 50, timestamp=T + i)
        log.retain()
        code, out, err = run(capsys, "stat", str(tmp_path / "t-0"), "--json", "--verify")
        stat = json.loads(out)
        assert (code, err, stat["wrong"]) == (0, "", [])
        assert stat["leftovers"]
        assert "files wait for their deletion" in run(capsys, "stat", str(tmp_path / "t-0"))[1]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_dump_ends_with_1_if_a_checksum_is_wrong(
    damaged: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    log = f"{damaged}/{0:020d}.log"
    code, out, err = run(capsys, "dump", log, *words)
    assert (code, err) == (1, f"kstore: {log}: batches with a wrong checksum: 1\n")
    assert out


def test_dump_ends_with_1_if_an_index_does_not_match(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = partition / f"{0:020d}.timeindex"
    index.write_bytes((T + 7).to_bytes(8, "big") + (2).to_bytes(4, "big"))
    code, _, err = run(capsys, "dump", str(index))
    assert code == 1
    assert "timestamp mismatch" in err


# ---- wrong usage --------------------------------------------------------------------------------------

CONFIGURED = [
    ["append"],
    ["compact"],
    ["compact", "--dry-run"],
    ["erase", "--key", "k"],
    ["erase", "--key", "k", "--dry-run"],
    ["keys"],
    ["recover"],
    ["recover", "--dry-run"],
    ["retain"],
    ["retain", "--dry-run"],
    ["truncate", "--to", "0"],
    ["truncate", "--to", "0", "--dry-run"],
]
OF_STORES = [["create", "t"], ["alter", "t"], ["keep"]]


@pytest.mark.parametrize("words", CONFIGURED + OF_STORES, ids=" ".join)
@pytest.mark.parametrize(
    "settings",
    [
        ["foo=1"],
        ["segment.bytes=many"],
        ["retention.ms"],
        ["min.compaction.lag.ms=2", "max.compaction.lag.ms=1"],
    ],
)
def test_a_wrong_configuration_is_wrong_usage(
    partition: Path, words: list[str], settings: list[str], feed: "Feed", capsys: pytest.CaptureFixture[str]
) -> None:
    feed.put(b"v\n")
    path = partition.parent if words in OF_STORES else partition
    before = sorted(path.rglob("*"))
    options = [word for setting in settings for word in ("--config", setting)]
    code, out, err = run(capsys, words[0], str(path), *words[1:], *options)
    assert (code, out) == (2, "")
    assert err.startswith("kstore: ")
    assert sorted(path.rglob("*")) == before


def test_an_unknown_option_to_delete_is_wrong_usage(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ([str(partition)], [str(partition.parent), "t"]):
        assert run(capsys, "alter", *place, "--delete-config", "foo")[0] == 2


def test_a_policy_that_does_not_compact_is_wrong_usage(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--dry-run"]):
        code, _, err = run(capsys, "compact", str(partition), "--config", "cleanup.policy=delete", *more)
        assert (code, "cleanup_policy is delete" in err) == (2, True)


@pytest.mark.parametrize("words", [*CONFIGURED, ["keep"]], ids=" ".join)
def test_a_wrong_file_of_a_broker_is_not_of_the_command_line(
    partition: Path, words: list[str], feed: "Feed", capsys: pytest.CaptureFixture[str]
) -> None:
    file = partition.parent / "server.properties"
    path = partition.parent if words == ["keep"] else partition
    command = [words[0], str(path), *words[1:], "--server-properties", str(file)]
    for content in (None, "log.segment.bytes=many\n", "log.retention.ms=0\n"):
        if content is not None:
            file.write_text(content)
        feed.put(b"v\n")
        code, out, err = run(capsys, *command)
        assert (code, out, str(file) in err) == (1, "", True), err
    file.write_text("log.retention.ms=1\n")
    feed.put(b"v\n")
    assert run(capsys, *command, "--config", "foo=1")[0] == 2


def test_a_damaged_configuration_that_is_kept_is_damage(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kstore.open(partition, "a", retention_ms=-1).close()
    file = partition / "kstore-config.json"
    file.write_text(file.read_text().replace("retention.ms", "retention.xx"))
    for words in (["retain"], ["compact", "--config", "cleanup.policy=compact"]):
        code, _, err = run(capsys, words[0], str(partition), *words[1:])
        assert (code, "kstore-config.json" in err) == (1, True)


def test_an_option_of_a_broker_is_told_as_such(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = "log.cleaner.io.max.bytes.per.second"
    code, _, err = run(capsys, "compact", str(partition), "--config", f"{option}=1")
    assert code == 2
    assert f"{option} in Kafka) is an option of a whole store or broker" in err
    assert "--server-properties take it" in err


# ---- the file of --output ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "csv", "arrow", "parquet"])
def test_output_is_left_alone_after_an_error(
    damaged: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if form in ("arrow", "parquet"):
        pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    out.write_bytes(b"of yesterday")
    assert run(capsys, "records", str(damaged), "--format", form, "--output", str(out))[0] == 1
    assert out.read_bytes() == b"of yesterday"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "t-0"]
    out.unlink()
    assert run(capsys, "records", str(damaged), "--format", form, "--output", str(out))[0] == 1
    assert not out.exists()


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_output_is_refused_inside_a_partition_directory(
    partition: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = partition / f"{0:020d}.log"
    before = log.read_bytes()
    (partition.parent / "link").symlink_to(log)
    (partition.parent / "other").symlink_to(partition)
    for target in (log, partition / "new", partition.parent / "link", partition.parent / "other" / "new"):
        code, out, err = run(capsys, "records", str(partition), "--format", form, "--output", str(target))
        assert (code, out) == (2, "")
        assert "inside a partition directory" in err
    assert log.read_bytes() == before
    assert not (partition / "new").exists()


def test_output_is_refused_over_a_file_of_a_log_directory(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("meta.properties", "recovery-point-offset-checkpoint"):
        code, _, err = run(capsys, "records", str(partition), "--output", str(partition.parent / name))
        assert (code, "a log directory needs" in err) == (2, True)
        assert not (partition.parent / name).exists()


def test_output_that_cannot_be_a_file(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = partition.parent / "gone"
    assert "no directory" in run(capsys, "records", str(partition), "--output", str(gone / "f"))[2]
    assert "name a file" in run(capsys, "records", str(partition), "--output", str(partition.parent))[2]


def test_output_keeps_links_and_permissions(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, link, new = (partition.parent / name for name in ("old", "link", "new"))
    old.write_text("x")
    old.chmod(0o640)
    link.symlink_to(old)
    assert run(capsys, "records", str(partition), "--output", str(link))[0] == 0
    assert link.is_symlink()
    assert old.read_text().count("value") == 3
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert run(capsys, "records", str(partition), "--output", str(new))[0] == 0
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~umask


def test_output_may_be_a_device(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "records", str(partition), "--output", os.devnull) == (0, "", "")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_output_may_be_a_pipe(partition: Path) -> None:
    command = [sys.executable, "-m", "kstore", "records", str(partition), "--output", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.count(b"value") == 3


# ---- times, separators, names ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["records", "--since"],
        ["records", "--until"],
        ["records", "--format", "jsonl", "--since"],
        ["records", "--format", "arrow", "--since"],
        ["find", "--timestamp"],
    ],
)
def test_seconds_are_warned_of(
    partition: Path, words: list[str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    if "arrow" in words:
        pytest.importorskip("pyarrow")
    main([words[0], str(partition), *words[1:], str(T // 1000)])
    assert capsysbinary.readouterr().err.count(b"if seconds were meant, multiply by 1000: 1700000000000") == 1
    main([words[0], str(partition), *words[1:], str(T)])
    assert b"seconds" not in capsysbinary.readouterr().err


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator["Feed"]:
    with (tmp_path / "input").open("w+b") as file:
        yield Feed(monkeypatch, file)


class Feed:
    """Standard input of the next command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: BinaryIO) -> None:
        self.monkeypatch, self.file = monkeypatch, file

    def put(self, data: bytes) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.file.write(data)
        self.file.flush()
        os.lseek(self.file.fileno(), 0, os.SEEK_SET)
        self.monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": self.file}))


@pytest.mark.parametrize(
    ("separator", "line", "key", "value"),
    [
        (r"\t", b"k\tv\\tw", b"k", b"v\\tw"),
        (r"\\", b"k\\v", b"k", b"v"),
        (r"\x1f", b"k\x1fv", b"k", b"v"),
        (r"\\t", b"k\\tv\tw", b"k", b"v\tw"),
        (r"a\tb", b"ka\tbv", b"k", b"v"),
        (":", b"k:v:w", b"k", b"v:w"),
    ],
)
def test_escapes_in_the_separator_of_keys(
    tmp_path: Path, separator: str, line: bytes, key: bytes, value: bytes, feed: Feed
) -> None:
    feed.put(line)
    assert main(["append", str(tmp_path / "t-0"), "--key-separator", separator]) == 0
    assert [(r.key, r.value) for r in kstore.open(tmp_path / "t-0")] == [(key, value)]


@pytest.mark.parametrize(
    ("separator", "words"),
    [
        (r"\q", r"\q is not one of \t, \\ and \xNN"),
        ("\\", r"\ is not one of"),
        (r"\x1", r"\x is not one of"),
        ("", "is empty"),
        (r"\x0a", "the end of a line"),
    ],
)
def test_separators_that_are_none(
    tmp_path: Path, separator: str, words: str, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.put(b"v")
    code, _, err = run(capsys, "append", str(tmp_path / "t-0"), "--key-separator", separator)
    assert (code, words in err) == (2, True), err
    assert not (tmp_path / "t-0").exists()


def test_the_end_of_a_line_is_not_in_the_value(tmp_path: Path, feed: Feed) -> None:
    feed.put(b"a\r\nb\nc\r\r\n\r\nd\r")
    assert main(["append", str(tmp_path / "t-0")]) == 0
    assert [r.value for r in kstore.open(tmp_path / "t-0")] == [b"a", b"b", b"c\r", b"", b"d"]


@pytest.mark.parametrize("name", ["orders", "x-01", "orders-0-delete"])
def test_names_that_a_broker_passes_over_are_told(
    partition: Path, name: str, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.put(b"v\n")
    code, _, err = run(capsys, "append", str(partition.parent / name))
    assert (code, f"would not see {name!r} in it as a partition" in err) == (0, True)


def test_other_names_are_not_told(partition: Path, feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    (partition.parent / "elsewhere").mkdir()
    for path in (partition, partition.parent / "new-1", partition.parent / "elsewhere" / "orders"):
        feed.put(b"v\n")
        code, _, err = run(capsys, "append", str(path))
        assert (code, "would not see" in err) == (0, False)
