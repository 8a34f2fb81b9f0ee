"""Readers of many partitions: followers, cursors, scans and tables of topics."""
