"""The text of a page: its sections as HTML, with the style sheet and the programs in it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from kstore._version import __version__
from kstore.errors import visible
from kstore.reporting.words import ago_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kstore.reporting.facts import Facts
    from kstore.reporting.sections import Picture, Section, Table

_ROW = 24  # pixels of a bar
_WIDER = ' class="w"'
_WIDE = ("meaning", "remedy", "why", "file", "policy")


def document(facts: Facts, sections: Sequence[Section]) -> str:
    """The page as one file. Its policy lets a browser run and load nothing but what is in it."""
    pictures = [picture for section in sections for picture in section.pictures]
    numbers = {id(picture): at for at, picture in enumerate(pictures)}
    heights = "".join(f"#box-{at}{{height:{_height(each)}px}}" for at, each in enumerate(pictures))
    style, scripts = _asset("report.css") + heights, [_asset("chart.js"), _asset("report.js")]
    policy = (
        f"default-src 'none'; img-src data:; style-src {_source(style)}; "
        f"script-src {' '.join(map(_source, scripts))}; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(pictures, separators=(",", ":")).replace("<", "\\u003c")
    links = "".join(f'<a href="#{each.name}">{_text(each.title)}</a>' for each in sections)
    where = ", ".join(facts.directories)
    title = _text(facts.title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - kstore report</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<button id="theme" type="button" disabled>Dark</button>
<p>{_text(where)}. Made {time_text(facts.made)} UTC by kstore {__version__}; all times are UTC.</p>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{_figures(facts)}
{"".join(_section(each, numbers) for each in sections)}</main>
<footer>Point at a picture to see its values, or select it with Tab and use the arrow keys. The pictures are
drawn by Chart.js, © Chart.js Contributors, under the MIT licence.</footer>
<script id="pictures" type="application/json">{data}</script>
{"".join(f"<script>{each}</script>" for each in scripts)}
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return files("kstore.reporting").joinpath("assets", name).read_text("utf-8")


def _source(text: str) -> str:
    """How a policy names a style sheet or a program inside of the page."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(text: object) -> str:
    return escape(visible(text))


def _height(picture: Picture) -> int:
    """The pixels of a picture, which are fixed so that nothing moves when it is drawn."""
    if picture["kind"] in ("bars", "spans"):
        has_legend = picture["kind"] == "spans" or len(picture["series"]) > 1
        return max(len(picture["labels"]), 2) * _ROW + 40 + 36 * has_legend
    return 300


def _figures(facts: Facts) -> str:
    size = sum(each.size for each in facts.partitions)
    cached = sum(each.cached for each in facts.partitions)
    newest = max((each.max_timestamp for each in facts.partitions), default=-1)
    records = sum(each.records for each in facts.partitions)
    figures = {
        "Partitions": f"{len(facts.partitions):,}",
        "Segments": f"{sum(len(each.segments) for each in facts.partitions):,}",
        "Bytes": size_text(size),
        "Records": f"{records:,}" + "+" * bool(facts.unread),
        "Newest record": ago_text(facts.made - newest) if newest >= 0 else "-",
        "In the page cache": f"{cached / size:.0%}" if size else "-",
        "Open transactions": f"{len(facts.transactions):,}",
        "Findings": f"{len(facts.findings):,}",
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{_text(value)}</dd></div>" for name, value in figures.items())
    return f'<dl class="figures">{items}</dl>'


def _section(section: Section, numbers: dict[int, int]) -> str:
    pictures = "".join(_picture(each, numbers[id(each)]) for each in section.pictures)
    tables = "".join(_table(each, is_open=not section.pictures) for each in section.tables)
    return (
        f'<section id="{section.name}" aria-labelledby="{section.name}-title">'
        f'<h2 id="{section.name}-title">{_text(section.title)}</h2><p>{_text(section.text)}</p>'
        f"{pictures}{tables}</section>\n"
    )


def _picture(picture: Picture, at: int) -> str:
    label = _text(picture["label"])
    return (
        f'<div class="picture"><h3>{label}</h3><div id="box-{at}">'
        f'<canvas id="picture-{at}" tabindex="0" role="img" '
        f'aria-label="{label}: a table follows"></canvas></div>'
        f'<div id="said-{at}" class="said" aria-live="polite"></div></div>'
    )


def _table(table: Table, *, is_open: bool) -> str:
    head = "".join(f'<th scope="col">{_text(each)}</th>' for each in table.headings)
    wide = [each in _WIDE for each in table.headings]
    body = "".join(f"<tr>{''.join(_cells(row, wide))}</tr>" for row in table.rows)
    more = f"<p>{table.left_out:,} more rows are left out.</p>" if table.left_out else ""
    count = len(table.rows) + table.left_out
    return (
        f"<details{' open' * is_open}><summary>Table: {_text(table.title)} ({count:,})</summary>"
        f'<div class="wide" tabindex="0" role="region" aria-label="Table of {_text(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}</details>"
    )


def _cells(row: Iterable[object], wide: Iterable[bool]) -> Iterable[str]:
    for cell, is_wide in zip(row, wide, strict=True):
        if isinstance(cell, int | float):
            yield f'<td class="n">{cell:,}</td>'
        elif cell in ("lost", "damaged"):
            yield f'<td class="{cell}">{cell}</td>'
        else:
            yield f"<td{_WIDER if is_wide else ''}>{_text(cell)}</td>"
