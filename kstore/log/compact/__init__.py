"""Compaction of a log that is written: which segments, in which groups, and how they are replaced (spec
10)."""
