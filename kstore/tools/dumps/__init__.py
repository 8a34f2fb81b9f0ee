"""What `kstore dump` prints of a file: of a log, an index, a snapshot, as kafka-dump-log does."""
