"""kstore keys and get, and what stat reports of the .keys files."""

import json
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.files import flip
from tests.tools.conftest import Run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for number in range(3):
            log.extend([b"%d" % number] * 10, keys=[b"key-%d" % (number + i) for i in range(10)])
            log.roll()
    return tmp_path / "t-0"


def stat(path: Path, run: Run) -> list[tuple[Any, Any]]:
    code, out, _ = run("stat", path, "--json")
    assert code == 0
    return [(each["keys"], each["key_file"]) for each in json.loads(out)["segments"]]


def test_files_are_made_and_used(path: Path, run: Run) -> None:
    assert stat(path, run) == [(None, "none")] * 4
    code, out, _ = run("keys", path)
    assert (code, out.splitlines()[1].split()) == (0, ["10", "10", "keys", "576", "bytes,", "made"])
    rows = [json.loads(line) for line in run("keys", path, "--json")[1].splitlines()]
    assert [(row["base_offset"], row["keys"], row["made"]) for row in rows] == [
        (i, 10, False) for i in (0, 10, 20)
    ]
    assert stat(path, run) == [(10, "fits")] * 3 + [(None, "none")]
    assert run("get", path, "--key", "key-1")[1].startswith("10\t")
    lines = run("stat", path)[1].splitlines()
    assert [line.split()[-1] for line in lines[2:6]] == ["10", "10", "10", "-"]
    assert run("get", path, "--key", "nobody")[0] == 1


def test_files_that_do_not_fit(path: Path, run: Run) -> None:
    assert run("keys", path)[0] == 0
    first, second, third = sorted(path.glob("*.keys"))
    first.with_suffix(".log").chmod(0o600)
    flip(second, 100)
    third.unlink()
    third.mkdir()
    assert stat(path, run) == [(None, "stale"), (None, "damaged"), (None, "damaged"), (None, "none")]
    for number in range(12):
        assert run("get", path, "--key", f"key-{number}")[0] == 0
    third.rmdir()
    assert run("keys", path)[0] == 0
    assert stat(path, run) == [(10, "fits")] * 3 + [(None, "none")]


def test_none_can_be_made(path: Path, tmp_path: Path, run: Run) -> None:
    flip(min(path.glob("*.log")), 70)
    code, out, _ = run("keys", path)
    assert (code, "no file: " in out.splitlines()[0]) == (1, True)
    kstore.open(tmp_path / "u-0", "a").close()
    assert run("keys", tmp_path / "u-0")[:2] == (0, "nothing to do: there is no sealed segment\n")
    assert run("keys", tmp_path / "none-0")[0] == 1


def test_get(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"one", key=b"ann", timestamp=0)
        log.append(None, key=b"ann", timestamp=0)
        log.append(b"of hyphens", b"--")
    assert run("get", path, "--key", "ann") == (0, "1\t1970-01-01T00:00:00.000Z\tann\t<null>\n", "")
    out = run("get", path, "--key-base64", "YW5u", "--history", "--json")[1]
    assert [line[:12] for line in out.splitlines()] == ['{"offset":0,', '{"offset":1,']
    assert run("get", path, "--key", "bob")[:2] == (1, "")
    assert "of hyphens" in run("get", path, "--key=--")[1]  # argparse makes an empty list of it
    code, _, err = run("get", path, "--key-base64", "?")
    assert (code, "--key-base64" in err) == (2, True)
    for keys in ([], ["--key", "ann", "--key", "bob"], ["--key", "ann", "--key-base64", "YW5u"]):
        code, out, err = run("get", path, *keys)
        assert (code, out, "one key" in err) == (2, "", True)
