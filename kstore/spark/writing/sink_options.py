"""What a writer's options ask for. Needs no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

from kstore.config import LogConfig
from kstore.errors import InvalidConfigError
from kstore.log.files import layout
from kstore.spark.errors import SparkSourceError, translated
from kstore.spark.options import CONFIG, READER, WRITER_TAKES, Given, bad
from kstore.spark.paths import local_path, roots_of

# Spark's Kafka sink has includeHeaders, too, without effect.
_OF_READER = tuple(option for option in READER if option.name != "includeHeaders")
_HINTS = dict.fromkeys(("subscribe", "assign"), "where to write, topic says")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write; checked when it is made."""

    root: str
    topic: str | None
    transaction: str | None
    partition_count: int
    staging: str | None
    lock_wait_s: float
    refuses_published: bool
    checkpoint: str | None
    config: LogConfig

    @classmethod
    def of(cls, options: Mapping[str, str], *, stream: bool = False) -> "SinkOptions":
        """From a writer's options; kstore.NAME is the topic configuration NAME of what is written.
        SparkSourceError."""
        given = Given(options, WRITER_TAKES)
        given.refuse(_OF_READER, "reader", _HINTS)
        if stream and "txnId" in given:
            raise bad("txnId is for batch jobs; a stream's id is its query and batch")
        topic = given["topic"]
        if topic is not None and not layout.is_valid_topic(topic):
            raise bad(f"topic is {topic!r}, which is no name of a topic")
        own = {
            name.removeprefix(CONFIG): text for name, text in given.texts.items() if name.startswith(CONFIG)
        }
        try:
            config = LogConfig.from_topic(own)
        except InvalidConfigError as e:
            raise translated(e) from None
        return cls(
            _root(given),
            topic,
            given["txnId"],
            given["numPartitions"],
            given["stagingPath"],
            given["lockWait"] / 1000,
            given["ifPublished"] == "error",
            _checkpoint(given),
            config,
        )


def _root(given: Given) -> str:
    paths = given.paths()
    if paths == [""]:
        raise bad("path is missing: the log directory to write in, as in .option('path', …)")
    roots = roots_of(paths, local=True)
    if len(roots) > 1:
        raise bad(f"a sink writes in one log directory, path names {len(roots)}: {', '.join(roots)}")
    return roots[0]


def _checkpoint(given: Given) -> str | None:
    """Where Spark keeps a query's progress, None if that is not in this file system."""
    location = given["checkpointLocation"]
    try:
        return None if location is None else local_path("checkpointLocation", location)
    except SparkSourceError:
        return None
