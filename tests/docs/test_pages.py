"""Links, names of files and references lead somewhere, and the README is short."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import kstore
import kstore.logging
import kstore.spark
import kstore.testing

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
PAGES = [README, REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
API = sorted((DOCS / "reference").glob("*.md"))
ENTRY = re.compile(r"^::: (kstore\.[\w.]+)$", re.MULTILINE)  # what a page of the API shows
LINK = re.compile(r"\]\(([^)\s]+)\)")
TITLE = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:engine|log)/[\w/]+\.\w+|(?:tests|examples|docs|include)/[\w/]+(?:\.\w+)?)`")
ROOM = re.compile(r"^\| (?:`(\w+)`|\(top\)) \| ([\w., ]+) \|", re.MULTILINE)
SPECS = {"": "spec.md", "spark ": "spec-spark.md"}
NUMBER = r"\d+(?:\.\d+)?"
# spec 7.1; spec 6.3, 6.5; spec 7.4 to 7.6; spec spark 3.5
REFERENCE = re.compile(rf"\b[Ss]pec (spark )?({NUMBER}(?:(?:,| and| to) {NUMBER})*)")
SECTION = re.compile(rf"^#+ ({NUMBER})\b", re.MULTILINE)
SOURCES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}
MACHINE = re.compile(r"(?<![\w.])/(?:work|home|tmp|root|mnt)/")


def text_of(page: Path) -> str:
    return CODE.sub("", page.read_text("utf-8"))


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_names_of_files_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if heading:
            text = text_of(target)
            assert heading in [*map(anchor, TITLE.findall(text)), *ENTRY.findall(text)], link
    for name in FILE.findall(text_of(page)) if page.name != "spec.md" else ():
        at = REPOSITORY / ("kstore" if name.startswith(("engine/", "log/")) else "") / name
        assert at.exists() or at.with_suffix(".py").exists(), name


@pytest.mark.parametrize(
    "module",
    [kstore, kstore.explain, kstore.logging, kstore.spark, kstore.testing],
    ids=lambda each: each.__name__,
)
def test_every_public_name_is_on_one_page_of_the_api(module: ModuleType) -> None:
    shown = [name for page in API for name in ENTRY.findall(page.read_text("utf-8"))]
    names = [
        n for n in module.__all__ if n != "__version__" and not isinstance(getattr(module, n), ModuleType)
    ]
    public = [f"{module.__name__}.{name}" for name in names]
    assert [name for name in public if shown.count(name) != 1] == []


def test_the_site_has_every_page_in_its_navigation() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2].partition("\n\n")[0]
    pages = [page.relative_to(REPOSITORY).as_posix() for page in PAGES]
    assert [
        page for page in pages if not re.search(rf"[-:] {re.escape(page)}$", navigation, re.MULTILINE)
    ] == []


def test_every_module_has_its_room() -> None:
    """The tables of ARCHITECTURE.md name every module of the engine and of the log, and no other."""
    page = (DOCS / "ARCHITECTURE.md").read_text("utf-8")
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


def test_references_to_the_spec_lead_to_a_section() -> None:
    known = {spec: set(SECTION.findall((DOCS / page).read_text("utf-8"))) for spec, page in SPECS.items()}
    rooms = [REPOSITORY / room for room in ("kstore", "include", "tests/conformance", "tests/unit")]
    references = [
        (path.relative_to(REPOSITORY), spec, number)
        for path in (p for room in rooms for p in sorted(room.rglob("*")) if p.suffix in SOURCES)
        for spec, numbers in REFERENCE.findall(path.read_text("utf-8"))
        for number in re.findall(NUMBER, numbers)
    ]
    assert len(references) > 100  # else the pattern no longer fits what the code says
    assert [r for r in references if r[2] not in known[r[1]]] == []


def test_no_path_of_a_machine() -> None:
    """The specifications were written elsewhere."""
    for page in SPECS.values():
        assert MACHINE.findall((DOCS / page).read_text("utf-8")) == []


def test_the_readme_is_short_and_needs_nothing_that_a_new_user_lacks() -> None:
    """Its blocks run one after another in an empty directory (see test_code_blocks)."""
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) <= 120
    assert not any(line.lstrip().startswith("make ") for line in lines)  # that is for CONTRIBUTING.md
    assert "kafka-data" not in README.read_text("utf-8")
