"""Benchmarks: each measures lakeformat and a peer by turns in one run,
and tells the ratio and whether it is good enough."""
