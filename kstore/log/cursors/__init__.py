"""Named, durable positions of readers."""
