"""Commands that print records and files."""
