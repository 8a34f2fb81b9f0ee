"""Do the links of README and docs lead to pages and headings that there are, and are the files that they name there?"""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:engine|log)/[\w/]+\.\w+|(?:tests|examples|docs|include)/[\w/]+(?:\.\w+)?)`")
ROOM = re.compile(r"^\| (?:`(\w+)`|\(top\)) \| ([\w., ]+) \|", re.MULTILINE)


def text_of(page: Path) -> str:
    return CODE.sub("", page.read_text("utf-8"))


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if heading:
            assert heading in map(anchor, HEADING.findall(text_of(target))), link


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in ("spec.md", "api.md")], ids=lambda p: p.name
)
def test_files_that_are_named_are_there(page: Path) -> None:
    for name in FILE.findall(text_of(page)):
        at = REPOSITORY / ("kstore" if name.startswith(("engine/", "log/")) else "") / name
        assert at.exists() or at.with_suffix(".py").exists(), name


def test_every_module_has_its_room() -> None:
    """The tables of ARCHITECTURE.md name every module of the engine and of the log, and no other."""
    page = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    for floor in ("engine", "log"):
        table = page.partition(f"\n`kstore/{floor}`")[2].split("\n\n")[1]
        named = {f"{room}/{name}" for room, names in ROOM.findall(table) for name in names.split(", ")}
        root = REPOSITORY / "kstore" / floor
        modules = [p for p in root.rglob("*") if p.suffix in (".py", ".pyx", ".h") and p.stem != "__init__"]
        there = {
            f"{'' if p.parent == root else p.parent.name}/{p.stem if p.suffix != '.h' else p.name}"
            for p in modules
        }
        assert named == there
