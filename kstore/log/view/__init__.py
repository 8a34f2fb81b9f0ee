"""What a partition holds at one moment, and readers of it."""
