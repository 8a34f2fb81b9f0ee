"""The golden scenarios: directories that a real Kafka 4.3.1 wrote, and what Kafka itself says of them.

They lie in tests/golden/data; KSTORE_GOLDEN names a larger set of the same form to run instead.
"""

import gzip
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(os.environ.get("KSTORE_GOLDEN") or Path(__file__).with_name("data"))


class Scenario(NamedTuple):
    """One partition: where its files are packed, and where Kafka's answers about it lie."""

    name: str
    source: Path  # the log directory, or a tar of it
    partition: str
    expected: Path

    def __str__(self) -> str:
        return self.name

    def unpack(self, into: Path) -> Path:
        """A writable copy of the log directory, file times set as Kafka had them; returns the partition's path."""
        if self.source.suffixes[-2:] == [".tar", ".gz"]:
            with tarfile.open(self.source) as tar:
                # Python 3.11 has the filter from 3.11.4 on
                tar.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        else:
            shutil.copytree(self.source, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected"))
        found = [path for path in into.rglob(self.partition) if path.is_dir()]
        for packed in into.rglob("*.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
            packed.unlink()
        for name, ms in self.open()["log_file_mtimes_ms"].items():
            if (found[0] / name).exists():
                os.utime(found[0] / name, ns=(ms * 1_000_000, ms * 1_000_000))
        return found[0]

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


def scenarios() -> Iterator[Scenario]:
    """Every partition of every scenario there is."""
    for directory in sorted(ROOT.iterdir()):
        expected = directory / "expected"
        if not expected.is_dir():
            continue
        tars = list(directory.glob("*.tar.gz"))
        source = tars[0] if tars else directory / "data" if (directory / "data").is_dir() else directory
        if (expected / "open.json").exists() or (expected / "open.json.gz").exists():
            if tars:
                with tarfile.open(tars[0]) as tar:
                    names = {part for n in tar.getnames() for part in n.split("/") if part not in (".", "")}
                partition = next(
                    n for n in sorted(names) if n.rpartition("-")[2].isdecimal() and "." not in n
                )
            else:
                partition = next(
                    p.name for p in sorted(directory.iterdir()) if p.is_dir() and p.name != "expected"
                )
            yield Scenario(directory.name, source, partition, expected)
        else:
            for each in sorted(expected.iterdir()):
                if each.is_dir():
                    yield Scenario(f"{directory.name}/{each.name}", source, each.name, each)
