"""Logs become splits, tasks, columns and rows of Spark."""
