"""New York's flights of 2013 as tables: one module per domain; each asset is a pure function over frames."""
