"""The context of decimal arithmetic. The process's own rounds to 28 digits, even for a minus,
and anyone may change it."""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, InvalidOperation

# Read a number by `EXACT.create_decimal`, which raises `InvalidOperation` for text that is none.
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
