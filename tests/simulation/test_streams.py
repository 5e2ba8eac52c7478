"""Streams whose processes die at any call of storage, beside batch writers, compaction, expiry, tags and a consumer."""

import pytest

from tests.simulation.racing import SEEDS
from tests.simulation.streams import race


# Processes die in all their threads.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seed", range(max(SEEDS // 25, 1)))
def test_streams_lose_nothing_and_double_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # Threads of one process take turns in no order that a seed knows.
    race(seed)
