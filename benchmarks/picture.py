"""The picture of figures.json: bars of ratios, and the curves. By hand: python -m benchmarks.picture
FIGURES.json"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kstore", "font.size": 8})

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

COLOURS = {"best_peer": "#3f6fb5", "limit": "#b58a3f"}
NAMES = {"best_peer": "the best peer", "limit": "the machine's limit in C"}
ACROSS = 3


def draw(figures: Path) -> Path:
    report = json.loads(figures.read_text())
    groups: dict[str, list[Any]] = {}
    for curve in report["scaling"]:
        groups.setdefault(curve["against"], []).append(curve)
    bars = [figure for figure in report["figures"] if figure["best_peer"] or figure["limit"]]
    rows = -(-len(groups) // ACROSS)
    heights = [max(len(bars) * 0.32, 1.0)] * bool(bars) + [2.6] * rows
    whole = plt.figure(figsize=(11, sum(heights) + 1.2), layout="constrained")
    grid = whole.add_gridspec(len(heights) or 1, ACROSS, height_ratios=heights or [1])
    if bars:
        _bars(whole.add_subplot(grid[0, :]), bars)
    for i, (against, curves) in enumerate(groups.items()):
        _curves(whole.add_subplot(grid[bool(bars) + i // ACROSS, i % ACROSS]), against, curves)
    whole.suptitle(_title(report["run"]), fontsize=8)
    out = figures.with_suffix(".svg")
    whole.savefig(out, metadata={"Date": None})
    plt.close(whole)
    return out


def _title(run: dict[str, Any]) -> str:
    """Machine, versions, date."""
    there = [f"{k} {v}" for k, v in run["contestants"].items() if not v.startswith("missing")]
    return (
        f"kstore's speed over others', {run['date']}: {run['cores']} x {run['cpu']}, Python {run['python']}, "
        f"{run['mib']} MiB, {run['rounds']} rounds\n" + "; ".join(there)
    )


def _bars(axes: Any, figures: list[Any]) -> None:
    for place, figure in enumerate(figures):
        for kind, shift in (("best_peer", -0.2), ("limit", 0.2)):
            ratio = figure[kind]
            if ratio is None:
                continue
            middle, (low, high) = ratio["median"], ratio["spread"]
            axes.barh(
                place + shift,
                middle - 1,
                left=1,  # to the right of 1: kstore is faster
                height=0.38,
                color=COLOURS[kind],
                xerr=[[middle - low if middle > low else 0], [high - middle if high > middle else 0]],
                error_kw={"lw": 0.8},
            )
            text = f" {ratio['name']} {middle:.2f} "
            side = "left" if middle >= 1 else "right"
            axes.text(
                max(high, middle) if middle >= 1 else min(low, middle),
                place + shift,
                text,
                va="center",
                ha=side,
                fontsize=6,
            )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 2.5, high * 2.5)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_yticks(range(len(figures)), [figure["name"] for figure in figures])
    axes.set_ylim(len(figures) - 0.4, -0.6)
    axes.set_xlabel("times as fast (median, quartiles)")
    axes.legend(
        [Patch(color=COLOURS[kind]) for kind in NAMES],
        NAMES.values(),
        loc="lower right",
    )


def _curves(axes: Any, against: str, curves: list[Any]) -> None:
    for curve in curves:
        sizes, middle, low, high = zip(*curve["points"], strict=True)
        [line] = axes.plot(sizes, middle, marker="o", ms=3, label=f"{curve['name']}, {curve['unit']}")
        axes.fill_between(sizes, low, high, alpha=0.2, color=line.get_color(), lw=0)
    axes.set(xscale="log", yscale="log", xlabel=against, ylabel="ns a unit")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)


if __name__ == "__main__":
    print(draw(Path(sys.argv[1])))
