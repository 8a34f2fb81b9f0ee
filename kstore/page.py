"""A page of HTML, and the small tables that notebooks show."""

from __future__ import annotations

from kstore.errors import visible
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

_CELL = "text-align:left;padding:2px 12px 2px 0"
_MOST_ROWS = 20


class Page:
    """A report as one HTML file, which loads nothing from elsewhere.

    `html` is its text. `save(path)` writes it. A notebook shows it in a frame.
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file in UTF-8. A file that exists is replaced. OSError."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        from html import escape  # takes time to import

        style = "width:100%;height:720px;border:1px solid #8884;border-radius:6px"
        return f'<iframe title="kstore report" style="{style}" srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<Page of {len(self.html)} characters: save(path) writes it>"


def page_of(subject: object) -> Page:
    """The report of a log or a store. It is made above them, so the function is imported by name."""
    made: Page = __import__("kstore.reporting.report", fromlist=["report"]).report(subject)
    return made


def notebook_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A small table for a notebook, with a title. Of many rows the first ones are shown."""
    from html import escape

    shown = [[visible(cell) for cell in row] for row in rows]
    left = len(shown) - _MOST_ROWS
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(each)}</th>' for each in headings)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in shown[:_MOST_ROWS]
    )
    more = f"<p>and {left} more</p>" if left > 0 else ""
    caption = f'<caption style="text-align:left">{escape(visible(title))}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
