"""The golden scenarios: directories that a real Kafka 4.3.1 wrote, and what Kafka itself says of them."""

import atexit
import functools
import gzip
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).with_name("data")


class Scenario(NamedTuple):
    """One partition: where its files are packed, and where Kafka's answers about it lie."""

    name: str
    source: Path  # the log directory, or a tar of it
    partition: str
    expected: Path

    def __str__(self) -> str:
        return self.name

    def unpack(self, into: Path) -> Path:
        """Copies the log directory, with file times as Kafka had them; returns the partition's path."""
        _extract(self.source, into)
        return self._in(into)

    def shared(self) -> Path:
        """The partition in a copy that all tests of this process share: for those that only read."""
        return self._in(_shared(self.source))

    def _in(self, root: Path) -> Path:
        found = next(path for path in root.rglob(self.partition) if path.is_dir())
        for name, ms in self.open()["log_file_mtimes_ms"].items():
            if (found / name).exists():
                os.utime(found / name, ns=(ms * 1_000_000, ms * 1_000_000))
        if self.name == "clean_files_lost":
            # Kafka takes epochs of the recovered segment only, kstore those of all batches (test_read_epochs)
            (found / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        return found

    def has(self, name: str) -> bool:
        return (self.expected / name).exists() or (self.expected / f"{name}.gz").exists()

    def text(self, name: str) -> str:
        packed = self.expected / f"{name}.gz"
        if packed.exists():
            return gzip.decompress(packed.read_bytes()).decode()
        return (self.expected / name).read_text("utf-8")

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text(name).splitlines()]

    def open(self) -> dict[str, Any]:
        return json.loads(self.text("open.json"))

    def options(self) -> dict[str, Any]:
        """How Kafka opened it, as options of kstore.open."""
        opened = self.open()
        return {
            "clean": opened["clean"],
            "recovery_point": opened["recovery_point"],
            "log_start_offset": opened["log_start_offset"],
            "index_interval_bytes": int(opened["config"].get("index.interval.bytes", 4096)),
        }

    def dumps(self) -> dict[str, str]:
        """Dumped file -> what the dump tool printed."""
        names = {path.name.removesuffix(".gz") for path in self.expected.glob("dump-*.txt*")}
        return {name[len("dump-") : -len(".txt")]: self.text(name) for name in sorted(names)}


def _extract(source: Path, into: Path) -> None:
    if source.suffixes[-2:] == [".tar", ".gz"]:
        with tarfile.open(source) as tar:
            # Python 3.11 has the filter from 3.11.4 on
            tar.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    else:
        shutil.copytree(source, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected"))
    for packed in into.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()


@functools.cache
def _shared(source: Path) -> Path:
    into = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, into, ignore_errors=True)
    _extract(source, into)
    return into


@functools.cache
def scenarios() -> tuple[Scenario, ...]:
    """Every partition of every scenario."""
    found = []
    for directory in sorted(ROOT.iterdir()):
        expected = directory / "expected"
        if not expected.is_dir():
            continue
        tars = list(directory.glob("*.tar.gz"))
        source = tars[0] if tars else directory / "data" if (directory / "data").is_dir() else directory
        if (expected / "open.json").exists():
            [partition] = [
                path.name.removesuffix(".tar.gz")
                for path in directory.iterdir()
                if path != expected and (path in tars or path.is_dir())
            ]
            found.append(Scenario(directory.name, source, partition, expected))
        else:
            found += [
                Scenario(f"{directory.name}/{each.name}", source, each.name, each)
                for each in sorted(expected.iterdir())
                if each.is_dir()
            ]
    return tuple(found)
