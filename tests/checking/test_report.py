"""What kstore.check returns."""

import json
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_command


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v" * 100] * 100, batch_bytes=1000)
    return path


def test_a_whole_partition(log: Path) -> None:
    report = kstore.check(log)
    assert (report.findings, report.worst, report.is_whole, report.problems()) == ((), "", True, [])
    assert (report.path, report.partitions, report.files) == (str(log), 1, 1)
    assert report.bytes == (log / f"{0:020}.log").stat().st_size
    assert str(report).startswith(f"{log}: whole")


def test_a_damaged_batch(log: Path) -> None:
    file = log / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)
    report = kstore.check(log)
    assert not report.is_whole
    (finding,) = report.problems()
    assert (finding.code, finding.severity, finding.file) == ("corrupt_batch", report.worst, str(file))
    assert (finding.position, finding.stops_kafka) == (0, False)
    assert json.loads(json.dumps(report.as_dict()))["findings"][0]["code"] == "corrupt_batch"
    summary, line = str(report).splitlines()
    assert "1 damaged" in summary
    assert str(file) in line
    with pytest.raises(ValueError, match="severity"):
        report.problems("bad")


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_the_offsets_of_damage_are_those_that_a_repair_loses(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(5):
            log.extend([b"v"] * 10)
    file = path / f"{0:020}.log"
    size = file.stat().st_size // 5
    for batch in (1, 4):
        data = bytearray(file.read_bytes())
        data[batch * size + 70] ^= 1
        file.write_bytes(data)
    found = [each for each in kstore.check(path).problems() if each.code == "corrupt_batch"]
    assert [each.offsets for each in found][:1] == [(10, 19)]
    assert found[1].offsets is not None
    assert found[1].offsets[0] == 40
    assert all("the records after them stay" in each.remedy for each in found)
    kstore.repair(path, run=True)
    assert [record.offset for record in kstore.open(path)] == [*range(10), *range(20, 40)]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(kstore.LogNotFoundError):
        kstore.check(tmp_path / "orders-0")


@pytest.mark.parametrize("content", [b"", b"a segment", b"[1]"])
@pytest.mark.parametrize("option", [("repair", "--plan"), ("check", "--resume")])
def test_no_other_file_is_overwritten(log: Path, option: tuple[str, str], content: bytes) -> None:
    command, name = option
    file = log.parent / "saved"
    for _ in range(2):  # it is made, and read
        assert run_command(command, log, name, file).returncode == 0
    file.write_bytes(content)
    assert run_command(command, log, name, file).returncode in (1, 2)
    assert file.read_bytes() == content


def test_a_manifest_that_is_not_there(log: Path) -> None:
    assert run_command("check", log, "--manifest", log / "nothing").returncode == 2
