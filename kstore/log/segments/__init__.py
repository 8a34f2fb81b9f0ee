"""The segments of a log that is open for writing: names, lengths, and what the checkpoints say of them."""
