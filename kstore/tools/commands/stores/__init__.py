"""Commands about topics, groups and log directories."""
