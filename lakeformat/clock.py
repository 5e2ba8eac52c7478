"""The clock: the one place where the library reads the time of day. Plans take it from a `Stamp`."""

import time


def now_ms() -> int:
    """Milliseconds since 1970-01-01T00:00:00Z, by the clock of this machine."""
    return time.time_ns() // 1_000_000
