"""Processor time of a process and all below it, as benchmarks count it: never less than none."""

import subprocess
import sys

import pytest

from benchmarks.peers.timing import Process, both_times, ticks_between

BEFORE = {(1, 0): Process(0, 10, 5), (2, 3): Process(1, 40, 20), (3, 4): Process(2, 7, 0), (9, 1): Process(0, 1, 1)}


def test_growth_of_all_below_counts():
    after = {**BEFORE, (1, 0): Process(0, 12, 5), (3, 4): Process(2, 10, 0), (9, 1): Process(0, 500, 1)}
    assert ticks_between(1, BEFORE, after) == 2 + 3


def test_a_new_process_counts_whole_also_with_the_number_of_another():
    after = {(1, 0): Process(0, 10, 5), (2, 3): BEFORE[2, 3], (3, 8): Process(2, 2, 1), (4, 9): Process(3, 4, 0)}
    assert ticks_between(1, BEFORE, after) == 3 + 4


def test_what_ended_counts_as_its_parent_was_told():
    after = {(1, 0): Process(0, 10, 5), (2, 3): Process(1, 40, 20 + 7 + 6)}
    assert ticks_between(1, BEFORE, after) == 6


def test_what_ended_with_its_parent_counts_as_the_next_above_was_told():
    after = {(1, 0): Process(0, 11, 5 + 60 + 7 + 30)}
    assert ticks_between(1, BEFORE, after) == 1 + 30


@pytest.mark.parametrize("told", [0, 3])
def test_what_nobody_was_told_of_takes_nothing_from_the_others(told):
    after = {(1, 0): Process(0, 15, 5 + told)}
    assert ticks_between(1, BEFORE, after) == 5


def test_what_went_to_another_parent_takes_nothing_from_the_others():
    after = {(1, 0): Process(0, 15, 5), (2, 3): Process(99, 80, 20), (3, 4): Process(2, 9, 0)}
    assert ticks_between(1, BEFORE, after) == 5


def test_a_child_that_ends_meanwhile_is_counted_once():
    work = "import time\nwhile time.process_time() < 0.5: pass"
    child = subprocess.Popen([sys.executable, "-c", work])
    wall, processor = both_times(child.wait)
    assert 0 <= processor <= wall + 0.6
    _, again = both_times(lambda: subprocess.run([sys.executable, "-c", work], check=True))
    assert 0.4 <= again < 3
