"""Kafka's protocol as data: the requests that are served, and their answers."""
