"""The version, a literal, so that building needs no import."""

__version__ = "0.1.0"
