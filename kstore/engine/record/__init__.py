"""Batches and the records in them: read, built, compressed, their checksums."""
