"""The command line: ``relbias COMMAND ...``; each command imports what it needs and no more."""
