"""A page that shows a log, a store or a broker's directory."""
