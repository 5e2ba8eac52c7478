"""Sets of GTIDs: what a server writes is read and written again, and nothing is known that was not added."""

import random

import pytest

from lakeformat import InvalidInput
from lakeformat.cdc.mysql.gtids import Gtid, Gtids

SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_sets_of_gtids_are_those_that_were_added():
    draw = random.Random(7)
    for _ in range(50):
        made, numbers = Gtids(), {draw.randint(1, 30) for _ in range(draw.randint(0, 25))}
        for number in sorted(numbers, key=lambda _: draw.random()):
            made.add(Gtid.parse(f"{SOURCE}:{number}"))
        for found in (made, Gtids.parse(str(made))):
            assert {i for i in range(40) if Gtid(SOURCE, i) in found} == numbers, str(made)
        assert bool(made) == bool(numbers)
    assert str(Gtids.parse(f"{SOURCE.upper()}:1-5:7, {SOURCE}:6")) == f"{SOURCE}:1-7"


def test_the_last_one_of_a_domain_stands_for_those_before_it():
    made = Gtids.parse("1-9-4,0-1-57")
    made.add(Gtid.parse("0-2-58"))
    assert str(made) == "0-2-58,1-9-4"
    tried = [Gtid.parse(text) in made for text in ("0-1-57", "0-1-59", "1-1-4", "2-1-1")]
    assert tried == [True, False, True, False]
    for text in ("0-1-57", f"{SOURCE}:7"):
        assert str(Gtid.parse(text.upper())) == text
    with pytest.raises(InvalidInput, match="not a set of GTIDs"):
        Gtids.parse("one-two")
