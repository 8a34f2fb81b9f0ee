"""records --format arrow and parquet."""

import io
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import kstore
from kstore.__main__ import main


def partition() -> str:
    found = Path(__file__).parents[1] / "golden" / "data" / "transactions"
    return str(next(p for p in found.iterdir() if p.is_dir() and p.name != "expected"))


def right(isolation: str) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for r in kstore.open(partition()).records(isolation=isolation)]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_to_a_file(tmp_path: Path, form: str) -> None:
    out = tmp_path / f"records.{form}"
    assert (
        main(["records", partition(), "--format", form, "--output", str(out), "--columns", "offset,value"])
        == 0
    )
    table = pyarrow.parquet.read_table(out) if form == "parquet" else pyarrow.ipc.open_stream(out).read_all()
    rows = table.to_pydict()
    assert list(zip(rows["offset"], rows["value"], strict=True)) == right("read_uncommitted")


def test_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options = ["--isolation", "read_committed", "--format", "arrow"]
    assert main(["records", partition(), *options]) == 0
    sys.stdout.flush()
    rows = pyarrow.ipc.open_stream(io.BytesIO(capfdbinary.readouterr().out)).read_all().to_pydict()
    assert list(zip(rows["offset"], rows["value"], strict=True)) == right("read_committed")


def test_what_does_not_go(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--redact"], ["--control"], ["--columns", "nothing"]):
        assert main(["records", partition(), "--format", "arrow", "--output", "/dev/null", *wrong]) == 2
        assert capsys.readouterr().err.startswith("kstore: ")


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit, match="pip install pyarrow"):
        main(["records", partition(), "--format", "parquet", "--output", "/dev/null"])
