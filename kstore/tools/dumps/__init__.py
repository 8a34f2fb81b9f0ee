"""The output of `kstore dump` for logs, indexes and snapshots, equal to that of kafka-dump-log."""
