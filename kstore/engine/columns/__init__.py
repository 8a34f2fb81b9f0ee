"""Columns of values in C memory: Arrow's arrays, in and out, and what `log.extend` takes."""
