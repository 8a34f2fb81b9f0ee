"""A server for Kafka clients: messages, requests, groups, transactions."""
