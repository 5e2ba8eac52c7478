"""Kernels over Arrow columns and rows, whatever asks for them: casts, order, equality, splitting by keys."""
