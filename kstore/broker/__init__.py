"""What a broker's log directory says about its topics and transactions."""
