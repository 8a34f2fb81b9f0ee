"""JSON as Jackson and Java print it."""

import pytest

from kstore.tools.decoders.json_text import java_float, json_text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (123456789.125, "1.23456789125E8"),
        (1e16, "1.0E16"),
        (1e22, "1.0E22"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-5, "1.0E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (1e-323, "9.9E-324"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles(number: float, text: str) -> None:
    assert java_float(number) == text


def test_json() -> None:
    assert json_text('\x1f\x7f\b\t\n\f\r"\\/ü漢😀\u2028\0') == (
        '"\\u001F\x7f\\b\\t\\n\\f\\r\\"\\\\/ü漢😀\u2028\\u0000"'
    )
    assert json_text({"a": [1, None, True, b"\xff\xfe"], "b": {}, "c": []}) == (
        '{"a":[1,null,true,"//4="],"b":{},"c":[]}'
    )
    assert json_text([float("nan"), -float("inf"), 2.5]) == '["NaN","-Infinity",2.5]'
