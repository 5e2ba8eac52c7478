"""The command line: `lakeformat`. One file a command; commands call public names of the library only."""
