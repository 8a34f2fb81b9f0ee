"""Threads that work for a log."""
