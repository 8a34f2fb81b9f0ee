"""Every public call refuses a wrong argument by its name, before anything is touched.

One loop passes wrong values to every parameter of every public method. The tables after it show what each
kind of parameter takes and refuses, and what only some calls refuse.
"""

import ast
import asyncio
import inspect
import threading
import typing
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

import kstore
import kstore.opening
from tests.helpers.files import contents

T = 1_700_000_000_000
NAN = float("nan")
END = 2**63 - 1
PLANE = memoryview(bytearray(6)).cast("B", (2, 3))  # a memoryview of two dimensions cannot be iterated
ENDLESS = range(2**70)  # more than len() can say
BATCH = kstore.encode_batch([(T, None, b"v", None)])


class Wrong:
    """What no parameter takes."""

    def __repr__(self) -> str:
        return "<wrong>"


WRONG = Wrong()
# Where the error about WRONG says the first, these values are wrong too.
ALSO_WRONG: list[tuple[str, list[Any]]] = [
    ("is an int", [1.5, NAN, numpy.float64(2), True, numpy.True_, "1", b"1", [3], int, numpy.arange(2)]),
    ("must be True or False", [0, 1, "", "no", [], NAN, numpy.True_]),
    ("is one of", ["no such word", "", b"raise", True]),
    ("is a number", [True, "1", NAN, -1, [1], numpy.arange(2)]),
    ("is bytes", ["text", 1, True, [b"x"]]),
    ("must be a list", ["ab", 7]),
    ("are several", [b"ab", "ab", memoryview(b"ab"), PLANE, 7, ENDLESS, iter(ENDLESS)]),
    ("are pairs", [PLANE, 7, ENDLESS, iter(ENDLESS), "text", b"bytes", ["ab"], [("h", 1)], {1: b""}]),
    ("is a function", [1, "text", True]),
    ("must be a str", [1, b"t", True, None]),
]
OUT_OF_RANGE = [-2, 2**63, -(2**70), 2**70]
# Parameters that take any number: nothing is there. For `timestamp` small negative ones are names of places.
ANSWERED = (
    "offset",
    "start",
    "stop",
    "epoch",
    "timestamp",
    "start_offset",
    "since",
    "until",
    "position",
    "end",
)
# What a call needs besides the argument that is wrong.
NEEDED: dict[str, Any] = {
    "offset": 0, "value": b"v", "values": [b"v"], "key": b"k", "path": "none.log", "encoded": BATCH,
    "epoch": 1, "before_offset": 0, "start": 0, "stop": 1, "group": "g", "sock": None, "reason": "a test",
    "topic": "t", "name": "new", "topics": ["t"], "total": 2, "target": "none", "source": "none", "place": 0,
    "count": 1, "record": kstore.AcquiredRecord("t", 0, kstore.Record(0), 1),
    "end": 1,
    "position": 0, "to": None, "size": 0, "limit": None, "records": [(T, None, b"v", None)], "timestamp": 0,
}  # fmt: skip
NEEDED_BY = {"erase": {"where": bool}}
# Parameters that errors call otherwise.
OTHER_WORDS = {
    "headers": "header", "name": "topic", "encoded": "bytes-like",
    "to": "StreamWriter", "sock": "socket", "topic": "the cursor of group",
}  # fmt: skip
# Methods that end things, or are for the code that makes a segment.
LEFT_OUT = (
    "abandon",
    "close",
    "recovery_walk",
    "use_indexes",
    "check_followed_by",
    "limit_to",
)
# Parameters that are not checked: of a mapping; of a codec without levels; after one that is wrong already.
UNCHECKED = (("get", "default"), ("encode_batch", "level"), ("send", "position"), ("send_async", "position"))


class Module:
    """The functions of the package."""

    encode_batch = staticmethod(kstore.encode_batch)
    limit_open_files = staticmethod(kstore.limit_open_files)


OBJECTS: dict[str, Callable[[kstore.LogStore], Any]] = {
    "module": lambda store: Module,
    "store": lambda store: store,
    "writer": lambda store: store.log("t"),
    "reader": lambda store: kstore.open(store.path / "t-0"),
    "segment": lambda store: kstore.open(store.path / "t-0").segments[0],
    "slice": lambda store: store.log("t").read(0),
    "span": lambda store: store.log("t").span(0),
    "batch": lambda store: next(iter(store.log("t").batches())),
    "appender": lambda store: store.log("t").appender(linger_ms=60_000),
    "ticket": lambda store: store.log("t").appender(linger_ms=60_000).append(b"v", b"k"),
    "follower": lambda store: store.log("t").follow(timeout=0),
    "cursor": lambda store: store.log("t").cursor("c"),
    "store follower": lambda store: store.follow(timeout=0),
    "store cursor": lambda store: store.cursor("s", ["t"]),
    "table": lambda store: store.table("t"),
    "share group": lambda store: store.share_group("q", ["t"]),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kstore.LogStore]:
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as made:
        made.create_topic("t", cleanup_policy="compact,delete")
        made.extend("t", [b"v"] * 10, [b"k"] * 10, [T + n for n in range(10)])
        made.flush()
        yield made


def parameters_of(method: Callable[..., Any]) -> dict[str, bool]:
    """The parameters of a method, and whether a call must have them."""
    try:
        known = inspect.signature(method).parameters.values()
    except ValueError:  # LogWriter.extend and Segment.walk_on have none that inspect can read
        known = inspect.signature(kstore.LogWriter.extend_async).parameters.values()
        known = [p for p in known if p.name != "self"] if method.__name__ == "extend" else []
    return {p.name: p.default is p.empty for p in known if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def calls_of(thing: Any) -> Iterator[tuple[str, str, Callable[[Any], None]]]:
    """The name of a method, of a parameter of it, and a call that passes a value as that parameter."""
    for name in dir(thing):
        method = getattr(thing, name, None)
        if name.startswith("_") or name in LEFT_OUT or not callable(method):
            continue
        known = parameters_of(method)
        needed = {key: NEEDED[key] for key, is_needed in known.items() if is_needed and key in NEEDED}
        needed |= {key: value for key, value in NEEDED_BY.get(name, {}).items() if key in known}
        for parameter in known:
            if (name, parameter) not in UNCHECKED:
                yield name, parameter, partial(call, method, needed, parameter)


def call(method: Callable[..., Any], needed: dict[str, Any], parameter: str, value: Any) -> None:
    made = method(**{**needed, parameter: value})
    if inspect.isawaitable(made):
        asyncio.run(end_of(made))


async def end_of(made: Awaitable[object]) -> None:
    await made


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_parameter_refuses_what_is_wrong(store: kstore.LogStore, kind: str) -> None:
    thing = OBJECTS[kind](store)
    before = contents(store.path, "**/*")
    found = []
    for name, parameter, give in calls_of(thing):
        values: list[Any] = [WRONG]
        for value in values:
            said = f"{name}({parameter}={value!r})"
            is_range = any(value is each for each in OUT_OF_RANGE)
            try:
                give(value)
                if not is_range or parameter not in ANSWERED:
                    found.append(f"{said} is accepted")
            except (TypeError, ValueError) as e:
                if parameter not in str(e) and OTHER_WORDS.get(parameter, parameter) not in str(e):
                    found.append(f"{said} does not name it: {e!r}")
                if value is WRONG:
                    values += [also for words, several in ALSO_WRONG if words in str(e) for also in several]
                    values += OUT_OF_RANGE if "is an int" in str(e) else []
            except kstore.KstoreError as e:
                if not is_range:
                    found.append(f"{said}: {e!r}")
    assert found == [], "\n".join(found)
    assert contents(store.path, "**/*") == before
    assert store.append("t", b"goes on", b"k")[1] == 10


# ---- options of kstore.open ----------------------------------------------------------------------


def written(path: Path) -> kstore.LogWriter:
    """A log of two segments."""
    log = kstore.open(path, "a", internal_segment_bytes=2000)
    for i in range(40):
        log.append(b"%02d" % i + b"x" * 100)
    log.flush()
    return log


READING, WRITING = (
    {each.arg for each in (*node.args.args, *node.args.kwonlyargs, *filter(None, [node.args.kwarg]))}
    for node in ast.parse(inspect.getsource(kstore.opening)).body
    if isinstance(node, ast.FunctionDef) and node.decorator_list
)
OF_CONFIG = kstore.ConfigOptions.__annotations__.keys()


@pytest.mark.parametrize(
    ("opens", "mode", "names"),
    [
        (kstore.open, "r", READING),
        (kstore.open, "a", WRITING | OF_CONFIG),
        (kstore.LogStore, "a", set(inspect.signature(kstore.LogStore).parameters) - {"dirs"} | OF_CONFIG),
    ],
)
def test_every_option_refuses_what_is_wrong(tmp_path: Path, opens: Any, mode: str, names: set[str]) -> None:
    written(tmp_path / "d" / "t-0").close()
    before = contents(tmp_path, "**/*")
    assert len(names) > (5 if mode == "r" else 30)
    for name in names - {"path", "mode", "options"}:
        for path in ("d/t-0", "d/new-0") if opens is kstore.open else ("d", "new"):
            with pytest.raises((TypeError, ValueError), match=name):
                opens(tmp_path / path, mode=mode, **{name: WRONG})
    assert contents(tmp_path, "**/*") == before


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"durability": "groups"}, ValueError, "durability is one of 'none', 'group', 'each'"),
    ({"durability": None}, ValueError, "durability is one of"),
    ({"compression_type": "zst"}, kstore.InvalidConfigError, "zstd"),
    ({"compression_type": "none"}, kstore.InvalidConfigError, "none is called uncompressed here"),
    ({"segment_byte": 1}, kstore.InvalidConfigError, "nearest"),
    ({"config": {}}, TypeError, "LogConfig"),
    ({"leader_epoch": 2**31}, ValueError, "leader_epoch is from 0"),
    ({"leader_epoch": 1.5}, TypeError, "leader_epoch is an int"),
    ({"recovery_point": -3}, ValueError, "recovery_point is from 0"),
    ({"log_start_offset": -1}, ValueError, "log_start_offset is from 0"),
    ({"log_start_offset": 2**63}, ValueError, "log_start_offset is from 0"),
    ({"log_start_offset": True}, TypeError, "log_start_offset is an int"),
    ({"max_decompressed_bytes": -1}, ValueError, "max_decompressed_bytes is from 1"),
    ({"max_decompressed_bytes": None}, TypeError, "max_decompressed_bytes is an int"),
    ({"producer_id_expiration_ms": 0}, ValueError, "producer_id_expiration_ms is from 1"),
    ({"keep_cut": "yes"}, TypeError, "keep_cut must be True or False"),
    ({"clean": 1}, TypeError, "clean must be True or False"),
    ({"topic_id": "x"}, TypeError, "topic_id"),
    ({"wait": -1}, ValueError, "wait"),
    ({"wait": NAN}, ValueError, "wait"),
    ({"clock": 5}, TypeError, "clock"),
    ({"clock": lambda: 1.5}, TypeError, "the time that the log's clock gives"),
    ({"clock": lambda: -1}, ValueError, "the time that the log's clock gives"),
    ({"clock": lambda: 2**63}, ValueError, "the time that the log's clock gives"),
    ({"recover": True}, TypeError, "recover is an option for reading"),
]


def test_what_an_option_of_writing_refuses(tmp_path: Path) -> None:
    written(tmp_path / "t-0").close()
    before = contents(tmp_path, "**/*")
    for options, error, words in OPTIONS:
        for path in (tmp_path / "t-0", tmp_path / "new-0"):
            with pytest.raises(error, match=words):
                kstore.open(path, "a", **options)
    assert contents(tmp_path, "**/*") == before
    assert not (tmp_path / "new-0").exists()
    assert kstore.open(tmp_path / "t-0").recovery.clean


def test_an_option_of_the_other_mode(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    written(path).close()
    with kstore.LogStore(tmp_path) as store:
        words = "durability is not an option for reading: give mode"
        with pytest.raises(TypeError, match=words):
            store.open("t", durability="each")
    for name in ("durability", "retention_ms", "config"):
        with pytest.raises(TypeError, match=f"{name} is not an option for reading: give mode"):
            kstore.open(path, **{name: 1})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="recovr is not an option for reading: they are recover, "):
        kstore.open(path, recovr=1)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="mode is one of 'r', 'a', 'r\\+', not 'w'"):
        kstore.open(path, "w")  # type: ignore[call-overload]


def test_the_typed_options_are_those_of_the_configuration() -> None:
    """mypy checks kstore.open(path, "a", ...) by this class."""
    typed = typing.get_type_hints(kstore.ConfigOptions)
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


# ---- what each kind of parameter takes and refuses -----------------------------------------------

CALLS: dict[str, Callable[[kstore.LogWriter, Any], object]] = {
    "batch_rows": lambda log, x: log.scan(batch_rows=x),
    "offset": lambda log, x: log.get(x),
    "control": lambda log, x: log.records(control=x),
    "isolation": lambda log, x: log.records(isolation=x),
    "linger_ms": lambda log, x: log.appender(linger_ms=x).close(),
    "path": lambda log, x: kstore.open(x),
    "columns": lambda log, x: log.scan(x),
    "segment_bytes": lambda log, x: kstore.LogConfig(segment_bytes=x),
    "codec": lambda log, x: kstore.LogConfig(compression_type=x),
    "rate": lambda log, x: kstore.LogConfig(log_cleaner_io_max_bytes_per_second=x),
    "topics": lambda log, x: kstore.LogStore(Path(log.path).parent).follow(x),
    "keep_for": lambda log, x: log.retain(keep_for=x),
    "fields": lambda log, x: log.segments[0].read_headers(fields=x),
    "key": lambda log, x: log.last(x),
    "max_timestamp": lambda log, x: log.segments[0].set_max_timestamp(x),
    "segment": lambda log, x: kstore.Slice(x, 0, 0, 5),
    "topic": lambda log, x: kstore.LogConfig.from_topic(x),
    "broker": lambda log, x: kstore.LogConfig.from_server_properties(x),
    "origin": lambda log, x: log.append_batches(BATCH, origin=x),
    "limit": lambda log, x: kstore.limit_open_files(x),
}
TAKEN: list[tuple[str, list[Any]]] = [
    ("batch_rows", [1, numpy.int32(3)]), ("offset", [0, numpy.int32(9)]), ("control", [True, False]),
    ("isolation", ["read_committed"]), ("linger_ms", [0, 2.5, numpy.int64(1)]), ("key", [b"k"]),
    ("limit", [None]),
    ("columns", [["key"], ("offset", "value"), iter(["key"]), numpy.array(["key"])]), ("fields", [["crc"], ("size", "position")]),
    ("topic", [{"retention.ms": "1"}]), ("broker", [{"log.retention.ms": "1"}]),
]  # fmt: skip
REFUSED: list[tuple[str, list[Any], type[Exception], str]] = [
    ("batch_rows", [1.5], TypeError, r"^batch_rows is an int, not 1\.5 \(float\)"),
    ("batch_rows", [True], TypeError, r"^batch_rows is an int, not True \(bool\)"),
    ("batch_rows", [numpy.arange(2)], TypeError, r"^batch_rows is an int, not array\(\[0, 1\]\) \(ndarray\)"),
    ("batch_rows", [0, 2**63], ValueError, r"^batch_rows is from 1 to \d+, not (0|9\d+)"),
    ("offset", [1.5, True], TypeError, r"^offset is an int, not (1\.5|True) \("),
    ("offset", [-1, 2**70], kstore.OffsetOutOfRangeError, "offset -?[0-9]+ is outside the log"),
    ("control", ["no", 1], TypeError, "^control must be True or False, not ('no'|1)"),
    ("isolation", ["x", None], ValueError, "^isolation is one of 'read_uncommitted', 'read_committed', not"),
    ("linger_ms", ["5", None, True], TypeError, r"^linger_ms is a number, not .* \((str|NoneType|bool)\)"),
    ("linger_ms", [NAN, float("inf"), -1, 1e300, 2**5000], ValueError, "^linger_ms is a number from 0"),
    ("path", ["t-0\0"], ValueError, "embedded null byte"),
    ("path", [""], ValueError, "needs the path of a partition, not an empty one"),
    (
        "path",
        [5, b"t-0", None],
        TypeError,
        r"^path is a str or an os.PathLike, not .* \((int|bytes|NoneType)\)",
    ),
    ("segment_bytes", [numpy.array([1, 2]), 10**400, "x"], ValueError, "^segment_bytes is "),
    ("codec", [numpy.array([1, 2])], ValueError, "^compression_type is "),
    ("rate", [10**400], ValueError, "^log_cleaner_io_max_bytes_per_second is "),
    ("topics", [b"t", 5, "t"], TypeError, "^topics must be a list of names of topics, not"),
    ("keep_for", [b"g", "g"], TypeError, "^keep_for must be a list of names of groups, not"),
    ("columns", [PLANE, b"ab", bytearray(b"ab"), 7], TypeError, "^columns must be a list of names, not"),
    ("columns", [ENDLESS, iter(ENDLESS), ["no such column"], ["key", "key"]], ValueError, "column"),
    ("fields", ["crc"], TypeError, r"\['crc'\]"),
    ("fields", [7], TypeError, "^fields are names, not"),
    ("fields", [[], ["crc", "crc"], ["codec"], ["", "crc"], [1], ENDLESS], ValueError, "fields"),
    ("key", ["a"], TypeError, r"^key is bytes, not str: 'a'\.encode\(\)"),
    ("max_timestamp", [True, None, (0, 0)], TypeError, "max_timestamp is of the class TimestampOffset"),
    ("segment", [True, "s", 7], TypeError, "segment is of the class Segment"),
    ("topic", [{1: "2"}], TypeError, "the names of topic"),
    ("broker", [{1: "2"}], TypeError, "the names of broker"),
    ("origin", ["broker"], ValueError, "^origin is one of 'client', 'coordinator', not 'broker'"),
    ("limit", [-1], ValueError, "limit"),
    ("limit", [1.5, True, "5"], TypeError, "limit"),
]


def test_what_is_taken_and_what_is_refused(log: kstore.LogWriter) -> None:
    log.extend([b"v"] * 10, [b"k"] * 10)
    threads = threading.active_count()
    for name, values in TAKEN:
        for value in values:
            CALLS[name](log, value)
    for name, values, error, words in REFUSED:
        for value in values:
            with pytest.raises(error, match=words):
                CALLS[name](log, value)
    assert threading.active_count() <= threads  # a worker of earlier tests may have ended meanwhile
    assert log.log_end_offset == 10


# ---- what would change the log -------------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[kstore.LogWriter, Any], object], int, int]] = {
    "delete_records": (lambda log, n: log.delete_records(n), -1, 40),
    "truncate_to": (lambda log, n: log.truncate_to(n), 0, END),
    "truncate_fully_and_start_at": (lambda log, n: log.truncate_fully_and_start_at(n), 0, END),
    "its log start": (lambda log, n: log.truncate_fully_and_start_at(100, n), 0, 100),
    "assign_leader_epoch": (lambda log, n: log.assign_leader_epoch(n), 0, 2**31 - 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_checks_its_range(tmp_path: Path, name: str) -> None:
    change, least, most = CHANGES[name]
    log = written(tmp_path / "t-0")
    before = contents(tmp_path, "**/*")
    for wrong in (least - 1, most + 1, 2**63, -(2**63), 2**100):
        with pytest.raises((ValueError, kstore.OffsetOutOfRangeError)):
            change(log, wrong)
    assert contents(tmp_path, "**/*") == before
    assert [record.offset for record in log] == list(range(40))
    assert change(log, numpy.int32(least)) in (None, True, False, 0, 40)
    log.close()


def test_a_clock_that_goes_wrong(tmp_path: Path) -> None:
    times: list[Any] = [T]
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: times[-1]) as log:
        log.append(b"one")
        for wrong in (1.5, -1, None, 2**63):
            times.append(wrong)
            for use in (lambda: log.append(b"two"), lambda: log.extend([b"two"]), log.retain, log.roll):
                with pytest.raises((TypeError, ValueError), match="the time that the log's clock gives"):
                    use()
            times.append(T)
        assert log.append(b"two") == 1
    assert [(r.value, r.timestamp) for r in kstore.open(tmp_path / "t-0")] == [(b"one", T), (b"two", T)]
