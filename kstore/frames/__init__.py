"""Logs as tables of other libraries: conditions, sources, values in JSON."""
