"""Checks of every byte of directories, with findings, and repairs."""
