"""What becomes of a session whose workers cannot run the library."""

import platform

import pytest

from lakeformat import Lake, UnsupportedFeature


@pytest.mark.spark
def test_workers_of_another_minor_version_of_python_are_refused_by_name(spark, tmp_path, monkeypatch):
    """A worker compares its own version with the one that the driver says it is of."""
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.8")
    own = platform.python_version().rpartition(".")[0].replace(".", r"\.")
    with pytest.raises(UnsupportedFeature, match=rf"workers run Python {own}, and this process 3\.8: .*PYSPARK_PYTHON"):
        Lake(str(tmp_path)).attach(spark)
