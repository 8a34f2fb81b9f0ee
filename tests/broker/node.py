"""A real Kafka: one KRaft node, broker and controller, on loopback with log directories of the test."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.kafka.jvm import JARS, KafkaMissingError, fetch

JAVA = ("java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
STARTED = "Kafka Server started"
LIMIT = 120  # seconds for a start or a stop
# Small internal topics, and background work that does not wait for minutes.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "20000000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "message.max.bytes": "20000000",
    "min.insync.replicas": "1",
    "num.io.threads": "2",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
}


class Node:
    """One node. Formatted when it is made; `start`, `stop` and `kill` may follow in any order."""

    def __init__(self, home: Path, directories: int = 1, properties: Mapping[str, str] | None = None) -> None:
        fetch()
        self.home = home
        self.log_dirs = [home / f"data{number}" for number in range(directories)]
        self.output = home / "broker.log"
        self._read_from = 0
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        listeners = f"PLAINTEXT://{self.bootstrap}"
        own = {
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        home.mkdir(parents=True, exist_ok=True)
        self.configuration = home / "server.properties"
        lines = (f"{name}={value}\n" for name, value in {**PROPERTIES, **own, **(properties or {})}.items())
        self.configuration.write_text("".join(lines))
        cluster = "kstoreTestClusterAAAAAg"
        self.tool("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.configuration))

    def start(self) -> "Node":
        """Returns when the broker serves clients."""
        assert self._process is None
        self._read_from = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as out:
            self._process = subprocess.Popen(
                self.command("kafka.Kafka", str(self.configuration)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        until = time.monotonic() + LIMIT
        while STARTED not in self.said():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the broker did not start:\n{self.said()[-5000:]}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """A clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, how: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(LIMIT)

    def said(self) -> str:
        """What the broker logged since its last start."""
        with self.output.open("rb") as file:
            file.seek(self._read_from)
            return file.read().decode(errors="replace")

    def complaints(self) -> list[str]:
        """Warnings and errors about logs since the last start."""
        about = (
            "LogLoader",
            "LogManager",
            "UnifiedLog",
            "LeaderEpoch",
            "ProducerState",
            "Checkpoint",
            "Cleaner",
        )
        lines = self.said().splitlines()
        return [
            line
            for line in lines
            if line.startswith(("WARN", "ERROR")) and any(word in line for word in about)
        ]

    def recovered(self) -> list[str]:
        """What the broker logged about recovery since its last start."""
        # it always is
        lines = [line for line in self.said().splitlines() if "__cluster_metadata" not in line]
        return [line for line in lines if "Recovering unflushed" in line or "Rebuilding" in line]

    def partition(self, topic: str, number: int = 0) -> Path:
        """The directory of a partition, in whichever log directory it is."""
        return next(path for home in self.log_dirs for path in home.glob(f"{topic}-{number}"))

    def command(self, main: str, *arguments: str) -> list[str]:
        """How to start one of Kafka's own programs."""
        return [*JAVA, *_LOGGING, "-cp", f"{JARS}/*", main, *arguments]

    def tool(self, main: str, *arguments: str, given: str | None = None) -> str:
        """The standard output of one of Kafka's own programs; RuntimeError with all output if it fails."""
        return run_kafka_program(main, *arguments, given=given)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()


_LOGGING = (
    "-Dorg.slf4j.simpleLogger.logFile=System.err",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
)


def run_kafka_program(main: str, *arguments: str, given: str | None = None) -> str:
    """The standard output of one of Kafka's own programs; RuntimeError with all output if it fails."""
    command = [*JAVA, *_LOGGING, "-cp", f"{JARS}/*", main, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{main}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def missing() -> str:
    """Why there can be no node here, or ""."""
    if shutil.which("java") is None:
        return "no java here"
    try:
        fetch()
    except KafkaMissingError as e:
        return f"Kafka is not here: {e}"
    return ""
