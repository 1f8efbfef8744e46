"""
One quiet Spark session on this machine.

Here: finding Java, the settings that every job shares, those for a few rows, what Java says beside our words. Not here:
any job.
Raises ``NoSpark`` with the remedy where Spark or Java are missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rollcall_ha.analytics.refusals import JobRefused

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN = 17
JAVA_ANSWER_MS_MAX = 20_000

SHUFFLE_PARTITIONS = 64

OPEN_FILES_MAX = 64
"""One task that writes keeps so many open; with more partitions it sorts its rows by them first."""

DRIVER_MEMORY = "2g"
"""Heap of a ``local`` session; a cluster's executors have their own setting."""


COLLECTOR = "-XX:+UseParallelGC"
"""
It stops all threads: what the concurrent one adds to each write of a reference was a quarter of the CPU of silver and
gold.
"""

JAVA_VARIABLES = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Spark, or Java itself, takes options from these variables of the environment."""

COMPILER_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""
Java's optimising compiler begins ten times as late as by itself: each plan of Spark is new code, and compiling code
that runs for seconds only was a third of the CPU of silver and gold.
"""

SMALL_BYTES = 16_000_000
"""Journals, and events without their lines, of so many bytes together are few."""

WITHOUT_LINES = 4
"""So much smaller are files of events without their lines, which are not read again."""

OF_FEW_JAVA = (
    "-XX:TieredStopAtLevel=1",
    # With one compiler alone Java keeps 48 MB of code; Spark has more, and would compile again what was thrown away.
    "-XX:ReservedCodeCacheSize=240m",
    # It grows into them by one collection of everything after the other.
    "-XX:MetaspaceSize=256m",
    "-XX:NewSize=256m",
)
OF_FEW_COLLECTOR = "-XX:+UseSerialGC"

OF_FEW = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Checks of each rule of the optimizer, places of calls and texts of plans.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "10",
    # Each sort and aggregate begins with a page; by the heap's size it would be one of 64 MB.
    "spark.buffer.pageSize": "1m",
}
"""For few rows: compiling plans, and planning them again while they run, takes longer than running them as they are."""

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


class NoSpark(JobRefused):
    """Spark cannot start here; the message says what to install."""


_PATTERN = re.compile(r"[\[\]{}*?\\]")


def as_path(path: Path | str) -> str:
    """A path for Spark's readers, which take patterns: for a folder ``a[1]`` they would look into ``a1``."""
    return _PATTERN.sub(r"\\\g<0>", str(path))


def is_hidden(name: str) -> bool:
    """Whether Spark's readers leave a file or folder of this name out, without a word."""
    return name.startswith(("_", "."))


def are_few(paths: Iterable[Path]) -> bool:
    """Whether files, and Parquet files below folders as ``WITHOUT_LINES``, are at most ``SMALL_BYTES`` together."""
    files = (
        (file, WITHOUT_LINES if path.is_dir() else 1)
        for path in paths
        for file in (path.rglob("*.parquet") if path.is_dir() else (path,))
    )
    left = SMALL_BYTES
    # A lake of years has thousands of files: not all of them have to be looked at to see that they are not few.
    for file, smaller in files:
        left -= file.stat().st_size // smaller if file.exists() else 0
        if left < 0:
            return False
    return True


def spark_session(
    *, app: str, master: str = "local[*]", settings: Mapping[str, str] | None = None, is_few: bool = False
) -> SparkSession:
    """
    Start or find the session of this process.

    ``settings`` are Spark's own keys, and ``is_few`` says that there will be few rows; both count only at the start.

    Raises:
        NoSpark: pyspark is not installed, or Java is missing or older than ``JAVA_MAJOR_MIN``.
    """
    check_java()
    # Executors on other machines have settings of their own.
    is_few = is_few and master.startswith("local")
    given = {**(OF_FEW if is_few else {}), **(settings or {})}
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NoSpark("pyspark is not installed; install the extra: pip install 'rollcall-ha[analytics]'") from error
    # Workers take PATH's python3 unless told: a Python 3.9 of the system would fail in the first task, after 20 s.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers on other machines must reach the driver; for all others it listens on loopback only.
    is_here = master.startswith("local") or "127.0.0.1" in master
    if is_here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = (
        SparkConf()
        .setAppName(app)
        .setMaster(master)
        .set("spark.ui.enabled", "false")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.sql.session.timeZone", "UTC")
        # Spark's own choice is a type of 96 bits that Parquet has given up, without minima and maxima.
        .set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        # Else each call of a column's function first tells Java where in our sources it is, for an error that has a
        # traceback of its own: a fifth of the CPU of a run over a few rows.
        .set("spark.python.sql.dataFrameDebugging.enabled", "false")
        # A run of all layers compiles more plans than the hundred that are kept: a stream would compile them each time.
        .set("spark.sql.codegen.cache.maxEntries", "1000")
        # A number that overflows in one bad event is that event's trouble, not the job's.
        .set("spark.sql.ansi.enabled", "false")
        # Many small shuffle partitions, that adaptive execution puts together again by their size.
        .set("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
        .set("spark.sql.adaptive.coalescePartitions.parallelismFirst", "false")
        # But at least two of them where there is work for two, so that a small machine is not half idle.
        .set("spark.sql.adaptive.coalescePartitions.minPartitionNum", "2")
        .set("spark.sql.adaptive.coalescePartitions.minPartitionSize", "4m")
        # Rows of a month go to their days' files as they come; without this they are sorted by day first.
        .set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES_MAX))
        # Set at the start of Java: Spark's own set-up is the loudest. Options of the user's come after these.
        .set("spark.driver.defaultJavaOptions", " ".join(java_options(given, is_few=is_few)))
        .set("spark.driver.memory", DRIVER_MEMORY)
    )
    # Off for a local disk: each range of a read would be a thread of its own.
    conf.set("spark.hadoop.parquet.hadoop.vectored.io.enabled", str(not master.startswith("local")).lower())
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_here else {}
    for key, value in {**loopback, **given}.items():
        conf.set(key, value)
    if SparkContext._gateway is None:  # noqa: SLF001 (the way that pyspark has for a Java that was started otherwise)
        _start_java(conf)
    session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    return session


def _start_java(conf: SparkConf) -> None:
    """Raises ``NoSpark`` with what Java says if it does not start."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    # On a person's screen the first words would be Java's: a warning that Spark uses an incubator module. To a file,
    # because nobody has to read it on: what goes wrong in a job is in the exception that we get.
    with tempfile.TemporaryFile() as said:
        try:
            gateway = launch_gateway(conf, {"stderr": said})
        except PySparkRuntimeError as error:
            said.seek(0)
            raise NoSpark(f"Spark does not start: {said.read().decode(errors='replace').strip()}") from error
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 (as above)


def java_options(settings: Mapping[str, str], *, is_few: bool = False) -> list[str]:
    """For the driver's Java. Without our collector where a user has chosen one: Java does not start with two."""
    home = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", "/nowhere"), "conf")
    defaults = Path(home, "spark-defaults.conf")
    given = settings.get("spark.driver.extraJavaOptions", ""), *(os.environ.get(name, "") for name in JAVA_VARIABLES)
    is_chosen = re.search(r"-XX:\+Use\w+GC", " ".join((*given, defaults.read_text() if defaults.is_file() else "")))
    log = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    compiler, collector = (OF_FEW_JAVA, OF_FEW_COLLECTOR) if is_few else (COMPILER_OPTIONS, COLLECTOR)
    return [log, *compiler, *(() if is_chosen else (collector,))]


def check_java() -> None:
    """Raises ``NoSpark`` unless a Java of at least ``JAVA_MAJOR_MIN`` answers."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118 (may not exist)
    remedy = f"Spark needs Java {JAVA_MAJOR_MIN} or newer: apt-get install openjdk-17-jre-headless"
    if java is None:
        raise NoSpark(f"no java on the PATH. {remedy}")
    try:
        answer = subprocess.run(  # the output of -version goes to stderr
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=JAVA_ANSWER_MS_MAX / 1000,
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSpark(f"{java} does not answer: {error}. {remedy}") from error
    found = next(
        (line.split("=")[1].strip() for line in answer.splitlines() if "java.specification.version" in line), "?"
    )
    major = found.removeprefix("1.").split(".")[0]
    if not major.isdigit() or int(major) < JAVA_MAJOR_MIN:
        raise NoSpark(f"{java} is Java {found}. {remedy}")
