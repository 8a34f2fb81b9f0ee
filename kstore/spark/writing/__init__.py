"""Rows of Spark are staged, then published in logs."""
