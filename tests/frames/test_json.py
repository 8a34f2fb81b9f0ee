"""Values in JSON as columns."""

from __future__ import annotations

import json
import tempfile
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
