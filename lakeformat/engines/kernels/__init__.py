"""Kernels over Arrow columns and rows: casts, order, equality, splitting by keys."""
