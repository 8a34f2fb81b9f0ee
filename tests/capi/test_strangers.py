"""Projects of other people against kstore.get_include(), copied, built and run elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kstore

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "data"
FIRST = "00000000000000000000.log"
CC = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(CC is None, reason="no C compiler")]

BATCH_A = bytes.fromhex(
    "000000000000000000000049 00000000 02 f1759baf 0000 00000001 0000018bcfe56800 0000018bcfe56805"
    "ffffffffffffffff ffff ffffffff 00000002 1c000000046b3104763102026802781000 0a02046b320100"
)
MARKER = bytes.fromhex(
    "000000000000000200000042 00000000 02 e5c16b79 0030 00000000 0000018bcfe5680a 0000018bcfe5680a"
    "0000000000000009 0003 ffffffff 00000001 20000000 0800000000 0c000000000007 00"
)
EMPTY_BATCH = bytes.fromhex(
    "000000000000000f00000031 0000000f 02 5d4e3d62 0000 00000016 ffffffffffffffff 0000018bcfe56800"
    "0000000000005b7f 0091 000003d7 00000000"
)
MESSAGE_1 = bytes.fromhex(
    "00000000000000320000001a a5da6a62 01 00 0000018bcfe56800 00000002 6b31 00000002 7631"
)


def run(*command: str | Path, cwd: Path, status: int = 0, python: bool = False) -> str:
    """What a new process printed. Python in it finds the kstore that is under test."""
    env = dict(os.environ)
    if python:
        env["PYTHONPATH"] = str(Path(kstore.__file__).parents[1])
    else:
        env.pop("LD_PRELOAD", None)  # a sanitizer preloaded for Python
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=cwd, timeout=300)
    assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_python(code: str, cwd: Path) -> str:
    return run(sys.executable, "-c", code, cwd=cwd, python=True)


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As a stranger asks for it: in another process, from another directory."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    return run_python("import kstore; print(kstore.get_include())", elsewhere).rstrip("\n")


@pytest.fixture(scope="module")
def walk(include: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("c") / "project"
    shutil.copytree(HERE / "c", project)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    run(str(CC), *flags, f"-I{include}", "walk.c", "-o", "walk", cwd=project)
    return project / "walk"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A log of one segment with one batch of each kind."""
    partition = tmp_path / "small-0"
    partition.mkdir()
    (partition / FIRST).write_bytes(BATCH_A + MARKER + EMPTY_BATCH + MESSAGE_1)
    return partition


def lines_by_kstore(log: Path) -> list[str]:
    """The lines that walk prints for this file, from kstore's own objects."""
    lines = []
    total = 0
    partition = kstore.open(log.parent, recover=False, clean=True)
    segment = next(each for each in partition.segments if Path(each.path) == log)
    position = 0
    while position < segment.size:
        batch = segment.batch_at(position)
        batch.ensure_valid()
        if batch.magic == 2 or batch.codec == "none":
            count = len(batch.records())
            base = batch.base_offset
        else:
            count, base = -1, batch.last_offset  # the header of a wrapper has neither
        codec = ("none", "gzip", "snappy", "lz4", "zstd").index(batch.codec)
        lines.append(
            f"{position} magic {batch.magic} offsets {base} {batch.last_offset}"
            f" records {count} codec {codec} crc {batch.crc:08x}"
        )
        total += max(count, 0)
        position += batch.size
    size = log.stat().st_size
    summary = f"{len(lines)} batches, {total} records, {position} of {size} bytes"
    return [*lines, summary]


def test_c_program_reads_a_small_log(walk: Path, small: Path) -> None:
    lines = run(walk, small / FIRST, cwd=small).splitlines()
    assert lines == lines_by_kstore(small / FIRST)
    assert lines[0] == "0 magic 2 offsets 0 1 records 2 codec 0 crc f1759baf"
    assert lines[2] == "163 magic 2 offsets 15 37 records 0 codec 0 crc 5d4e3d62"
    assert lines[-1] == "4 batches, 4 records, 262 of 262 bytes"


def test_c_program_reads_what_kafka_wrote(walk: Path, tmp_path: Path) -> None:
    names = ("headers", "codec_mixed", "transactions", "magic0", "magic_upgrade", "compact_2_cleaned")
    logs = [log for name in names for log in sorted((GOLDEN / name).glob("*-*/*.log"))]
    assert len(logs) > 10
    for log in logs:
        assert run(walk, log, cwd=tmp_path).splitlines() == lines_by_kstore(log), log


def test_c_program_finds_damage_where_kstore_does(walk: Path, small: Path) -> None:
    log = small / FIRST
    data = bytearray(log.read_bytes())
    data[len(BATCH_A) + 70] ^= 1
    log.write_bytes(data)
    *_, summary, fault = run(walk, log, cwd=small, status=1).splitlines()
    assert summary == "1 batches, 2 records, 85 of 262 bytes"
    with pytest.raises(kstore.CorruptRecordError) as caught:
        kstore.open(small, recover=False).segments[0].batch_at(len(BATCH_A)).ensure_valid()
    at = caught.value
    assert at.position == len(BATCH_A) + 17
    assert fault == (f"status -4 at byte {at.position}: expected {at.expected}, found {at.found}")
    assert kstore.open(small, clean=False).log_end_offset == 2


@pytest.mark.parametrize("cut", [1, 20, 37])
def test_c_program_stops_at_a_torn_tail(walk: Path, small: Path, cut: int) -> None:
    log = small / FIRST
    log.write_bytes(log.read_bytes()[:-cut])
    *_, summary, fault = run(walk, log, cwd=small, status=1).splitlines()
    assert summary == f"3 batches, 3 records, 224 of {262 - cut} bytes"
    assert fault.startswith("status -1 at byte 224: ")
    assert kstore.open(small, clean=False).log_end_offset == 38


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("Cython", reason="Cython is not installed")
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    project = tmp_path_factory.mktemp("cython") / "project"
    shutil.copytree(HERE / "cython", project)
    run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=project, python=True)
    return project


def test_cython_module_runs_without_kstore(stranger: Path, tmp_path: Path) -> None:
    """The declarations are all it needed: it neither imports kstore nor links to it."""
    code = f"""if True:
        import json, sys
        sys.path.insert(0, {str(stranger)!r})
        import stranger
        b, records = stranger.batch({BATCH_A!r})
        wrong = None
        try:
            stranger.batch({BATCH_A[:-1]!r})
        except ValueError as e:
            wrong = e.args
        print(json.dumps({{
            "checksum": stranger.checksum(b"123456789"),
            "long": stranger.checksum(bytes(range(256)) * 16),
            "none": stranger.checksum(b""),
            "constants": stranger.CONSTANTS,
            "batch": b,
            "records": [[offset, timestamp, key.decode()] for offset, timestamp, key in records],
            "wrong": wrong,
            "imported": [name for name in sys.modules if name.startswith(("kstore", "libkstore"))],
        }}))
    """
    found = json.loads(run_python(code, tmp_path))
    assert found["checksum"] == [0xE3069283, 0xE3069283]
    assert found["long"][0] == found["long"][1]
    assert found["none"] == [0, 0]
    assert found["constants"] == [21, 61]
    assert found["records"] == [[0, 1700000000000, "k1"], [1, 1700000000005, "k2"]]
    assert found["wrong"] == [-1, 0, 85, 84]
    assert found["imported"] == []
    batch = found["batch"]
    ours = kstore.RecordBatch(BATCH_A)
    assert len(batch) == 14
    assert batch == {name: getattr(ours, name) for name in batch}


def test_include_directory_is_whole(include: str) -> None:
    """Every file that the two kinds of user need, and the description, in an installed copy too."""
    found = {path.relative_to(include).as_posix() for path in Path(include).rglob("*.*")}
    assert found >= {
        "FORMAT.md",
        "kstore/columns.h",
        "kstore/crc32c.h",
        "kstore/format.h",
        "kstore/lz4.h",
        "kstore/snappy.h",
        "libkstore/__init__.pxd",
        "libkstore/columns.pxd",
        "libkstore/crc32c.pxd",
        "libkstore/format.pxd",
        "libkstore/lz4.pxd",
        "libkstore/snappy.pxd",
    }
