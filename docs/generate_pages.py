"""Writes docs/configuration.md and docs/command-line.md from LogConfig and from the parsers of the command
line, and the tables of options in docs/spark.md and of codes in docs/checking.md.

Run it after a change of these: python docs/generate_pages.py. A test compares the files with what this would
write.
"""

import argparse
import re
import sys
from pathlib import Path

from kstore.__main__ import EXAMPLES, make_parser
from kstore.arguments import MAX64
from kstore.checking.codes import CODES
from kstore.config import ConfigOption, LogConfig
from kstore.spark import options

DOCS = Path(__file__).resolve().parent
MADE = (
    "<!-- Made by docs/generate_pages.py: change the texts there, in kstore/config.py or in kstore/tools. -->"
)

CONFIGURATION = f"""# Configuration

{MADE}

`LogConfig` has the options of a topic in Kafka 4.3.1, with underscores for the dots in their names, and one option of kstore's own,
`key_files`. Pass them by name, or as an object:

```python
import kstore

with kstore.open("orders-0", "a", segment_bytes=64 << 20, retention_ms=-1) as log:
    log.append(b"v")

config = kstore.LogConfig(compression_type="zstd")
with kstore.open("orders-1", "a", config=config) as log:
    log.extend([b"a", b"b"])
```

**Saved options.** The options that you pass are saved in the directory of the log, in `kstore.json`, which a broker
ignores. They apply at every opening, and to the command line, until you change them. A passed option has precedence over a saved
one. None restores the default of an option: `kstore.open("orders-0", "a", retention_ms=None)`.

| to | in Python | in a shell |
|---|---|---|
| read the options | `log.config` (all), `log.config.given_options()` (those that were set) | `kstore describe orders-0` |
| change one | `log.configure(retention_ms=…)`, while the log is open | `kstore alter orders-0 --config retention.ms=-1` |
| restore a default | `log.configure(retention_ms=None)` | `kstore alter orders-0 --delete-config retention.ms` |

`--config` of other commands applies to that command and is not saved. Options of a broker or a store, such as
`log_cleaner_dedupe_buffer_size`, are not saved either.

```python
with kstore.open("orders-0", "a") as log:
    print(log.config.retention_ms, log.config.segment_bytes)
```
```output
-1 67108864
```

**In a store.** If the partition is in the directory of a [store](store.md) that has the topic, the topic's saved options apply. Change
them with `store.alter_topic` or `kstore alter DIR TOPIC`. Options that you pass to `kstore.open` there have precedence, and are not
saved. A topic that the store has not created or changed has the saved options of its first partition.

**In a broker's directory**, the commands also use the options that the broker has for the topic, as
[this page](explain.md#options-of-topics) explains. `kstore.open` and `LogStore` use only those that kstore has saved.

**Retention by age.** Nothing is deleted by age unless `retention_ms` is set, even to its default of 7 days.

**Kafka's notation.** `LogConfig.from_topic` reads the options of a topic in Kafka's notation, `LogConfig.from_server_properties` a
broker's file, in which most options have another name, shown below as *server.properties*.

**Errors.** An option that does not exist, or a value that is not allowed, raises `InvalidConfigError` before anything is written.

"""

COMMAND_LINE = f"""# Command line

{MADE}

`kstore`, or `python -m kstore`, reads, checks and writes the directories of partitions. `kstore COMMAND --help` prints the texts of
this page.

```text
{{examples}}
```

| command | what it does |
|---|---|
{{table}}
"""


def configuration() -> str:
    """The page on options: one section for each."""
    return CONFIGURATION + "\n".join(map(_option, LogConfig.describe()))


def _option(option: ConfigOption) -> str:
    default = f"`{option.default!r}`"
    if option.default == MAX64:
        default = "2^63 - 1, which is never"
    elif option.unit and option.default is not None:
        default += f" {option.unit}"
    allowed = option.allowed.replace(str(MAX64 + 1), "2^63").replace(str(MAX64), "2^63 - 1")
    facts = [
        f"Default: {default}",
        f"allowed: {allowed}",
        f"{'in Kafka' if option.in_kafka else 'as text'}: `{option.kafka_name}`",
    ]
    if option.broker_names:
        facts.append("server.properties: " + ", ".join(f"`{name}`" for name in option.broker_names))
    return f"## {option.name}\n\n{option.text}\n\n{'; '.join(facts)}.\n"


def command_line() -> str:
    """The page on commands: a section with a table of options for each."""
    parser = make_parser()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    table = "\n".join(f"| [{a.dest}](#kstore-{a.dest}) | {a.help} |" for a in commands._choices_actions)
    page = COMMAND_LINE.format(examples=EXAMPLES.removeprefix("examples:\n"), table=table)
    for sub in commands.choices.values():
        sub.load()
    return page + "\n" + "\n".join(_command(name, sub) for name, sub in commands.choices.items())


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    """One command. argparse's own usage and help are laid out differently by different versions of Python."""
    lines = [f"## kstore {name}", ""]
    for paragraph in (parser.description or "").split("\n\n"):
        lines += [" ".join(paragraph.split()), ""]
    lines += ["| argument | meaning |", "|---|---|"]
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        if action.choices is not None:
            metavar = "{" + ",".join(map(str, action.choices)) + "}"
        argument = ", ".join(action.option_strings) or metavar
        if action.option_strings and action.nargs != 0:
            argument += f" {metavar}"
        needed = "(required) " if action.required and action.option_strings else ""
        text = " ".join(((action.help or "") % {"default": action.default}).split())
        lines.append(f"| `{_cell(argument)}` | {needed}{_cell(text)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def spark() -> str:
    """The page on Spark, as it is but for its tables of options, each between two comments."""
    tables = {
        "reader": options.markdown((*options.BOTH, *options.READER)),
        "writer": options.markdown((*options.BOTH, *options.WRITER)),
    }
    page = (DOCS / "spark.md").read_text(encoding="utf-8")
    marked = r"(<!-- options of a (\w+), .*-->\n)[^<]*(?=<!-- end -->)"
    page, count = re.subn(marked, lambda found: found[1] + tables[found[2]], page)
    assert count == len(tables)
    return page


def checking() -> str:
    """docs/checking.md with the table of codes."""
    rows = [
        f"| `{name}` | {code.severity} | {code.meaning} | {code.remedy} | {'stops' if code.stops_kafka else ''} |"
        for name, code in CODES.items()
    ]
    table = "\n".join(["| code | severity | meaning | remedy | Kafka |", "|---|---|---|---|---|", *rows])
    page = (DOCS / "checking.md").read_text(encoding="utf-8")
    head, _, rest = page.partition("kstore/checking/codes.py -->\n")
    _, _, tail = rest.partition("<!-- end of codes -->")
    return f"{head}kstore/checking/codes.py -->\n\n{table}\n\n<!-- end of codes -->{tail}"


PAGES = {
    "configuration.md": configuration,
    "command-line.md": command_line,
    "spark.md": spark,
    "checking.md": checking,
}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (DOCS / file).write_text(make(), encoding="utf-8")
    sys.exit(0)
