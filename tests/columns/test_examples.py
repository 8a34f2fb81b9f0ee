"""examples/columns.py: four libraries, and a loop over records, say the same."""

import runpy
from pathlib import Path

import pytest

import kstore

EXAMPLE = Path(__file__).parents[2] / "examples" / "columns.py"
T0 = 1_700_000_000_000


@pytest.mark.parametrize("library", ["pyarrow", "polars", "duckdb", "pandas"])
def test_the_same_everywhere(tmp_path: Path, library: str) -> None:
    if not EXAMPLE.exists():
        pytest.skip("no examples beside these tests")
    pytest.importorskip(library)
    pytest.importorskip("pyarrow")
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=20_000) as log:
        for i in range(2000):
            log.append(b"v" * (i % 37) if i % 10 else None, key=b"k%d" % (i % 5), timestamp=T0 + i)
    log = kstore.open(tmp_path / "t-0")
    since = T0 + 700
    expected: dict[bytes, tuple[int, int]] = {}
    for record in log:
        if record.timestamp >= since:
            count, size = expected.get(record.key, (0, 0))
            expected[record.key] = (count + 1, size + len(record.value or b""))
    found = runpy.run_path(str(EXAMPLE))[f"with_{library}"](log, since)
    assert found == [(key, *expected[key]) for key in sorted(expected)]
