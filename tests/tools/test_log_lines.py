"""--format log: the records of kstore.logging.LogHandler as lines."""

import logging
import os
import re
from pathlib import Path

import pytest

import kstore
from kstore.logging import LogHandler
from tests.tools.conftest import Run

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", ["follow --from-start --timeout 0", "records"])
def test_lines(run: Run, tmp_path: Path, as_json: bool, command: str) -> None:
    handler = LogHandler(tmp_path / "logs", as_json=as_json)
    for level, text, extra in (
        (logging.INFO, "paid", {"order": 17, "user": "ann"}),
        (logging.CRITICAL, "one\nERROR two\r\n\x1b[31mthree", {}),
        (logging.INFO, "", {"odd": "a\nb"}),
    ):
        record = logging.LogRecord("app.db", level, __file__, 1, text, (), None)
        vars(record).update(extra)
        handler.handle(record)
    handler.close()
    name, *options = command.split()
    code, out, err = run(name, tmp_path / "logs" / "log-0", *options, "--format", "log")
    assert (code, err) == (0, "")
    assert re.sub(rf"^{TIME} ", "", out, flags=re.MULTILINE) == (
        f"INFO     app.db[{os.getpid()}]: paid order=17 user=ann\n"
        f"CRITICAL app.db[{os.getpid()}]: one\n"
        "    ERROR two\n"
        "    \\x1b[31mthree\n"
        f"INFO     app.db[{os.getpid()}]:  odd=a\\nb\n"
    )


def test_records_of_others(run: Run, tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"value", timestamp=0)
        log.append(None, key=b"key", timestamp=0)
        log.append(
            b"{not json", headers=[("level", b"\xff"), ("level", b"INFO"), ("empty", None)], timestamp=0
        )
    lines = run("records", tmp_path / "t-0", "--format", "log")[1].splitlines()
    assert [line.removeprefix("1970-01-01T00:00:00.000Z ") for line in lines] == [
        "-        -[-]: value",
        "-        key[-]: ",
        "\\xff     -[-]: {not json empty=null",
    ]


def test_options_that_do_not_fit(run: Run, partition: Path) -> None:
    code, _, err = run("records", partition, "--format", "log", "--redact")
    assert (code, err) == (2, "kstore: --redact cannot be used with --format log\n")
