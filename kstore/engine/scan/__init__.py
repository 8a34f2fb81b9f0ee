"""Reading on over segments: batches, records, columns."""
