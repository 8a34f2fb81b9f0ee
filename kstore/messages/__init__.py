"""Kafka's messages as tables of fields, with one interpreter."""
