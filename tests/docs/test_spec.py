"""Does every "(spec N.M)" in the code lead to a section of docs/spec.md?"""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SPECS = {"": "spec.md", "spark ": "spec-spark.md"}
NUMBER = r"\d+(?:\.\d+)?"
# spec 7.1; spec 6.3, 6.5; spec 7.4 to 7.6; spec spark 3.5
REFERENCE = re.compile(rf"\b[Ss]pec (spark )?({NUMBER}(?:(?:,| and| to) {NUMBER})*)")
HEADING = re.compile(rf"^#+ ({NUMBER})\b", re.MULTILINE)
SOURCES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}
MACHINE = re.compile(r"(?<![\w.])/(?:work|home|tmp|root|mnt)/")


def sources() -> list[Path]:
    rooms = ("kstore", "include", "tests/conformance", "tests/unit")
    return [p for room in rooms for p in sorted((REPOSITORY / room).rglob("*")) if p.suffix in SOURCES]


def test_references_lead_somewhere() -> None:
    known = {
        spec: set(HEADING.findall((REPOSITORY / "docs" / page).read_text("utf-8")))
        for spec, page in SPECS.items()
    }
    references = [
        (path.relative_to(REPOSITORY), spec, number)
        for path in sources()
        for spec, numbers in REFERENCE.findall(path.read_text("utf-8"))
        for number in re.findall(NUMBER, numbers)
    ]
    assert len(references) > 100  # else the pattern no longer fits what the code says
    assert [r for r in references if r[2] not in known[r[1]]] == []


def test_no_path_of_a_machine() -> None:
    """The pages were written elsewhere: no path of the machine they come from is left in them."""
    for page in SPECS.values():
        assert MACHINE.findall((REPOSITORY / "docs" / page).read_text("utf-8")) == []
