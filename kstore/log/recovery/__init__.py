"""What a directory holds once it is loaded, and what recovery does to it."""
