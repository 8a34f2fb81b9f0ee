"""The maintenance of a store: what is due, and when."""
