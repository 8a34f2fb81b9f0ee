"""README.md names tests that exist."""

import re
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).parent


def test_named_tests_exist() -> None:
    text = (HERE / "README.md").read_text("utf-8")
    files = [path for folder in (HERE, HERE.parent / "store") for path in folder.glob("test_*.py")]
    names = {path.name for path in files}
    for path in files:
        names |= set(re.findall(r"^ *def (test_\w+)", path.read_text("utf-8"), re.MULTILINE))
    wanted = re.findall(r"`(test_[\w*]+(?:\.py)?)`", text)
    assert len(wanted) > 60
    assert [name for name in wanted if not any(fnmatch(each, name) for each in names)] == []
