"""First floor: one partition directory, as Kafka would load it."""
