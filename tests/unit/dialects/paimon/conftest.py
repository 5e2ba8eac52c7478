"""A table of rows by day, and the folder that it lies in."""

import pytest

from lakeformat import Lake
from tests.unit.dialects.paimon.by_day import SCHEMA


@pytest.fixture
def home(tmp_path):
    return tmp_path / "d.db" / "t"


@pytest.fixture
def table(tmp_path):
    return Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"])
