"""The command line: `lakeformat`. One file per command; commands call only public names of the library."""
