"""Kafka's own storage classes in one JVM (Peer.java), jars by Maven."""

import shutil
import subprocess
from pathlib import Path

from benchmarks.data import BUILD
from benchmarks.peers.process import Absent, Peer, Process

HERE = Path(__file__).parent
JARS = BUILD / "jars"
CLASSES = BUILD / "classes"


def _build() -> None:
    pom, source = HERE / "pom.xml", HERE / "Peer.java"
    fetched, compiled = JARS / "pom.xml", CLASSES / "Peer.java"  # copies of what was built last
    if not (fetched.exists() and fetched.read_bytes() == pom.read_bytes()):
        shutil.rmtree(JARS, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        _run("mvn", "-q", "-B", "-f", str(pom), *goal)
        shutil.copy(pom, fetched)
        shutil.rmtree(CLASSES, ignore_errors=True)
    if not (compiled.exists() and compiled.read_bytes() == source.read_bytes()):
        CLASSES.mkdir(parents=True, exist_ok=True)
        _run("javac", "-cp", f"{JARS}/*", "-d", str(CLASSES), str(source))
        shutil.copy(source, compiled)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def start(data: Path, sealed: Path, work: Path) -> Peer:
    """`sealed`: a copy of the many segments of its own, for Kafka writes to a log that it opens. What it
    appends goes below `work`."""
    try:
        _build()
        command = ["java", "-cp", f"{CLASSES}:{JARS}/*", "Peer", str(data), str(sealed), str(work)]
        return Process(command, warm_up=2.0)
    except FileNotFoundError as e:
        return Absent(f"no {e.filename} here")
    except subprocess.CalledProcessError as e:
        said = (e.stdout + e.stderr).strip().splitlines() or [f"status {e.returncode}"]
        return Absent(f"{e.cmd[0]}: {said[0]}")
    except RuntimeError as e:
        return Absent(str(e))
