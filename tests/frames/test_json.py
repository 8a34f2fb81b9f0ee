"""Values in JSON as columns."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
import kstore.arrow
import kstore.polars
from tests.helpers.examples import examples

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

SCHEMA = {"id": pl.Int64, "name": pl.String, "tags": pl.List(pl.String), "at": pl.Struct({"x": pl.Float64})}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | TEXT,
        "tags": st.none() | st.lists(TEXT, max_size=3),
        "at": st.none()
        | st.fixed_dictionaries({}, optional={"x": st.floats(allow_nan=False, allow_infinity=False)}),
        "unknown": st.lists(st.integers()) | TEXT,
    },
)


def write(path: Path, values: list[bytes | None]) -> Path:
    with kstore.open(path, "a") as log:
        log.extend(values, keys=[b"k"] * len(values))
    return path


@examples(40)
@given(st.lists(st.none() | OBJECTS, min_size=1, max_size=8), st.sampled_from([None, 1]))
def test_values_are_those_of_json(values: list[Any], indent: int | None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        texts = [None if value is None else json.dumps(value, indent=indent).encode() for value in values]
        path = write(Path(directory, "json-0"), texts)
        frame = kstore.polars.scan(path, value_format="json", schema=SCHEMA)
        wanted = [
            None
            if value is None
            else {
                "id": value.get("id"),
                "name": value.get("name"),
                "tags": value.get("tags"),
                "at": None if value.get("at") is None else {"x": value["at"].get("x")},
            }
            for value in values
        ]
        assert frame.collect()["value"].to_list() == wanted
        dataset = kstore.arrow.dataset(path, value_format="json", schema=SCHEMA)
        assert dataset.to_table(columns=["value"])["value"].to_pylist() == wanted


def test_a_schema_from_a_sample(tmp_path: Path) -> None:
    values = [
        None,
        b'{"user":"ann","amount":1.5,"at":{"city":"Bonn"},"none":null}',
        b'{"amount":2,"user":"bob"}',
    ]
    path = write(tmp_path / "json-0", values)
    frame = kstore.polars.scan(path, value_format="json")
    assert frame.collect_schema()["value"] == pl.Struct(
        {"user": pl.String, "amount": pl.Float64, "at": pl.Struct({"city": pl.String}), "none": pl.String}
    )
    rich = frame.filter(pl.col("value").struct["amount"] > 1.7, pl.col("key") == "k").select("offset")
    assert rich.collect().rows() == [(2,)]
    dataset = kstore.arrow.dataset(path, value_format="json")  # noqa: F841
    assert duckdb.sql("select sum(value.amount) from dataset where value.user <> 'ann'").fetchall() == [
        (2.0,)
    ]


def test_many_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "json-0", [b'{"id":%d}' % i if i % 3 else b"{}" for i in range(300_000)])
    frame = kstore.polars.scan(path, value_format="json")
    found = frame.select(pl.col("value").struct["id"]).collect()["id"]
    assert found.to_list() == [i if i % 3 else None for i in range(300_000)]


@pytest.mark.parametrize(
    "wrong",
    [b"", b"{", b"}", b'{"id":1}{"id":2}', b'{"id":1},{"id":2}', b'{"id":1}\n{"id":2}', b'{"id":1', b'1}{"v":2',
     b'"a', b"[1", b'{"id":"x"}', b"\xff", b"5"],
)  # fmt: skip
def test_what_is_not_of_the_schema_names_its_record(tmp_path: Path, wrong: bytes) -> None:
    """No value is taken for that of another record."""
    path = write(
        tmp_path / "json-0", [*[b'{"id":%d}' % i for i in range(7)], wrong, b'{"id":8}', b'}{"id":9}']
    )
    frame = kstore.polars.scan(path, value_format="json", schema=pa.struct([("id", pa.int64())]))
    with pytest.raises(ValueError, match="json-0: the value of the record at offset 7 is not JSON"):
        frame.collect()
    assert frame.select("offset").collect().height == 10  # values that are not read are not decoded


@pytest.mark.parametrize(
    "wrong",
    ['{"at":5}', '{"at":[]}', '{"at":{"x":"y"}}', '{"tags":"a"}', '{"tags":{}}', '{"list":[{"n":1},{"n":"y"}]}',
     '{"\\u0061t":5}', '{"t\\u0061gs":{}}', '[]', '"at"', 'true', '{"at":{"\\u0078":"y"}}',
     '{"list":[{"n":1},5]}', '{"list":[null,{"n":99999999999999999999}]}', '{"a\'\\"b":"y"}'],
)  # fmt: skip
def test_no_value_of_another_type_becomes_null(tmp_path: Path, wrong: str) -> None:
    """Nulls and absent fields are no error, at whatever depth."""
    schema = {
        "at": pl.Struct({"x": pl.Float64}),
        "tags": pl.List(pl.String),
        "list": pl.List(pl.Struct({"n": pl.Int64, "m": pl.String})),
        "a'\"b": pl.Int64,
    }
    sound = [
        "{}",
        "null",
        '{"at":null,"tags":null,"list":null}',
        '{"tags":[null],"list":[null,{},{"n":null}]}',
    ]
    path = write(tmp_path / "json-0", [*[text.encode() for text in sound], None])
    frame = kstore.polars.scan(path, value_format="json", schema=schema)
    assert frame.collect()["value"][3]["list"] == [None, *[{"n": None, "m": None}] * 2]
    write(path, [wrong.encode(), b"{"])
    with pytest.raises(ValueError, match="at offset 5 is not JSON of the schema"):
        frame.collect()


@pytest.mark.parametrize(
    ("first", "later", "found"),
    [
        ("10", "0.4", "value.f is DOUBLE and not BIGINT"),
        ("10", "1.0", "value.f is DOUBLE and not BIGINT"),
        ("10", '"2.5"', "value.f is VARCHAR and not BIGINT"),
        ("10", "true", "value.f is BOOLEAN and not BIGINT"),
        ("10", "{}", "value.f is JSON and not BIGINT"),
        ("10", "18446744073709551616", "value.f is DOUBLE and not BIGINT"),
        ("10", "18446744073709551615", "Failed to cast"),  # which is no Int64
        ("0.5", '"2.5"', "value.f is VARCHAR and not DOUBLE"),
        ("true", "7", "value.f is BIGINT and not BOOLEAN"),
        ('"a"', "7", "value.f is BIGINT and not VARCHAR"),
        ('"a"', '{"x":1}', "value.f is OBJECT and not VARCHAR"),
        ("[1]", "[1,1.5]", "value.f[] is DOUBLE and not BIGINT"),
        ("[1]", "1", "value.f is BIGINT and not ARRAY"),
        ("[1]", "{}", "no ARRAY"),
        ('[{"x":1}]', '[{},null,{"x":true}]', "value.f[].x is BOOLEAN and not BIGINT"),
        ('{"x":{"y":1}}', '{"x":{"y":1.5}}', "value.f.x.y is DOUBLE and not BIGINT"),
        ('{"x":1}', "[]", "value.f is ARRAY and not OBJECT"),
        ("10", "-9223372036854775808", -(2**63)),
        ("-10", "10", 10),
        ("0.5", "7", 7.0),
        ('{"x":1}', '{"new":1.5}', {"x": None}),
        ('{"x":1}', "{}", {"x": None}),
        ('[{"x":1}]', "[{}]", [{"x": None}]),
        ("[]", "[7]", ["7"]),
        ("null", "7", "7"),
        ('[1,"a"]', "[true]", ["true"]),
        ("10", "null", None),
    ],
)  # fmt: skip
def test_a_later_value_of_another_type_than_the_sample(
    tmp_path: Path, first: str, later: str, found: Any
) -> None:
    texts = [f'{{"f":{text}}}'.encode() for text in [*[first] * 1000, first, later, first, later]]
    frame = kstore.polars.scan(write(tmp_path / "json-0", texts), value_format="json")
    if isinstance(found, str) and first != "null":
        with pytest.raises(ValueError, match=f"at offset 1001 .*schema=.*{re.escape(found)}"):
            frame.collect()
        assert frame.head(1001).collect().height == 1001
    else:
        assert frame.collect()["value"][1001]["f"] == found


LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1e300, 2**63, -(2**63), "2", ""])
)
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner),
    max_leaves=6,
)


def replaced(value: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(value, dict):
        return {key: replaced(each, leaves) for key, each in value.items()}
    return [replaced(each, leaves) for each in value] if isinstance(value, list) else next(leaves)


def is_kept(value: Any, found: Any, sample: list[Any]) -> bool:
    """Whether a value was decoded without conversion; to text where the sample has several types or none."""
    if value is None:
        return found is None
    if isinstance(found, str) and {type(each) for each in sample if each is not None} != {str}:
        return True
    if isinstance(value, dict) and isinstance(found, dict):
        inner = [each for each in sample if isinstance(each, dict)]
        return all(is_kept(value.get(key), found[key], [each.get(key) for each in inner]) for key in found)
    if isinstance(value, list) and isinstance(found, list):
        inner = [each for each in sample if isinstance(each, list)]
        parts = [part for each in inner for part in each]
        return len(value) == len(found) and all(map(is_kept, value, found, [parts] * len(found)))
    return bool(value == found) and isinstance(value, bool) == isinstance(found, bool)


@examples(40)
@given(ANY_JSON, st.lists(LEAVES | ANY_JSON, min_size=1, max_size=4))
def test_no_value_is_converted_to_an_inferred_type(sample: Any, leaves: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        values = [*[sample] * 1000, replaced(sample, itertools.cycle(leaves))]
        path = write(Path(directory, "json-0"), [json.dumps({"f": each}).encode() for each in values])
        frame = kstore.polars.scan(path, value_format="json")
        for count in (1000, len(values)):
            try:
                decoded = frame.head(count).collect()["value"].struct["f"].to_list()
            except ValueError:
                assert count > 1000 or "9223372036854775808" in json.dumps(sample)  # which is no Int64
                return
            assert len(decoded) == count
            assert all(map(is_kept, values, decoded, [[sample]] * count))


def test_no_schema(tmp_path: Path) -> None:
    for name, values, text in (
        ("empty-0", [], "no value to take a schema from"),
        ("null-0", [None], "no value to take a schema from"),
        ("text-0", [b"tea"], "are not JSON"),
    ):
        path = write(tmp_path / name, values)
        for make in (kstore.polars.scan, kstore.arrow.dataset):
            with pytest.raises(ValueError, match=text):
                make(path, value_format="json")


ASKED = [
    ({"at": pl.Datetime("ms", "UTC")}, "struct<at: timestamp[ms, tz=UTC]>"),
    ({"at": pl.Datetime("ms")}, "struct<at: timestamp[ms]>"),
    ({"at": pa.timestamp("s", "Europe/Paris")}, "struct<at: timestamp[s, tz=Europe/Paris]>"),
    (
        pa.schema([("list", pa.list_(pa.timestamp("ms", "UTC")))]),
        "struct<list: list<element: timestamp[ms, tz=UTC]>>",
    ),
]


@pytest.mark.parametrize(("schema", "kind"), ASKED, ids=[kind for _, kind in ASKED])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_have_the_type_of_the_schema(
    tmp_path: Path, schema: Any, kind: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the time zone of the machine is. The instant is that of the value."""
    monkeypatch.setenv("TZ", zone)
    value = b'{"at": "2024-03-01T10:00:00.123456Z", "list": ["2024-03-01T11:00:00+01:00"]}'
    path = write(tmp_path / "o-0", [value])
    table = kstore.arrow.dataset(path, value_format="json", schema=schema).to_table(columns=["value"])
    assert re.sub("element|item", "element", str(table.schema.field("value").type)) == kind
    (row,) = table["value"].to_pylist()
    (found,) = row.values()
    at = found[0] if isinstance(found, list) else found
    assert at.replace(microsecond=0, tzinfo=at.tzinfo or UTC) == datetime(2024, 3, 1, 10, tzinfo=UTC)
    frame = kstore.polars.scan(path, value_format="json", schema=schema)
    assert frame.collect_schema()["value"] == frame.collect()["value"].dtype


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"a": pl.Enum(["x"])}, TypeError),
        ({"a": pl.Categorical}, TypeError),
        ({"a": pl.Duration}, TypeError),
        ({"a": pl.Object}, TypeError),
        (pa.schema([("a", pa.int8()), ("a", pa.int16())]), ValueError),
    ],
    ids=str,
)
def test_types_that_are_refused(tmp_path: Path, schema: Any, kind: type[Exception]) -> None:
    path = write(tmp_path / "o-0", [b'{"a": 1}'])
    with pytest.raises(kind, match=r"schema|decoded"):
        kstore.polars.scan(path, value_format="json", schema=schema)
