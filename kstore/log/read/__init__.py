"""Reads of a log: slices, scans, lookups by time."""
