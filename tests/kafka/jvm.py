"""Kafka's own classes in one JVM for the session (Driver.java), asked by lines; Maven fetches the jars."""

import base64
import fcntl
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "kafka"
JARS = BUILD / "jars"
CLASSES = BUILD / "classes"
NOW = 1_700_000_000_000


class KafkaMissingError(Exception):
    """Java, Maven or the network is not there; the text says which."""


class KafkaError(Exception):
    """What Kafka threw. `name` is the exception's class."""

    def __init__(self, name: str, message: str | None) -> None:
        self.name = name
        super().__init__(f"{name}: {message}")


def fetch() -> None:
    """Fetches the jars, where they changed. KafkaMissingError."""
    if fetch_jars(HERE / "pom.xml", JARS):
        (CLASSES / "sources").unlink(missing_ok=True)


def fetch_jars(pom: Path, jars: Path, *options: str) -> bool:
    """Fetches what a pom names into a directory of `build/kafka`, unless that has been done. Whether it was
    done now. KafkaMissingError."""
    fetched = jars / "pom.xml"  # what they were fetched for
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:  # several processes run tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        if fetched.exists() and fetched.read_bytes() == pom.read_bytes():
            return False
        with tempfile.TemporaryDirectory(dir=BUILD) as made:
            new = Path(made, "jars")
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={new}"]
            run_tool("mvn", "-q", "-B", "-f", str(pom), *goal, *options)
            shutil.copy(pom, new)
            shutil.rmtree(jars, ignore_errors=True)
            new.rename(jars)
        return True


def build() -> None:
    """Fetches the jars and compiles the driver, where they changed. KafkaMissingError."""
    fetch()
    sources, compiled = sorted(HERE.glob("*.java")), CLASSES / "sources"  # what was compiled last
    text = "".join(source.read_text() for source in sources)
    if not (compiled.exists() and compiled.read_text() == text):
        CLASSES.mkdir(parents=True, exist_ok=True)
        run_tool("javac", "-cp", f"{JARS}/*", "-d", str(CLASSES), *map(str, sources))
        compiled.write_text(text)


def run_tool(*command: str) -> None:
    """Runs Maven or javac. KafkaMissingError."""
    try:
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
    except FileNotFoundError as e:
        raise KafkaMissingError(f"no {e.filename} here") from None
    except subprocess.TimeoutExpired:
        raise KafkaMissingError(f"{command[0]} took too long") from None
    except subprocess.CalledProcessError as e:
        said = (e.stdout + e.stderr).strip().splitlines() or [f"status {e.returncode}"]
        if command[0] == "javac":
            raise RuntimeError("\n".join(said)) from None
        raise KafkaMissingError(f"{command[0]}: {said[0]}") from None


class Kafka:
    """The JVM. `log` holds what Kafka logged (level, class, text) during the last operation."""

    def __init__(self) -> None:
        build()
        logger = "-Dorg.slf4j.simpleLogger"
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"{logger}.logFile=System.err"]
        options += [f"{logger}.showThreadName=false", f"{logger}.showShortLogName=true"]
        command = ["java", *options, "-cp", f"{CLASSES}:{JARS}/*", "Driver"]
        try:
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except FileNotFoundError:
            raise KafkaMissingError("no java here") from None
        self.pid = self._child.pid
        self.log: list[str] = []

    def ask(self, op: str, directory: Path, **given: Any) -> dict[str, Any]:
        """One operation. KafkaError."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        line = json.dumps({"op": op, "dir": str(directory), **given})
        self._child.stdin.write(line.encode() + b"\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"the JVM ended with status {self._child.wait()} at {line[:200]}")
        reply: dict[str, Any] = json.loads(answer)
        self.log = reply.pop("log")
        if "error" in reply:
            raise KafkaError(reply["error"], reply["message"])
        return reply

    def complaints(self) -> list[str]:
        """What of that was a warning or an error."""
        return [line for line in self.log if line.startswith(("WARN", "ERROR")) and "deprecated" not in line]

    def recovered(self) -> list[str]:
        """What of that is about recovery."""
        return [line for line in self.log if "ecovering unflushed" in line or "Rebuilding" in line]

    def open(self, directory: Path, config: Mapping[str, str] | None = None, **given: Any) -> "KafkaLog":
        """Opens one partition: clean, recovery_point, log_start_offset, now."""
        self.ask("open", directory, **{"config": dict(config or {}), "now": NOW, **given})
        return KafkaLog(self, directory)

    def start(self, directory: Path, config: Mapping[str, str] | None = None, now: int = NOW) -> list[str]:
        """A broker's start on a log directory; the names of the partitions found, which `log` then opens."""
        names: list[str] = self.ask("start", directory, config=dict(config or {}), now=now)["partitions"]
        return names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate()  # the end of its input is the end of it


class KafkaLog:
    """A partition that Kafka has open."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        self.kafka = kafka
        self.directory = directory

    def ask(self, op: str, **given: Any) -> dict[str, Any]:
        return self.kafka.ask(op, self.directory, **given)

    def append(self, data: bytes, origin: str = "client", **given: Any) -> dict[str, Any]:
        """Batches as bytes; `origin` is client, coordinator or follower."""
        return self.ask("append", data=base64.b64encode(data).decode(), **{"as": origin}, **given)

    def records(self) -> Any:
        return self.ask("records")["records"]

    def summary(self) -> Any:
        return self.ask("summary")["summary"]

    def wrong(self) -> Any:
        return self.ask("check")["wrong"]

    def answers(self, queries: Iterable[str]) -> Any:
        return self.ask("lookups", queries=list(queries))["answers"]
