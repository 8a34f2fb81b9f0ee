"""Waiting for what comes."""
