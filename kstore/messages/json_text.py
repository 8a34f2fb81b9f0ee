"""JSON as Jackson prints it (spec 11): compact, in the given order, with as few escapes as possible."""

import base64
import math
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | bytes | list["Value"] | dict[str, "Value"] | None

_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\f"): "\\f",
    ord("\r"): "\\r",
}


def java_float(number: float) -> str:
    """A double as Java 19 prints it. Older versions print a digit too many for some."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)  # without an exponent; Python uses one below 10^-4 and from 10^16 on
    # as few digits as distinguish it from its neighbours; at least two, rounded to the nearest
    digits = max(len(_digits(repr(number))), 2)
    mantissa, _, exponent = f"{number:.{digits - 1}e}".partition("e")
    return f"{mantissa}E{int(exponent)}"


def _digits(text: str) -> str:
    return text.partition("e")[0].replace(".", "").strip("-").strip("0")


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def json_text(value: Value) -> str:
    """The text of a value; bytes as base64, numbers that JSON lacks as strings."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, float):
        text = java_float(value)
        return text if math.isfinite(value) else f'"{text}"'
    return "null" if value is None else str(value).lower()
