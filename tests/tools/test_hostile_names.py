"""Names and contents of files, as an enemy chooses them: no command and no error passes a control character
on, or a line that looks like one of its own."""

import json
import os
import pickle
import re
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kstore
from kstore.__main__ import COMMANDS
from kstore.errors import KstoreError, visible
from kstore.tools.commands.stores import keep
from tests.helpers.effort import some
from tests.helpers.reading import cursor_at_end
from tests.tools.conftest import Feed, Run

E = "\x1b[31m\nFORGED \u202e\x85\u2028\udcff"  # the last as os.fsdecode gives bytes that are not UTF-8
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]|^FORGED", re.MULTILINE)
ZERO = f"{0:020d}"
FIVE = f"{5:020d}"


def topics(d: Path, **change: object) -> None:
    table = {"version": 1, "number": 1, "topics": {}, "change": None} | change
    (d / "kstore.json").write_text(json.dumps(table))


def put(path: Path, text: str = "x") -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


HOSTILE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda d: None,
    "name of an option": lambda d: put(d / "t-0/kstore.json", json.dumps({"version": 1, "config": {E: "x"}})),
    "value of an option": lambda d: put(
        d / "t-0/kstore.json", json.dumps({"version": 1, "config": {"retention.ms": E}})
    ),
    "no json": lambda d: put(d / "t-0/kstore.json", E),
    "option of a topic": lambda d: topics(d, topics={"t": {"partitions": 1, "config": {E: "x"}}}),
    "name of a topic": lambda d: topics(d, topics={E: {"partitions": 1, "config": {}}}),
    "change of topics": lambda d: topics(d, change=E),
    "topic id": lambda d: put(d / "t-0/partition.metadata", f"version: 0\ntopic_id: {E}"),
    "version of metadata": lambda d: put(d / "t-0/partition.metadata", f"version: {E}\ntopic_id: A"),
    "leader epochs": lambda d: put(d / "t-0/leader-epoch-checkpoint", f"0\n1\n{E} 5\n"),
    "recovery point": lambda d: put(d / "recovery-point-offset-checkpoint", f"0\n1\nt 0 {E}\n"),
    "topic of a recovery point": lambda d: put(d / "recovery-point-offset-checkpoint", f"0\n1\n{E} 0 5\n"),
    "log start": lambda d: put(d / "log-start-offset-checkpoint", f"{E}\n"),
    "meta.properties": lambda d: put(d / "meta.properties", f"version={E}\nnode.id={E}\ncluster.id={E}"),
    "name of positions": lambda d: shutil.copy(d / "kstore-cursors-g.positions", d / f"kstore-cursors-{E}.positions"),
    "positions": lambda d: put(d / f"kstore-cursors-{E}.positions", "x" * 100),
    "state of a share group": lambda d: (
        (d / "t-0/kstore-shares").mkdir(), put(d / f"t-0/kstore-shares/{E}.state", "x" * 100)
    ),
    "id of cursors": lambda d: put(d / "t-0/kstore.json", E * 5 + "\n"),
    "truncations": lambda d: put(d / "t-0/kstore.json", json.dumps({"version": E})),
    "directory": lambda d: (d / f"{E}-0").mkdir(),
    "directory with a log": lambda d: shutil.copytree(d / "t-0", d / f"{E}-0"),
    "file": lambda d: put(d / E),
    "file in a partition": lambda d: put(d / "t-0" / E),
    "log": lambda d: put(d / f"t-0/{E}.log"),
    "log with a number": lambda d: put(d / f"t-0/{FIVE}{E}.log"),
    "log with an ending": lambda d: put(d / f"t-0/{FIVE}.log{E}"),
    "snapshot": lambda d: put(d / f"t-0/{FIVE}{E}.snapshot"),
    "cut": lambda d: put(d / f"t-0/{FIVE}{E}.cut"),
    "index": lambda d: put(d / f"t-0/{E}.index"),
    "deleted": lambda d: (d / f"{E}-0.0123456789abcdef0123456789abcdef-delete").mkdir(),
    "adopted": lambda d: put(d / f"t-0/kstore-adopting-{E}.log.moved"),
    "swap": lambda d: put(d / f"t-0/{E}.log.swap"),
    "link of a partition": lambda d: (d / "q-0").symlink_to(f"/nope{E}"),
    "link of a log": lambda d: (d / f"t-0/{FIVE}.log").symlink_to(f"/nope{E}"),
}  # fmt: skip
WORDS: list[list[str]] = [
    ["records", "{p}"], ["stat", "{p}"], ["stat", "{p}", "--json"], ["stat", "{d}"], ["topics", "{d}"],
    ["describe", "{d}", "t"], ["describe", "{p}"], ["cursors", "{d}"], ["cursors", "{p}"], ["shares", "{d}"], ["top", "{d}", "--count", "1"],
    ["recover", "{p}", "--dry-run"], ["sink", "{d}"], ["retain", "{p}", "--dry-run"],
    ["compact", "{p}", "--dry-run"], ["alter", "{d}", "t", "--config", "retention.ms=7"], ["keys", "{p}"],
    ["erase", "{p}", "--key", "q", "--dry-run"], ["truncate", "{p}", "--to", "1", "--dry-run"],
    ["create", "{d}", "new"], ["delete", "{d}", "t", "--dry-run"], ["find", "{p}", "--offset", "0"],
    ["get", "{p}", "--key", "x"], ["follow", "{p}", "--from-start", "--timeout", "0"],
    ["dump", "{p}/" + ZERO + ".log", "{p}/" + E + ".index"], ["append", "{p}"], ["keep", "{d}"],
    *(["dump", "{p}/" + name, *sanity]
      for name in (ZERO + ".index", ZERO + ".timeindex", ZERO + ".txnindex", FIVE + E + ".snapshot")
      for sanity in ((), ("--index-sanity-check",), ("--verify-index-only",))),
    ["cursors", "{d}", "--group", "g", "--reset-to", "latest", "--dry-run"], ["records", "{p}", E],
    ["transactions", "{d}"], ["transactions", "{p}", "--producer-id", "1", "--abort", "--dry-run"],
    *(["explain", what, "{d}"] for what in ("retention", "compaction", "opening", "sizes")),
    ["explain", "lookup", "{p}", "--offset", "0"], ["records", "{d}"],
    ["check", "{d}"], ["check", "{p}", "--json"], ["repair", "{d}"], ["report", "{d}", "-o", "/dev/null"],
    ["copy", "{d}", "{d}.copy"], ["ship", "{d}", "memory://hostile"], ["adopt", "{d}", "--into", "{d}", "--dry-run"],
    ["recover", "{p}"], ["records", "{d}/" + E], ["stat", "{d}/" + E + "-0"],
]  # fmt: skip


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`kstore keep` ends after its first line."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(_: float) -> None:
        raise keep._Ended

    monkeypatch.setattr(keep, "time", SimpleNamespace(sleep=end, time_ns=time.time_ns))  # of this module only
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_every_command_is_tried() -> None:
    assert {words[0] for words in WORDS} == set(COMMANDS) - {"serve"}  # serve goes on until a signal comes


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("name", ["data", f"data{E}"], ids=["", "below a hostile path"])
def test_no_command_passes_control_characters_on(
    tmp_path: Path, name: str, what: str, run: Run, feed: Feed
) -> None:
    d = tmp_path / name
    with kstore.open(d / "t-0", "a", retention_ms=5) as log:
        log.append(b"x", key=b"x")
        with cursor_at_end(d / "t-0") as cursor:
            cursor.commit(1, metadata="\x1b[31m\nFORGED")
    HOSTILE[what](d)
    hostile = name != "data"
    for words in some(WORDS, 10, (name, what)):
        feed("")
        _, out, err = run(*(word.format(d=d, p=d / "t-0") for word in words))
        for text in (out, err):
            assert not RAW.search(text), (words, text, hostile)


def test_errors_and_warnings_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / f"x{E}"
    error = kstore.CorruptFileError(E, file=str(path), position=4)
    error.add_note(E)
    with pytest.raises(KstoreError) as missing:
        kstore.open(path)
    errors = [
        error,
        missing.value,
        kstore.LogLockedError(str(path), 1),
        kstore.CursorLockedError(str(path), None),
        kstore.LogChangedError(str(path), 1, 0, 2, E),
    ]
    for each in [*errors, *pickle.loads(pickle.dumps(errors))]:
        for text in (str(each), *getattr(each, "__notes__", ())):
            assert text
            assert not RAW.search(text)
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kstore.open(tmp_path / f"x{E}-0", "a").close()
    assert told
    assert not any(RAW.search(str(each.message)) for each in told)


def test_an_unknown_option_is_named_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    kstore.open(path, "a").close()
    for call in (
        lambda: kstore.open(path, **{E: 1}),
        lambda: kstore.open(path, "a", **{E: 1}),
        lambda: kstore.LogStore(tmp_path, **{E: 1}),
        lambda: kstore.LogStore(tmp_path).open("t", 0, **{E: 1}),
    ):
        with pytest.raises((TypeError, KstoreError)) as told:
            call()
        assert "FORGED" in str(told.value)
        assert not RAW.search(str(told.value))


def test_what_is_visible_stays() -> None:
    assert visible("Größe 1\\n 日本 👍") == "Größe 1\\n 日本 👍"
    assert visible(os.fsdecode(b"\xff\t\x1b")) == r"\udcff\t\x1b"
