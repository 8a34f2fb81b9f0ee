"""Copies of sealed segments in object stores and remote file systems."""
