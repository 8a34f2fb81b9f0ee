"""Bytes of segments to sockets."""
