"""examples/pipeline.py gives what is computed without Spark."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]
EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.py"


def test_pipeline(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(EXAMPLE.parent), *__import__("sys").path])
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parent))
    spec = importlib.util.spec_from_file_location("pipeline", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    pipeline = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pipeline)
    assert pipeline.land(tmp_path) > 400
    found, wanted = pipeline.run(spark, tmp_path), pipeline.expected()
    assert found["batches"] >= 2
    assert found["sizes"] == wanted["sizes"]
    assert found["parquet"] == wanted["windows"]
    assert found["windows"] == wanted["windows"]
