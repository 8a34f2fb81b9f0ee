"""The state of share groups: its changes, their bytes, and the file that they are appended to."""
