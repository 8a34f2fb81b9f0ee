"""The directory of a partition and the small files in it: names, checkpoints, locks."""
