"""The README's picture: five figures of report/figures.json as bars, small enough for a phone.

python -m benchmarks.small_picture writes report/small.svg, and prints what it shows.
"""

import json
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.report import short_time

REPORT = Path(__file__).parent / "report"
FIGURES = {  # figure: what the picture calls it, and one of its units
    "extend_arrays": ("append in bulk", "each"),
    "durable_8_threads": ("append, 8 threads, synced", "each"),
    "read_one": ("read one by offset", "each"),
    "scan": ("read all as columns", "each"),
    "recover": ("recover after a crash", "a byte"),
}
PEER = "Kafka"
WIDTH, ROW, LEFT, SCALE = 360, 50, 12, 336
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
font-family="Helvetica, Arial, sans-serif" role="img">"""
TEXT = '<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{more}>{text}</text>'


def draw(report: dict[str, Any]) -> str:
    """The picture as SVG. A bar is kstore's speed, of which the dark part is the peer's."""
    figures = {figure["name"]: figure for figure in report["figures"]}
    ratios = _ratios(report)
    unit = SCALE / max(ratios.values())
    version = report["run"]["contestants"][PEER].split(",")[0]
    height = 40 + ROW * len(FIGURES) + 24
    lines = [
        SVG.format(width=WIDTH, height=height),
        f"<title>kstore's speed, Kafka {version} = 1</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 24, 15, "kstore's speed over Kafka's", more=' font-weight="bold"'),
    ]
    for place, (name, (words, a_unit)) in enumerate(FIGURES.items()):
        top, times = 40 + ROW * place, figures[name]["median_ns"]
        ours, theirs = (short_time(times[who]) for who in ("kstore", PEER))
        lines += [
            _text(LEFT, top + 13, 13, words),
            f'<rect x="{LEFT}" y="{top + 19}" width="{ratios[name] * unit:.0f}" height="18" fill="#3f6fb5"/>',
            f'<rect x="{LEFT}" y="{top + 19}" width="{unit:.0f}" height="18" fill="#26446f"/>',
            _text(LEFT + 5, top + 32, 12, "Kafka", "#ffffff"),
            _text(
                LEFT + ratios[name] * unit - 6,
                top + 32,
                12,
                f"{ratios[name]:.1f} x",
                "#ffffff",
                ' text-anchor="end"',
            ),
            _text(
                WIDTH - LEFT,
                top + 13,
                11,
                f"{ours}, Kafka {theirs} {a_unit}",
                "#444444",
                ' text-anchor="end"',
            ),
        ]
    run = report["run"]
    lines += [
        _text(
            LEFT,
            height - 10,
            11,
            f"Kafka {version}, {run['date'][:10]}, {run['cores']} cores of an {run['cpu']}",
            "#444444",
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def in_words(report: dict[str, Any]) -> str:
    """What the picture shows, for those who do not see it."""
    ratios = _ratios(report)
    return (
        f"kstore's speed over Kafka's: {'; '.join(f'{FIGURES[n][0]} {r:.1f} x' for n, r in ratios.items())}"
    )


def _ratios(report: dict[str, Any]) -> dict[str, float]:
    figures = {figure["name"]: figure for figure in report["figures"]}
    return {
        name: next(c["median"] for c in figures[name]["comparisons"] if c["against"] == PEER)
        for name in FIGURES
    }


def _text(x: float, y: float, size: int, text: str, fill: str = "#111111", more: str = "") -> str:
    return TEXT.format(x=round(x), y=y, size=size, fill=fill, more=more, text=escape(text))


if __name__ == "__main__":
    report = json.loads((REPORT / "figures.json").read_text())
    (REPORT / "small.svg").write_text(draw(report))
    print(in_words(report))  # goes into the README
