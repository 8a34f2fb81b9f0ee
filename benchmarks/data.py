"""The data that all contestants read: deterministic, written once by limits/fixtures.c, kept in build/."""

import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
BUILD = HERE / "build"
T0 = 1_700_000_000_000  # timestamp of offset 0; ten records a millisecond
BATCH_RECORDS = 138  # 100 bytes of value and 8 of key each: a batch of 16,281 bytes
BATCH_BYTES = 16_281
SINGLE_BYTES = 178  # a batch of one record
VALUE_BYTES = 100
ROWS = 1000 * BATCH_RECORDS  # rows of a column file


class NoCompilerError(Exception):
    """Neither $CC nor cc is there, or it refuses the program."""


def compile_c(name: str) -> Path:
    """limits/NAME.c as a program for this very CPU."""
    source, program = HERE / "limits" / f"{name}.c", BUILD / name
    headers = [source.with_name("common.h"), HERE.parent / "include" / "kstore" / "crc32c.h"]
    newest = max(p.stat().st_mtime for p in (source, *headers))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    BUILD.mkdir(exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    command = [
        compiler,
        "-O3",
        "-march=native",
        "-pthread",
        "-Wall",
        "-Wextra",
        "-o",
        str(program),
        str(source),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoCompilerError(f"no {compiler} here") from None
    except subprocess.CalledProcessError as e:
        raise NoCompilerError(f"{compiler} cannot build {source.name}: {e.stderr[:200]}") from None
    return program


@dataclass(frozen=True)
class Shape:
    """A partition: batches of `records` records, `batches` of them in a segment, `segments`."""

    topic: str
    records: int
    batches: int
    segments: int
    keys: int = 0  # other than one for each record; then the active segment has one batch


class Partition(NamedTuple):
    path: Path
    end_offset: int


class Data(NamedTuple):
    """A Kafka data directory after a clean shutdown."""

    root: Path
    batched: Partition  # one segment of 16 KiB batches
    single: Partition  # one segment of batches of one record
    sealed: Partition  # many segments of ten records, and an active one

    @property
    def copy(self) -> Path:
        """Where copy_sealed() puts a partition that a peer may write to."""
        return self.root / "copy" / self.sealed.path.name

    @property
    def work(self) -> Path:
        """Where each contestant writes, in a place of its own."""
        return self.root / "work"


def make(mib: int, sealed_segments: int) -> Data:
    """Writes what is not there yet, and copies what is read so that it is cached alike in each run."""
    shapes = [
        Shape("batched", BATCH_RECORDS, (mib << 20) // BATCH_BYTES, 1),
        Shape("single", 1, (min(mib, 64) << 20) // SINGLE_BYTES, 1),
        Shape("sealed", 10, 1, sealed_segments + 1),
    ]
    root = BUILD / "data" / f"{mib}-mib-{sealed_segments}-segments"
    stamp, made = root / "complete", (HERE / "limits" / "fixtures.c").read_text() + f"{shapes} {ROWS}"
    if not (stamp.exists() and stamp.read_text() == made):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        write(root, shapes)
        _write_columns(root)
        stamp.write_text(made)
    shutil.rmtree(root / "work", ignore_errors=True)
    (root / "work").mkdir()
    lines = (root / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    ends = {topic: int(end) for topic, _, end in map(str.split, lines)}
    parts = [Partition(root / f"{s.topic}-0", ends[s.topic]) for s in shapes]
    for part in parts[:2]:
        for path in sorted(part.path.iterdir()):
            _cache(path)
    return Data(root, *parts)


def make_dirty(data: Data, mib: int) -> Path:
    """A partition of four segments and an active one, in which a thousand keys for each MiB come again and
    again."""
    shape = Shape("compact", BATCH_RECORDS, (mib << 18) // BATCH_BYTES, 5, mib * 1000)
    root = data.root / "dirty"
    path = data.root / "compact-0"
    stamp, made = root / "complete", (HERE / "limits" / "fixtures.c").read_text() + str(shape)
    if not (stamp.exists() and stamp.read_text() == made):
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(path, ignore_errors=True)
        root.mkdir()
        write(root, [shape])
        (root / "compact-0").rename(path)
        stamp.write_text(made)
    for file in sorted(path.iterdir()):
        _cache(file)
    return path


def link_dirty(path: Path, into: Path) -> None:
    """Another partition with the same sealed .log files; what a contestant writes to is its own."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    active = max(path.glob("*.log"))
    for file in path.iterdir():
        if file.suffix == ".log" and file != active:
            os.link(file, into / file.name)
        else:
            shutil.copy(file, into)


def write(root: Path, shapes: list[Shape]) -> None:
    """The partitions, and what a clean shutdown leaves beside them."""
    program = compile_c("fixtures")
    lines = ["0", str(len(shapes))]
    for s in shapes:
        command = [str(program), str(root / f"{s.topic}-0")]
        command += [str(s.records), str(s.batches), str(s.segments), *([str(s.keys)] if s.keys else [])]
        end = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        lines.append(f"{s.topic} 0 {end}")
    (root / "recovery-point-offset-checkpoint").write_text("\n".join(lines) + "\n")
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def _write_columns(root: Path) -> None:
    """Values to be encoded: random ones, and JSON that packs about 3:1."""
    r = random.Random(20261121)
    (root / "pool.bin").write_bytes(r.randbytes(ROWS * VALUE_BYTES))
    events = ["click", "view", "purchase", "signup"]
    with (root / "json.bin").open("w") as f:
        for _ in range(ROWS):
            line = f'{{"id":"{r.getrandbits(64):016x}","ev":"{r.choice(events)}","user":{r.randrange(20000)},'
            line += (
                f'"price":{r.random() * 5000:.2f},"page":{r.randrange(200)},"t":"{r.getrandbits(48):012x}"}}'
            )
            f.write(line.ljust(VALUE_BYTES))


class Columns(NamedTuple):
    """Records to be encoded: record i has row i % ROWS as its value, the row's number as its key."""

    values: NDArray[np.uint8]  # ROWS x 100
    keys: NDArray[np.uint8]  # ROWS x 8

    def timestamps(self, first: int, count: int) -> NDArray[np.int64]:
        stamps: NDArray[np.int64] = T0 + np.arange(first, first + count, dtype=np.int64) // 10
        return stamps


def columns(data: Data, *, packable: bool = False) -> Columns:
    values = np.fromfile(data.root / ("json.bin" if packable else "pool.bin"), dtype=np.uint8)
    return Columns(
        values.reshape(ROWS, VALUE_BYTES), np.arange(ROWS, dtype=">i8").view(np.uint8).reshape(ROWS, 8)
    )


def batches(data: Data, size: int, join: int = 1) -> list[bytes]:
    """The first encoded batches of 16 KiB, up to `size` bytes, so many joined."""
    with next(data.batched.path.glob("*.log")).open("rb") as f:
        raw = f.read(min(size, os.fstat(f.fileno()).st_size) // BATCH_BYTES * BATCH_BYTES)
    return [raw[at : at + join * BATCH_BYTES] for at in range(0, len(raw), join * BATCH_BYTES)]


def _cache(path: Path) -> None:
    """Writes the file anew. Its pages are then in the page cache in large pieces (folios); of pages that were read
    again after the system had dropped them the pieces are small, and reading them takes up to twice as long."""
    copy = BUILD / "copy"
    shutil.copy2(path, copy)
    with copy.open("rb") as f:
        os.fsync(f.fileno())  # else the system writes it to the disk during the races
    copy.replace(path)


def copy_sealed(data: Data) -> None:
    """A fresh copy of the many segments."""
    shutil.rmtree(data.copy, ignore_errors=True)
    shutil.copytree(data.sealed.path, data.copy)


def targets(seed: int, count: int, span: int) -> NDArray[np.int64]:
    """`count` numbers of 0 .. span - 1, the same as in limits/common.h and Peer.java."""
    z = np.arange(seed, seed + count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(span)).astype(np.int64)
