"""Logs in object stores and remote file systems, for reading."""
