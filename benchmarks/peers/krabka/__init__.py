"""The crate krabka-log, Kafka's format in Rust (src/main.rs), built by cargo."""

import os
import re
import subprocess
from pathlib import Path

from benchmarks.data import BUILD
from benchmarks.peers.process import Absent, Peer, Process

HERE = Path(__file__).parent
TARGET = BUILD / "krabka"
WANTED = (1, 98)  # of rustc, says the crate


def _build() -> Path:
    program = TARGET / "release" / "krabka-peer"
    newest = max(path.stat().st_mtime for path in (HERE / "Cargo.toml", HERE / "src" / "main.rs"))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", str(HERE / "Cargo.toml")]
    flags = "-C target-cpu=native"
    env = os.environ | {"CARGO_TARGET_DIR": str(TARGET)}
    version = re.search(r"(\d+)\.(\d+)", _run(["rustc", "--version"], env))
    # two features that it uses were not stable before
    if version and (int(version[1]), int(version[2])) < WANTED:
        env["RUSTC_BOOTSTRAP"] = "1"
        flags += " -Zcrate-attr=feature(proc_macro_hygiene,result_option_map_or_default)"
        command.append("--ignore-rust-version")
    _run(command, env | {"RUSTFLAGS": flags})
    return program


def _run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env
    )
    return done.stdout


def start(data: Path, work: Path) -> Peer:
    """It writes below `work`."""
    try:
        return Process([str(_build()), str(data), str(work)], warm_up=0.5)
    except FileNotFoundError as e:
        return Absent(f"no {e.filename} here")
    except subprocess.CalledProcessError as e:
        said = e.stderr.strip().splitlines() or [f"status {e.returncode}"]
        return Absent(f"{e.cmd[0]}: {said[0]}")
