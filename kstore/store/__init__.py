"""Many partitions: the topics of one or more log directories, read and written."""

from kstore.store.log_store import LogStore

__all__ = ["LogStore"]
