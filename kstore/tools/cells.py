"""Keys, values and headers as cells of a CSV file, which spreadsheets take for formulas if they begin like
one."""

import re

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# what OWASP names, the same in full width, and what begins so once quotes are put in front
_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")


def guarded(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: ' is put in front of what would be one, unless it is a
    number.

    Goes back by taking one ' from the front of what then begins with any number of ' and one of those
    characters.
    """
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return "'" + text
    return text
