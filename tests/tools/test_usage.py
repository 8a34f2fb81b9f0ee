"""Wrong usage ends with 2, wrong data with 1; each has a line on stderr, and nothing is written."""

import shutil
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import QUESTIONS
from tests.tools.conftest import Feed, Run

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
BIG = "99999999999999999999"


def test_errors_and_exit_codes(tmp_path: Path, partition: Path, run: Run) -> None:
    gone = tmp_path / "gone-0"
    assert run("find", gone, "--earliest") == (1, "", f"kstore: no partition directory at {gone}\n")
    assert run("find", partition, "--offset", "100000")[0] == 1
    assert run("find", partition)[0] == 2
    code, _, err = run("find", partition, "--earliest", "--fromat", "x")
    assert (code, "\nkstore find: error: unrecognized arguments: --fromat x\n" in err) == (2, True)


def test_an_unknown_command_names_what_may_be_meant(tmp_path: Path, run: Run) -> None:
    for word, hint in (
        ("record", "Did you mean records?"),
        ("ls", "Did you mean topics?"),
        ("tail", "Did you mean follow?"),
        ("cat", "Did you mean records?"),
        ("consume", "Did you mean records?"),
        ("produce", "Did you mean append?"),
        ("info", "Did you mean stat?"),
        ("dump-log", "Did you mean dump?"),
        ("Verify", "Did you mean "),
        ("fsck", "Did you mean "),
        ("txns", "Did you mean "),
        ("qqqq", "kstore stat DIR shows a directory."),
        (str(tmp_path), f"kstore stat {tmp_path} shows what is in it"),
    ):
        code, out, err = run(word, "data")
        assert (code, out, hint in err) == (2, "", True)


def test_the_questions_of_the_help_are_answered(tmp_path: Path, run: Run) -> None:
    """The commands that --help names for an operator's questions run as they are, on a broker's directory."""
    golden = Path(__file__).parents[1] / "golden/data/broker/data"
    data = shutil.copytree(golden, tmp_path / "data")
    help_text = run("--help")[1]
    answers = {
        "which topics are in DATA?": "bounded  1 partition  index.interval.bytes=256",
        "why is this segment still here?": "retention.bytes is 6000",
        "which transaction hangs": "no transaction is open",
        "why is a topic not compacted?": "dirty ratio",
    }
    restored = tmp_path / "restored"
    named = {"DATA": f"{data}", "BACKUP": f"{data}", "RESTORED": f"{restored}"}
    named |= {"orders": "bounded", "users": "state_store"}
    lines = QUESTIONS.splitlines()[1:]
    assert all(line in help_text for line in lines)
    for line in lines:
        question, _, commands = line.strip().partition("   ")
        printed = ""
        assert commands.count(";") <= 1
        for command in commands.split(";"):
            words = command
            for name, meant in named.items():
                words = words.replace(name, meant)
            code, out, _ = run(*words.split()[1:])
            assert code in (0, 1), command
            printed += out
        assert next((text for start, text in answers.items() if question.startswith(start)), "") in printed
    assert len(kstore.open(restored / "bounded-0").segments) == 3


WRONG = [
    # numbers that are out of range, or none
    ["records", "--start", BIG], ["records", "--start", "-1"], ["records", "--stop", "x"],
    ["records", "--since", BIG], ["records", "--until", "tomorrow"],
    ["records", "--start", "1_000"], ["records", "--start", "٣"],
    ["records", "--max-decompressed-bytes", "-1"], ["records", "--index-interval-bytes", "99999999999"],
    ["find", "--offset", BIG], ["follow", "--timeout", "nan"], ["follow", "--timeout", "-1"],
    ["follow", "--count", "-1"], ["truncate", "--to", BIG], ["append", "--batch-bytes", "-1"],
    ["records", "--start=--"], ["truncate", "--to=--"],
    # options that would be passed over
    ["follow", "--start", "1", "--from-start"], ["records", "--columns", "offset"], ["records", "--base64"],
    ["records", "--format", "jsonl", "--raw"], ["records", "--format", "jsonl", "--base64", "--redact"],
    ["follow", "--base64"], ["append", "--base64"], ["append", "--format", "jsonl", "--key-separator", ":"],
]  # fmt: skip


def test_wrong_words(odd: Path, run: Run) -> None:
    for words in WRONG:
        code, out, err = run(words[0], odd, *words[1:])
        assert (code, out) == (2, ""), words
        assert err
    assert "'--' is not an offset" in run("records", odd, "--start=--")[2]


@pytest.mark.parametrize("words", CONFIGURED + OF_STORES, ids=" ".join)
def test_a_wrong_configuration_is_wrong_usage(
    partition: Path, words: list[str], run: Run, feed: Feed
) -> None:
    path = partition.parent if words in OF_STORES else partition
    before = sorted(path.rglob("*"))
    for settings in (
        ["foo=1"],
        ["segment.bytes=many"],
        ["retention.ms"],
        ["min.compaction.lag.ms=2", "max.compaction.lag.ms=1"],
    ):
        feed("v\n")
        options = [word for setting in settings for word in ("--config", setting)]
        code, out, err = run(words[0], path, *words[1:], *options)
        assert (code, out, err.startswith("kstore: ")) == (2, "", True)
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("words", [*CONFIGURED, ["keep"]], ids=" ".join)
def test_a_wrong_file_of_a_broker_is_no_wrong_usage(
    partition: Path, words: list[str], run: Run, feed: Feed
) -> None:
    file = partition.parent / "server.properties"
    path = partition.parent if words == ["keep"] else partition
    command = [words[0], path, *words[1:], "--server-properties", file]
    for content in (None, "log.segment.bytes=many\n", "log.retention.ms=0\n"):
        if content is not None:
            file.write_text(content)
        feed("v\n")
        code, out, err = run(*command)
        assert (code, out, str(file) in err) == (1, "", True), err
    file.write_text("log.retention.ms=1\n")
    feed("v\n")
    assert run(*command, "--config", "foo=1")[0] == 2


def test_errors_about_options(partition: Path, run: Run, feed: Feed) -> None:
    feed("a\n")
    err = run("append", partition, "--config", "compression_type=gzip")[2]
    said = "kstore: no such topic configuration: compression_type; here it is called compression.type\n"
    assert err == said
    err = run("retain", partition, "--config", "retention_ms=1")[2]
    assert "here it is called retention.ms" in err
    for place in ([partition], [partition.parent, "t"]):
        assert run("alter", *place, "--delete-config", "foo")[0] == 2
    for more in ([], ["--dry-run"]):
        code, _, err = run("compact", partition, "--config", "cleanup.policy=delete", *more)
        assert (code, "cleanup_policy is delete" in err) == (2, True)
    option = "log.cleaner.io.max.bytes.per.second"
    code, _, err = run("compact", partition, "--config", f"{option}=1")
    assert (code, f"{option} in Kafka) is an option of a whole store or broker" in err) == (2, True)
    assert "--server-properties take it" in err
    code, _, err = run("retain", partition, "--server-properties", "/dev/zero")  # which has no end
    assert (code, "/dev/zero is no properties file" in err) == (2, True)


def test_a_damaged_configuration_that_is_kept_is_damage(partition: Path, run: Run) -> None:
    kstore.open(partition, "a", retention_ms=-1).close()
    file = partition / "kstore.json"
    file.write_text(file.read_text().replace("retention.ms", "retention.xx"))
    for words in (["retain"], ["compact", "--config", "cleanup.policy=compact"]):
        code, _, err = run(words[0], partition, *words[1:])
        assert (code, "kstore.json" in err) == (1, True)


def test_no_command_takes_a_log_directory_for_a_partition(odd: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "other-0").mkdir()
    (tmp_path / "other-0" / "readme").write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    for words in (
        ["follow"],
        ["find", "--latest"],
        ["recover"],
        ["truncate", "--to", "0"],
        ["retain", "--defaults"],
        ["compact"],
        ["describe"],
    ):
        code, out, err = run(words[0], tmp_path, *words[1:])
        assert (code, out) == (1, "")
        assert f"; give one of the partitions, such as {tmp_path}/odd-0\n" in err
        assert (f"kstore describe {tmp_path} TOPIC" in err) == (words == ["describe"])
        assert "is a log directory, not a partition: it holds odd-0, other-0" in err
        assert run(words[0], tmp_path / "other-0", *words[1:])[0] == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [("delete", "t"), ("erase", "t", "--key", "k")])
def test_a_dry_run_beside_a_writer_of_the_store_says_so(
    tmp_path: Path, words: tuple[str, ...], run: Run
) -> None:
    command = (words[0], tmp_path, *words[1:], "--dry-run")
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.append("t", b"v", key=b"k")
        assert "open for writing now" in run(*command)[2]
    assert "open for writing now" not in run(*command)[2]
