"""Our session switches off work that Spark would do by itself."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from pyspark.errors.utils import is_debugging_enabled
from pyspark.sql import functions as f

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_no_call_tells_java_where_in_our_sources_it_is(spark: Any) -> None:
    """pyspark asks once per process, at the first call: the session must say it from its start."""
    assert spark.range(2).where(f.col("id") > 0).count() == 1
    assert not is_debugging_enabled()
