"""A page as its reader finds it: its tables, its text, and whether its tags close."""

import json
from html.parser import HTMLParser

import kstore

_EMPTY = ("meta", "link", "br")  # elements without an end


class Read(HTMLParser):
    """The tables of a page by title, as lists of dicts; the pictures; the names of its sections."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[dict[str, str]]] = {}
        self.sections: list[str] = []
        self.scripts = 0
        self.text = ""
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self._summary = ""
        self._data = ""
        self.feed(html)
        self.close()
        assert self._open == [], "tags that do not close"
        self.pictures = json.loads(self._data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        assert not any(name.startswith("on") or name == "style" for name in known), known
        if tag in _EMPTY:
            return
        self._open.append(tag)
        self.scripts += tag == "script"
        if tag == "section":
            self.sections.append(known["id"] or "")
        if tag == "summary":
            self._summary = ""
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("th", "td"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "table":
            head, *rows = self._rows
            title = self._summary.removeprefix("Table: ").rpartition(" (")[0]
            self.tables[title] = [dict(zip(head, row, strict=True)) for row in rows]

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("th", "td"):
            self._rows[-1][-1] += data
        if self._open and self._open[-1] == "summary":
            self._summary += data
        if self._open and self._open[-1] == "script" and data.startswith("["):
            self._data += data
        elif self._open and self._open[-1] not in ("script", "style"):
            self.text += data


def read(page: kstore.Page) -> Read:
    """The content of a page."""
    return Read(page.html)


def number(cell: str) -> int:
    """A cell as a number."""
    return int(cell.replace(",", ""))
