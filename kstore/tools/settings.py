"""Options of a topic's configuration on the command line, in Kafka's notation."""

import argparse
from collections.abc import Iterable


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """--config NAME=VALUE, as often as wanted."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the topic's configuration, in Kafka's notation: --config retention.ms=86400000 (may be repeated)",
    )


def settings_of(settings: Iterable[str]) -> dict[str, str]:
    """What --config says: name -> value. ValueError."""
    topic = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--config is NAME=VALUE, not {setting!r}")
        topic[name] = value
    return topic
