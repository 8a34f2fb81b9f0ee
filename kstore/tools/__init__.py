"""The command line: what the subcommands share."""
