"""kstore compact."""

import json
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.files import contents


@pytest.fixture
def path(tmp_path: Path) -> str:
    with kstore.open(
        tmp_path / "t-0", "a", cleanup_policy="compact", internal_segment_bytes=1000, index_interval_bytes=100
    ) as log:
        for i in range(100):
            log.append(b"value %d" % i, b"key %d" % (i % 10))
        log.roll()
    return str(tmp_path / "t-0")


def test_dry_run_and_run(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(path)
    assert main(["compact", path, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert contents(path) == before
    assert "90 records" in told
    assert "would go: the dirty ratio 1 is above min.cleanable.dirty.ratio, 0.5" in told
    assert main(["compact", path, "--dry-run", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(row["superseded"] for row in rows) == 90
    assert main(["compact", path]) == 0
    assert capsys.readouterr().out == told.replace("would go:", "went:")
    assert [r.offset for r in kstore.open(path)] == list(range(90, 100))
    for more in ([], ["--dry-run"]):
        assert main(["compact", path, *more]) == 0
        assert capsys.readouterr().out.startswith("nothing to do: nothing before offset 100")


@pytest.mark.parametrize("policy", [None, "delete"])
@pytest.mark.parametrize("in_a_store", [True, False])
def test_a_log_that_nobody_wants_compacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str | None, in_a_store: bool
) -> None:
    options = {} if policy is None else {"cleanup_policy": policy}
    path = str(tmp_path / "t-0")
    if in_a_store:
        with kstore.LogStore(tmp_path, mode="a") as store:
            store.create_topic("t", **options)
    with kstore.open(path, "a", **({} if in_a_store else options)) as log:
        log.extend([b"v"] * 10, keys=[b"k"] * 10)
        log.roll()
    for more in (["--dry-run"], []):
        assert main(["compact", path, *more]) != 0
        assert (
            "cleanup_policy is delete" if policy else "--config cleanup.policy=compact"
        ) in capsys.readouterr().err
    assert len(list(kstore.open(path))) == 10
    assert main(["compact", path, "--config", "cleanup.policy=compact"]) == 0
    assert len(list(kstore.open(path))) == 1
