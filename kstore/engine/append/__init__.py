"""Appending: what comes in is checked, placed, written and made durable."""
