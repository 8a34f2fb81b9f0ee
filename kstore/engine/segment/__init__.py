"""A segment and its indexes: read, checked as recovery does, written."""
