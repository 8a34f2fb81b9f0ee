"""JSON as Jackson prints it (spec 11): compact, in the order given, only what must be escaped."""

import base64
import json
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
    """A double as Java prints it (from Java 19 on; older ones give some a digit too many)."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)  # no exponent yet: Python's begin below 10^-4 and at 10^16
    # as few digits as tell it from its neighbours, but two at least, and then the nearest two
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
    return json.dumps(value)
