"""What a writer does beside appending: many threads, flushing, retention, truncation."""
