"""Builds the documentation as a site, in build/site: python docs/build_site.py

Pages are copied to build/pages under their path in the repository, so that a link leads to the same page on
the site and on GitHub; README.md becomes the start page. mkdocs.yml has the rest.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
STAGE = REPOSITORY / "build" / "pages"
OUTSIDE = (  # what the site has besides docs
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "include/FORMAT.md",
    "tests/README.md",
    "tests/conformance/README.md",
    "benchmarks/report/small.svg",
    "benchmarks/report/figures.svg",
    "benchmarks/report/figures.json",
)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)\)")
FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"( *)(?:[-*+]|\d+\.) ")


def stage() -> None:
    """Copies the pages, and what they show, to build/pages."""
    docs = [p for p in sorted((REPOSITORY / "docs").rglob("*")) if p.suffix in (".md", ".css", ".webp")]
    paths = [*(REPOSITORY / name for name in OUTSIDE), *docs]
    shutil.rmtree(STAGE, ignore_errors=True)
    for path in paths:
        copy = STAGE / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(for_site(path.read_text("utf-8"), path.parent, set(paths)), "utf-8")
        else:
            shutil.copyfile(path, copy)


def for_site(markdown: str, folder: Path, pages: set[Path]) -> str:
    """The text of a page for Python-Markdown, which is stricter than GitHub about lists and the heads of
    code."""

    def link(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        return match[0] if target in pages or not target.exists() else match[1]  # a folder has no page

    parts = FENCE.split(markdown)
    parts[::2] = [_lists(LINK.sub(link, part)) for part in parts[::2]]
    parts[1::2] = [re.sub(r"^(```\w+) .*", r"\1", part) for part in parts[1::2]]
    return "".join(parts)


def _lists(text: str) -> str:
    """Lists begin after an empty line, and a list within one is indented by four."""
    lines: list[str] = []
    levels: list[int] = []  # where the items are indented that are open
    for line in text.split("\n"):
        item = ITEM.match(line)
        if item:
            indent = len(item[1])
            if not levels and lines and lines[-1].strip():
                lines.append("")
            while levels and levels[-1] > indent:
                levels.pop()
            if not levels or levels[-1] < indent:
                levels.append(indent)
            line = " " * 4 * (len(levels) - 1) + line.lstrip()
        elif line and line[0] != " ":
            if lines and not lines[-1]:
                levels = []
        elif levels and line.strip():
            line = " " * 4 * len(levels) + line.lstrip()
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    stage()
    built = subprocess.run(["zensical", "build", "--clean", "--strict"], cwd=REPOSITORY, check=False)
    sys.exit(built.returncode)
