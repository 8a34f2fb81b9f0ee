"""Who wrote a log: producer state, snapshots, transactions."""
