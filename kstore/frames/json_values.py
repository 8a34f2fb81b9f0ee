"""Values in JSON as columns, decoded by DuckDB without a Python object for each record."""

from __future__ import annotations

import json

from kstore.arguments import choice
from kstore.errors import LibraryError, visible
from kstore.frames.table_source import TableSource
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_SAMPLE = 1000  # records
_PIECE = 1 << 14  # values that a thread of DuckDB decodes at once
_BATCH_ROWS, _BATCH_BYTES = 1 << 18, 32 << 20  # of a scan, because each query has a cost of its own
# what takes the place of a type that DuckDB gives to a sample
_LATER = {"NULL": "VARCHAR", "JSON": "VARCHAR", "UBIGINT": "BIGINT", "HUGEINT": "BIGINT"}
_INTEGERS = ("BIGINT", "UBIGINT", "HUGEINT")  # HUGEINT: values of both signs


class JsonValues:
    """The type of values, and their decoding. Thread-safe."""

    def __init__(self, structure: Any, sampled: Any = None, schema: Any = None) -> None:
        """`structure`: the name of a type of DuckDB, a list with that of elements, or a dict with those of
        fields. `sampled`: the structure of the sample that it was inferred from. `schema`: the type of
        pyarrow that was asked for."""
        pa = library("pyarrow")
        self._database = _duckdb().connect()
        self._decode = f"from_json(v, {_quoted(json.dumps(structure))})"
        self._structure = structure
        self._sampled = sampled
        try:
            decoded = self._query(f"select {self._decode} v from t", v=pa.array([None], pa.string())).type
        except _duckdb().Error as e:
            raise ValueError(f"values in JSON cannot be decoded with this schema: {_line(e)}") from None
        self.type = decoded if schema is None else _with_times_of(schema, decoded)
        self._is_cast = self.type != decoded

    @classmethod
    def of(cls, schema: Any, table: TableSource) -> JsonValues:
        """The type that a schema has: a type or schema of pyarrow, or one of Polars, as a mapping of names to
        types or a Struct. Without one, that of the first values of a table. ValueError."""
        pa = library("pyarrow")
        if schema is not None:
            kind = _arrow_type(schema)
            return cls(_structure_of(kind), schema=kind)
        batches = [pa.record_batch(found.batch)["value"] for found in table.read(["value"], most=_SAMPLE)]
        values = pa.chunked_array(batches, pa.binary()).drop_null().combine_chunks()
        if not len(values):
            raise ValueError(f"{table} has no value to take a schema from: pass schema=…")
        try:
            with _duckdb().connect() as database:  # DuckDB 1.3 closes one that no variable holds
                rows = database.from_arrow(pa.table({"v": values.cast(pa.string())}))
                ((text,),) = rows.aggregate("json_group_structure(v::json)").fetchall()
        except _wrong() as e:
            raise ValueError(f"the first values of {table} are not JSON: {_line(e)}") from None
        sampled = json.loads(text)
        return cls(_lasting(sampled), sampled)

    def decode(self, values: Any, offsets: Any, source: object) -> Any:
        """An Arrow array of the values. ValueError names the first record whose value has another type."""
        try:
            return self._parsed(values)
        except _wrong():
            at, reason = self._first_wrong(values)
            if not reason:
                raise
            schema = "schema"
            if self._sampled is not None:
                schema += " inferred from the first values, pass schema=… for another"
            raise ValueError(
                f"{source}: the value of the record at offset {offsets[at]} is not JSON of the {schema}: "
                f"{reason}"
            ) from None

    def _first_wrong(self, values: Any) -> tuple[int, str]:
        low, high = 0, len(values) - 1
        while high > low:
            middle = (low + high) // 2
            if self._wrong_in(values.slice(low, middle + 1 - low)):
                high = middle
            else:
                low = middle + 1
        return low, self._wrong_in(values.slice(low, 1))

    def _wrong_in(self, values: Any) -> str:
        try:
            self._parsed(values)
        except _wrong() as e:
            return _line(e)
        return ""

    def _parsed(self, values: Any) -> Any:
        text = values.cast("string")
        if self._sampled is not None and len(text):
            structure = self._query("select json_group_structure(v::json) v from t", v=text)[0].as_py()
            misfit = next(_misfits(self._sampled, json.loads(structure), "value"), None)
            if misfit is not None:
                raise ValueError(misfit)
        found = self._query(f"select {self._decode} v from t", v=text)
        # from_json gives null for what has another type, as for what is missing
        known = found.filter(text.is_valid()) if text.null_count else found
        doubts = _doubts(known, self._structure, "$")
        if doubts:
            conditions = ["contains(v, '\\')", *_unexplained(known, self._structure, "x", "true")]
            where = " or ".join(conditions)  # the first one because a key with escapes has another text
            self._query(f"select count({'), count('.join(doubts)}) v from t where {where}", v=text, x=found)
        return found.cast(self.type, safe=False) if self._is_cast else found

    def _query(self, query: str, **columns: Any) -> Any:
        pa = library("pyarrow")
        table = pa.table(columns)
        table = pa.Table.from_batches(table.to_batches(_PIECE), table.schema)  # each is one thread's
        with self._database.cursor() as cursor:
            found = cursor.from_arrow(table).query("t", query).to_arrow_table()
        return found["v"].combine_chunks()


def table_and_json(
    *arguments: Any, text: Iterable[str], value_format: str | None, schema: Any, **options: Any
) -> tuple[TableSource, JsonValues | None]:
    """What a table of another library reads, and the decoding of its values from JSON; None for values that
    are kept. `arguments` and `options` are those of TableSource. TypeError, ValueError."""
    if value_format is None and schema is not None:
        raise TypeError('schema is an option of value_format="json"')
    if value_format is None:
        return TableSource(*arguments, text=tuple(text), **options), None
    choice("value_format", value_format, ("json",))
    options |= {"batch_rows": _BATCH_ROWS, "batch_bytes": _BATCH_BYTES}
    table = TableSource(*arguments, text=tuple(name for name in text if name != "value"), **options)
    return table, JsonValues.of(schema, table)


def _misfits(sampled: Any, found: Any, path: str) -> Iterator[str]:
    """Messages about types of values that are not those of the sample, so from_json would convert or refuse
    the values."""
    if found == "NULL" or sampled in ("NULL", "JSON"):  # text of any value
        return
    if isinstance(sampled, dict) and isinstance(found, dict):
        for name in (name for name in sampled if name in found):
            yield from _misfits(sampled[name], found[name], f"{path}.{name}")
    elif isinstance(sampled, list) and isinstance(found, list):
        yield from _misfits(sampled[0], found[0], f"{path}[]")
    elif found != "JSON" or isinstance(sampled, str):  # else {}, or several types: from_json refuses one
        is_type, wanted = _named(found), _named(sampled)
        if is_type != wanted and (is_type, wanted) != ("BIGINT", "DOUBLE"):
            yield visible(f"{path} is {is_type} and not {wanted}")


def _named(structure: Any) -> str:
    if isinstance(structure, str):
        return "BIGINT" if structure in _INTEGERS else structure
    return "OBJECT" if isinstance(structure, dict) else "ARRAY"


def _doubts(found: Any, structure: Any, path: str) -> list[str]:
    """Expressions that raise an error where a null is something else in the JSON."""
    at = f"json_extract(v, {_quoted(path)})"
    x, each = ("x", f"list_transform({at}, lambda x: {{}})") if "[*]" in path else (at, "{}")
    if isinstance(structure, dict):
        inner = [
            doubt
            for i, (name, kind) in enumerate(structure.items())
            for doubt in _doubts(found.field(i), kind, f"{path}.{json.dumps(name, ensure_ascii=False)}")
        ]
        return inner and [*inner, each.format(_is_a("OBJECT", x))]  # no object has but nulls
    if isinstance(structure, list):
        inner = _doubts(found.values, structure[0], f"{path}[*]")
        return [*inner, each.format(_is_a("ARRAY", x))] if found.null_count else inner
    return (
        [each.format(f"from_json_strict({x}, {_quoted(json.dumps(structure))})")] if found.null_count else []
    )


def _unexplained(found: Any, structure: Any, x: str, has_key: str) -> list[str]:
    """Conditions one of which holds for each row with a null that is perhaps something else in the JSON,
    because there is a key for it. `has_key` is the condition for that of the decoded value x."""
    conditions = []
    absent = [x] if found.null_count else []
    if isinstance(structure, dict):
        parts = [f"{x}.{_identifier(name)}" for name in structure]
        for i, (name, kind) in enumerate(structure.items()):
            key = f"contains(v, {_quoted(json.dumps(name, ensure_ascii=False))})"
            conditions += _unexplained(found.field(i), kind, parts[i], key)
        if parts and all(found.field(i).null_count for i in range(len(parts))):
            absent = parts
    elif isinstance(structure, list) and _has_nulls(found.values):
        conditions.append(f"{x} is not null")
    if absent:
        conditions.append(f"case when {' is null and '.join(absent)} is null then {has_key} else false end")
    return conditions


def _has_nulls(found: Any) -> bool:
    pa = library("pyarrow")
    if found.null_count:
        return True
    if pa.types.is_struct(found.type):
        return any(_has_nulls(found.field(i)) for i in range(found.type.num_fields))
    return pa.types.is_list(found.type) and _has_nulls(found.values)


def _is_a(kind: str, x: str) -> str:
    return f"case when json_type({x}) not in ('{kind}', 'NULL') then error('no {kind}: ' || {x}) end"


def _wrong() -> tuple[type[Exception], ...]:
    return (_duckdb().Error, ValueError)  # also ArrowInvalid, and UnicodeError of a message with such bytes


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _duckdb() -> Any:
    try:
        return library("duckdb")
    except LibraryError as e:
        raise LibraryError(f'value_format="json" needs DuckDB: {e}', name="duckdb") from e


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _lasting(structure: Any) -> Any:
    """The structure of a sample, with types that later values have, too."""
    if structure and isinstance(structure, dict):
        return {name: _lasting(kind) for name, kind in structure.items()}
    if isinstance(structure, list):
        return [_lasting(kind) for kind in structure]
    return _LATER.get(structure, structure) if structure else "VARCHAR"


def _with_times_of(schema: Any, decoded: Any) -> Any:
    """The type that was decoded, with the timestamps of a schema: DuckDB has microseconds, and the time zone
    of the process."""
    pa = library("pyarrow")
    if pa.types.is_struct(schema):
        pairs = zip(schema, decoded, strict=True)
        return pa.struct([own.with_type(_with_times_of(asked.type, own.type)) for asked, own in pairs])
    if pa.types.is_list(decoded):
        return pa.list_(_with_times_of(schema.value_type, decoded.value_type))
    return schema if pa.types.is_timestamp(schema) else decoded


def _structure_of(kind: Any) -> Any:
    pa = library("pyarrow")
    if pa.types.is_dictionary(kind) or pa.types.is_duration(kind):
        raise TypeError(f"values in JSON are not decoded as {kind}")
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise ValueError(f"schema names a field twice: {', '.join(names)}")
        return {field.name: _structure_of(field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_structure_of(kind.value_type)]
    return str(_duckdb().from_arrow(pa.table({"v": pa.array([], kind)})).types[0])


def _arrow_type(schema: Any) -> Any:
    pa = library("pyarrow")
    if isinstance(schema, pa.DataType):
        return schema
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if hasattr(schema, "keys") and all(isinstance(schema[name], pa.DataType) for name in schema):
        return pa.struct(list(schema.items()))
    pl = library("polars")
    kind = pl.Struct(schema) if hasattr(schema, "keys") else schema
    try:
        return pl.DataFrame(schema={"v": kind}).to_arrow().schema.field("v").type
    except pl.exceptions.PanicException as e:  # of a type that Arrow has not, such as Object
        raise TypeError(f"schema has a type that values in JSON cannot have: {_line(e)}") from None
