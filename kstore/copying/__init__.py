"""Copies of partitions, topics and stores; adoption by a broker."""
