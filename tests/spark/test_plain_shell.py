"""``format("rollcall")`` where nobody prepared anything: an environment of PATH only, whose ``python3`` is another one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.lake.session import NoSpark, check_java
from tests.support.analytics_story import lines_of, story, write_journals

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

DEADLINE_S = 300
QUESTION = """
from rollcall_ha.analytics.bronze.datasource import register
before = spark.sparkContext.pythonExec
register(spark)
rows = spark.read.format("rollcall").load({folder!r}).where("version is not null")
print("COUNTED", rows.count(), spark.sparkContext.pythonExec == before)
"""
PLAIN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
END = "\nspark.stop()\n"


def environment(*first: Path) -> dict[str, str]:
    """PATH, and where this checkout is if that is how it was found. Skips where there is no Java."""
    try:
        check_java()
    except NoSpark as error:
        pytest.skip(str(error))
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin") if home else Path(shutil.which("java") or "").parent
    here = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return {"PATH": os.pathsep.join(map(str, (*first, java, "/usr/bin", "/bin"))), **here}


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """And how many events they have."""
    folder, lines = tmp_path_factory.mktemp("journals"), lines_of(story().records)
    write_journals(lines, folder)
    return folder, len(lines)


def test_a_session_that_was_made_by_hand(journals: tuple[Path, int], tmp_path: Path) -> None:
    """Its workers were PATH's ``python3``, which had no Rollcall, or was of another version; the rest stays the user's."""
    folder, events = journals
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 'another python3' >&2\nexit 42\n")
    other.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN + QUESTION.format(folder=str(folder)) + END],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert f"COUNTED {events} True" in done.stdout, done.stderr[-3_000:]


def test_the_shell_of_spark(journals: tuple[Path, int], tmp_path: Path) -> None:
    """``pyspark`` at a terminal, started as an installation has it: its folder on the PATH."""
    folder, events = journals
    installed = Path(sys.executable).parent
    shell = installed / "pyspark"
    assert shell.exists()
    ours, terminal = os.openpty()
    with subprocess.Popen(
        [str(shell), "--master", "local[1]", "--conf", "spark.ui.enabled=false"],
        env=environment(installed),
        cwd=tmp_path,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            os.write(ours, (QUESTION.format(folder=str(folder)).lstrip() + "exit()\n").encode())
            said, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            os.close(ours)
            os.close(terminal)
    assert f"COUNTED {events} True" in said, said[-3_000:]
