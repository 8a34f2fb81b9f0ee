"""kstore cursors: what it prints, and what a reset changes."""

import json
import shutil
from pathlib import Path

import pytest

import kstore
from tests.helpers.files import flip
from tests.helpers.reading import cursor_at_end, read_to_end
from tests.tools.conftest import Feed, Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions; "mailer" reads one of them, "billing" both."""
    for number in range(2):
        with kstore.open(tmp_path / f"orders-{number}", "a") as log:
            for i in range(10):
                log.append(b"v", timestamp=1_700_000_000_000 + i)
            with log.cursor("billing") as jobs:
                read_to_end(jobs).commit(5 + number)
    with cursor_at_end(tmp_path / "orders-0", "mailer") as jobs:
        jobs.commit(3, metadata="two\nlines")
    return tmp_path


def offsets(data: Path, group: str) -> list[int | None]:
    found = [kstore.open(data / f"orders-{number}").cursors().get(group) for number in range(2)]
    return [None if position is None else position.offset for position in found]


def test_the_table(data: Path, run: Run) -> None:
    code, out, err = run("cursors", data)
    assert (code, err) == (0, "")
    assert [line.split()[:6] for line in out.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "POSITION", "END", "LAG"],
        ["billing", "orders", "0", "5", "10", "5"],
        ["billing", "orders", "1", "6", "10", "4"],
        ["mailer", "orders", "0", "3", "10", "7"],
        ["mailer", "orders", "1", "-", "10", "10"],
    ]
    assert "Z  two\\nlines\n" in out
    lines = run("cursors", data, "--group", "mailer", "--json")[1].splitlines()
    assert [(json.loads(line)["position"], json.loads(line)["lag"]) for line in lines] == [(3, 7), (None, 10)]
    lines = run("cursors", data / "orders-0", "--group", "mailer", "--json")[1].splitlines()
    assert len(lines) == 1
    told = json.loads(lines[0])
    assert (told["position"], told["lag"], told["metadata"], told["leader_epoch"]) == (3, 7, "two\nlines", 0)
    assert run("cursors", data, "--topic", "other")[1].count("\n") == 1


def test_a_group_of_no_position_is_named(data: Path, run: Run) -> None:
    code, out, err = run("cursors", data, "--group", "mialer")
    assert (code, out.count("\n"), err) == (1, 1, f"group 'mialer' has no position in {data}\n")


def test_one_that_was_made_anew_is_not_listed(data: Path, run: Run) -> None:
    (data / "orders-0").rename(data / "old")
    kstore.open(data / "orders-0", "a").close()
    assert "mailer" not in run("cursors", data)[1]


@pytest.mark.parametrize(
    ("place", "new"),
    [("earliest", 0), ("latest", 10), ("7", 7), ("2023-11-14T22:13:20.004", 4), ("2100-01-01", 10)],
)
def test_a_reset_and_its_preview(data: Path, run: Run, place: str, new: int) -> None:
    before = (data / "kstore-cursors-billing.positions").read_bytes()
    words = ("cursors", data, "--group", "billing", "--reset-to", place)
    preview = run(*words, "--dry-run")
    assert (data / "kstore-cursors-billing.positions").read_bytes() == before
    assert preview[0] == 0
    assert [line.split() for line in preview[1].splitlines()[1:]] == [
        ["billing", "orders", "0", "5", str(new)],
        ["billing", "orders", "1", "6", str(new)],
    ]
    assert run(*words) == preview
    assert offsets(data, "billing") == [new, new]
    assert offsets(data, "mailer") == [3, None]


def test_partitions_that_a_reset_leaves_out_are_named(data: Path, run: Run) -> None:
    for words in (("--dry-run",), ()):
        code, _, err = run("cursors", data, "--group", "mailer", "--reset-to", "latest", *words)
        assert code == 0
        assert "not moved, because the group has no position there: partitions 1 of orders" in err
        assert "--topic orders" in err
    assert offsets(data, "mailer") == [10, None]


def test_a_group_gets_positions_in_a_whole_topic(data: Path, run: Run) -> None:
    words = ("cursors", data, "--reset-to", "8", "--topic", "orders", "--group")
    assert run(*words, "mailer")[1].splitlines()[2].split() == ["mailer", "orders", "1", "-", "8"]
    assert run(*words, "fresh")[0] == 0
    assert offsets(data, "mailer") == offsets(data, "fresh") == [8, 8]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--reset-to", "1"), 2, "needs --group"),
        (("--dry-run",), 2, "needs --reset-to"),
        (("--group", "a/b"), 2, "group"),
        (("--group", "x", "--reset-to", "1"), 1, "no position"),
        (("--group", "billing", "--reset-to", "99"), 1, "outside the log"),
        (("--group", "billing", "--reset-to", "soon"), 2, "neither earliest"),
        (("--group", "billing", "--reset-to", "-1"), 2, "from 0"),
    ],
)
def test_what_is_refused(data: Path, run: Run, words: tuple[str, ...], code: int, text: str) -> None:
    found, out, err = run("cursors", data, *words)
    assert (found, out) == (code, "")
    assert text in err
    assert offsets(data, "billing") == [5, 6]


def test_a_group_that_reads_is_not_moved(data: Path, run: Run) -> None:
    with kstore.open(data / "orders-1").cursor("billing"):
        code, _, err = run("cursors", data, "--group", "billing", "--reset-to", "latest")
    assert code == 1
    assert "which is this one" in err
    assert offsets(data, "billing") == [5, 6]
    assert run("cursors", data / "nowhere")[0] == 1
    (data / "empty").mkdir()
    assert "neither a log directory" in run("cursors", data / "empty")[2]


def test_what_cannot_be_read_hides_no_other_partition(data: Path, run: Run) -> None:
    shutil.copytree(data / "orders-1", data / "orders-2")
    (data / "orders-2" / f"{0:020d}.log").unlink()
    (data / "orders-2" / f"{0:020d}.log").symlink_to(f"{0:020d}.log")  # an OSError
    with kstore.open(data / "orders-3", "a") as log, log.cursor("billing") as jobs:
        log.append(b"v")
        read_to_end(jobs).commit(1)
    (data / "orders-3" / "kstore.json").write_bytes(b"damage")
    (data / "loop-0").symlink_to("loop-0")
    (data / "nowhere-0").symlink_to("absent")
    code, out, err = run("cursors", data, "--group", "billing", "--json")
    assert (code, [json.loads(line)["partition"] for line in out.splitlines()]) == (1, [0, 1])
    for text in (
        f"{data}/loop-0: a symbolic link to nowhere",
        f"{data}/nowhere-0: a symbolic link to nowhere",
        "Too many levels of symbolic links",
        f"{data}/orders-3/kstore.json",
    ):
        assert err.count(text) == 1


@pytest.mark.parametrize("command", ["cursors", "top --count 1", "cursors --expire 0 --dry-run"])
def test_damaged_positions_hide_no_other_group(data: Path, run: Run, command: str) -> None:
    positions = data / "kstore-cursors-billing.positions"
    flip(positions, 40)
    code, out, err = run(*command.split(), data, "--json")
    shown = [(each.get("group", "mailer"), each["partition"]) for each in map(json.loads, out.splitlines())]
    expected = [("mailer", 0)] if "expire" in command else [("mailer", 0), ("mailer", 1)]
    assert (code, sorted(shown)) == (1, expected)
    assert err.count(str(positions)) == 1
    with pytest.raises(kstore.CorruptRecordError):
        kstore.LogStore(data).cursors()


@pytest.mark.parametrize(
    "words",
    [
        ("cursors",),
        ("cursors", "{}", "--import"),
        ("recover",),
        ("keys",),
        ("compact", "--dry-run"),
        ("retain", "--defaults", "--dry-run"),
        ("erase", "--key", "a", "--dry-run"),
        ("append",),
        ("stat",),
        ("topics",),
        ("records",),
    ],
)
def test_a_link_to_itself(data: Path, run: Run, feed: Feed, words: tuple[str, ...]) -> None:
    feed("")
    (data / "loop").symlink_to("loop")
    code, out, err = run(*(word.format(data) for word in words), data / "loop")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert str(data / "loop") in err
