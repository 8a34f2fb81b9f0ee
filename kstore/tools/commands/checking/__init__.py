"""Commands that describe and check directories."""
