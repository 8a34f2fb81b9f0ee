"""The coordinator of classic consumer groups."""
