"""Commands that change one partition."""
