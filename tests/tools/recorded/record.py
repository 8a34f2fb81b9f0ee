"""Records what Kafka's dump tool makes of the cases: dumps.jsonl.gz. Once, and again when cases.py changes.

    mvn -f tests/tools/recorded/pom.xml dependency:copy-dependencies -DoutputDirectory=JARS
    python tests/tools/recorded/record.py JARS

Each case runs in a directory of its own: the tool cuts index files, and makes those that it misses. Where the
working directory is printed, {cwd} stands for it.
"""

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from tests.tools.recorded.cases import Case, cases

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden" / "data"


def lay_out(case: Case, into: Path) -> None:
    """The files of a case, or those of the golden directories that it names."""
    into.mkdir()
    if not case.files:
        for path in {Path(name).parent for name in case.args[1].split(",")}:
            shutil.copytree(GOLDEN / path, into / path, dirs_exist_ok=True)
    for name, data in case.files.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(data)


def ask(case: Case, directory: Path, classes: str) -> dict[str, Any]:
    """Kafka's answer."""
    lay_out(case, directory)
    found = subprocess.run(
        ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classes, "Recorder"],
        input=json.dumps(case.args) + "\n",
        cwd=directory,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        encoding="utf-8",
    ).stdout
    answer = json.loads(found)
    answer["err"] = answer["err"].replace(str(directory), "{cwd}")
    return {"args": case.args, **answer}


def main(jars: str) -> None:
    """Asks Kafka and writes its answers down."""
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as two:
        build, path = Path(work) / "classes", f"{Path(jars).resolve()}/*"
        subprocess.run(["javac", "-d", build, "-cp", path, HERE / "Recorder.java"], check=True)
        asked = list(cases())
        directories = [Path(work) / str(number) for number in range(len(asked))]
        answers = list(two.map(ask, asked, directories, repeat(f"{build}:{path}")))
    lines = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    (HERE / "dumps.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
