"""The tables at the end of a run, figures.json and the picture."""

import json
import os
import platform
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.interleave import Comparison, Figure
from benchmarks.scaling import Curve

HERE = Path(__file__).parent
HEAD = ("figure", "per", "kstore", "against", "its time", "ratio", "quartiles", "goal", "held")


def table(figures: Iterable[Figure]) -> list[str]:
    """One line for each pair. Ratios: "x fast" is kstore's speed over theirs, "x time" its time over
    theirs."""
    rows: list[tuple[str, ...]] = [HEAD]
    for f in figures:
        first = [f.name, f.unit, short_time(median(next(iter(f.samples.values()))))]
        for c in f.compare():
            low, high = c.spread
            ratio = f"{c.median:.3g} x {'fast' if c.kind == 'speed' else 'time'}"
            held = "" if c.held is None else "yes" if c.held else "NO"
            theirs = short_time(median(f.samples[c.against]))
            spread = f"{low:.3g} .. {high:.3g}"
            rows.append((*first, c.against, theirs, ratio, spread, c.goal or "", held))
            first = ["", "", ""]
        for name, reason in f.missing.items():
            rows.append((*first, name, "missing:", reason[:60], "", "", ""))
            first = ["", "", ""]
    return aligned(rows)


def summary(figures: Iterable[Figure]) -> list[str]:
    """kstore's speed over that of the best peer and of the machine's limit: more than 1 is faster."""
    rows: list[tuple[str, ...]] = [
        ("figure", "kstore", "best peer", "ratio", "quartiles", "limit", "ratio", "quartiles")
    ]
    for f in figures:
        ours = short_time(median(next(iter(f.samples.values()))))
        cells = [cell for limit in (False, True) for cell in _cells(f.best(limit=limit))]
        rows.append((f.name, f"{ours}/{f.unit}", *cells))
    return aligned(rows)


def _cells(of: Comparison | None) -> tuple[str, str, str]:
    if of is None:
        return "none", "", ""
    low, high = of.spread
    return of.against, f"{of.median:.3g}", f"{low:.3g} .. {high:.3g}"


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def write(
    figures: Iterable[Figure], curves: Iterable[Curve], run: dict[str, Any], directory: Path
) -> Iterator[Path]:
    """figures.json, and a picture of it where matplotlib is there."""
    directory.mkdir(parents=True, exist_ok=True)
    out = directory / "figures.json"
    parts = [
        ",\n".join(json.dumps(_rounded(each.as_json())) for each in several) for several in (figures, curves)
    ]
    about = json.dumps(machine() | run)
    out.write_text(f'{{"run": {about},\n"figures": [\n{parts[0]}\n],\n"scaling": [\n{parts[1]}\n]}}\n')
    yield out
    try:
        from benchmarks import picture
    except ImportError:
        return  # no matplotlib, no picture
    yield picture.draw(out)


def _rounded(value: Any) -> Any:
    """Numbers to five digits: more would only be noise."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value


def machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")


def short_time(ns: float) -> str:
    for unit, scale in (("ns", 1), ("us", 1e3), ("ms", 1e6)):
        if ns < 1000 * scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"
