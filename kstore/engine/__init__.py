"""Ground floor: bytes, files, indexes, batches. Compiled; no policy, no clock, no configuration."""
