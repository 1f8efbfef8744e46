"""One Spark session for all tests of a process: starting one costs more than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from analytics.session import NoSpark, check_java, spark_session

QUICK_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.memory": "1g",
}
"""Tables of a few rows: compiling their plans takes longer than running them."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session; skips with the reason where there is no Spark or no Java."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")
    try:
        check_java()
    except NoSpark as error:
        pytest.skip(str(error))
    session = spark_session(app="tests", master=os.environ.get("ROLLCALL_TEST_SPARK", "local[1]"), settings=QUICK_START)
    yield session
    session.stop()
