"""The configuration of the partitions that a writer of Spark writes in."""

from pathlib import Path

from kstore.config import LogConfig, changed, in_python
from kstore.log.files.layout import TopicPartition
from kstore.log.files.log_dir_state import kept_options
from kstore.spark.paths import mapped_root


class Configurations:
    """What a store knows of a topic, or what is kept in a partition, with the options that the writer was
    given."""

    def __init__(self, root: str, given: LogConfig) -> None:
        self._root = mapped_root(root)
        self._given = given
        self._of_topics: dict[str, LogConfig] = {}

    def __getitem__(self, tp: TopicPartition) -> LogConfig:
        """CorruptCheckpointError, OSError."""
        known = self._of_topics.get(tp.topic)
        if known is not None:
            return known
        kept = kept_options(Path(self._root, str(tp)))
        config = changed(LogConfig(**in_python(kept.options)), self._given.given_options())
        if kept.of_store:  # of all partitions, and the store's file may be long
            self._of_topics[tp.topic] = config
        return config
