"""Answers to questions about a log: why a segment is kept, what a lookup read, where the bytes are."""
