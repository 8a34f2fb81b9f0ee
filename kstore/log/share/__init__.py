"""Share groups: workers that share the records of a partition, one record at a time."""
