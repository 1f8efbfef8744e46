"""What is declared is what is imported, what is locked is what is declared, and the client needs two libraries."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from rollcall_ha import VERSION_LINE
from rollcall_ha.cli import entry
from rollcall_ha.deploy import lock

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
TABLES = lock.read_tables(PROJECT)
ENTRIES = lock.read_lock(lock.LOCK.read_text())
FOLDERS = sorted(path.name for path in (ROOT / "src" / "rollcall_ha").iterdir() if path.is_symlink())
NOT_IMPORTED = {"pandas"}
"""pyspark imports it when it runs."""
NAMESPACE = "opentelemetry"
"""A module of many distributions, which are named after their part of it."""
OF_OTLP = ROOT / "cli" / "traces.py"
"""The one file of the extra ``otlp``."""


@cache
def installed() -> dict[str, list[str]]:
    """Top-level module to its distributions."""
    return {module: list(names) for module, names in packages_distributions().items()}


@cache
def libraries(path: Path) -> frozenset[str]:
    """Distributions of other people that a file imports, late imports too."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {top_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(top_of(node.module))
    foreign = modules - set(sys.stdlib_module_names) - {"rollcall_ha"}
    return frozenset(lock.canonical(name) for module in foreign for name in installed().get(module, [module]))


def top_of(module: str) -> str:
    """The part of its name that says whose it is."""
    if not module.startswith(f"{NAMESPACE}."):
        return module.split(".", maxsplit=1)[0]
    parts = ("sdk", "exporter.otlp.proto.http")
    return f"{NAMESPACE}-{next((part for part in parts if module.startswith(f'{NAMESPACE}.{part}')), 'api')}"


def imported(folders: list[str]) -> dict[str, str]:
    """Distribution to one file that imports it."""
    return {
        name: str(path.relative_to(ROOT))
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != OF_OTLP
        for name in libraries(path)
    }


def pins() -> dict[str, str]:
    return {name: entry.split("==")[1].split()[0] for name, entry in ENTRIES.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folders", "extras"),
    [([name for name in FOLDERS if name != "analytics"], ["base", "server"]), (FOLDERS, ["base", "analytics"])],
    ids=["server", "analytics"],
)
def test_what_is_imported_is_declared(folders: list[str], extras: list[str]) -> None:
    """Nobody lives on a library that another one happens to bring, as starlette came with fastapi."""
    declared = lock.roots(TABLES, extras)
    undeclared = {name: path for name, path in imported(folders).items() if name not in declared}

    assert undeclared == {}


def test_the_trace_needs_exactly_what_its_extra_brings() -> None:
    """``rollcall trace`` alone knows OpenTelemetry."""
    assert libraries(OF_OTLP) | lock.roots(TABLES, ["server", "base"]) == lock.roots(TABLES, ["base", "otlp"])


@pytest.mark.slow
def test_what_is_declared_is_imported() -> None:
    """A library that nothing imports any more leaves the tables."""
    declared = lock.roots(TABLES, ["base", "analytics"])

    assert declared - set(imported(FOLDERS)) - NOT_IMPORTED == set()


def test_every_requirement_is_a_range_that_begins_where_the_tests_judged() -> None:
    """A bare name would take any release; a pin would fight with the host application's. PySyncObj alone is pinned."""
    pinned = []
    for name in ("base", "server", "analytics", "otlp", "test", "dev", "field", "build"):
        for requirement in (Requirement(text) for text in TABLES[name] if not text.startswith("rollcall-ha[")):
            lower = [spec.version for spec in requirement.specifier if spec.operator in (">=", "==")]
            pinned += [requirement.name for spec in requirement.specifier if spec.operator == "=="]

            assert len(lower) == 1, requirement
            assert requirement.specifier.contains(pins()[lock.canonical(requirement.name)]), requirement

    assert pinned == ["pysyncobj"]


def test_the_lock_is_current() -> None:
    """Every requirement has its entry, and every entry is there for a requirement; if not: ``make lock``."""
    wanted = lock.roots(TABLES, ["base", "client", "dev", "field", "build"])

    assert wanted - set(ENTRIES) == set()
    assert set(ENTRIES) - lock.closure(ENTRIES, wanted) == set()


def test_every_entry_of_the_lock_has_hashes_and_no_place() -> None:
    """Whoever installs from it may use any index, and gets these bytes or nothing."""
    text = lock.LOCK.read_text()
    lines = re.findall(r"(?m)^[^#\s].*", text)

    assert len(lines) == len(ENTRIES)
    assert [name for name, entry in ENTRIES.items() if "--hash=sha256:" not in entry] == []
    assert re.findall(r"://|(?m:^-)|/[a-z]+/", text) == []


def test_the_demo_installs_no_spark_and_no_test() -> None:
    """What ``make demo`` loads is what a fleet needs."""
    needed = lock.closure(ENTRIES, lock.roots(TABLES, ["base", "server"]))

    assert needed & {"pyspark", "pyarrow", "pandas", "numpy", "pytest", "mypy", "hypothesis"} == set()
    assert {"httpx", "msgspec", "pysyncobj", "uvicorn"} <= needed


def test_the_base_is_httpx_and_msgspec_and_the_extra_client_adds_nothing() -> None:
    """``rollcall-ha`` and ``rollcall-ha[client]`` are the same installation."""
    assert lock.roots(TABLES, ["base", "client"]) == {"httpx", "msgspec"}


FORBID = """
import importlib.abc, sys

allowed = set(sys.argv[1].split(","))

class Forbid(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in allowed | set(sys.stdlib_module_names) and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Forbid())
"""
USE_CLIENT = """
import asyncio, httpx, logging
from rollcall_ha.client.client import Client
from rollcall_ha.broker.client.blocking import BlockingConsumer
from rollcall_ha.broker.client.consumer import Consumer
from rollcall_ha.broker.client.producer import Producer, SendFailedError

fresh = {"readFrom": "c1", "term": 1, "index": 2, "ageMs": 3, "isAuthoritative": True, "isStale": False}
page = {"freshness": fresh, "sets": [], "setsTotal": 0, "nextAfter": None}
with Client(["c1:7201"], transport=httpx.MockTransport(lambda request: httpx.Response(200, json=page))) as client:
    print("REST", client.sets().freshness.index)

async def send():
    async with Producer(["127.0.0.1:1"], send_timeout_ms=50) as producer:
        try:
            await producer.send("topic", b"body")
        except SendFailedError as failed:
            print("producer", failed.outcome)

asyncio.run(send())
logging.disable()  # it says why it waits
with BlockingConsumer(Consumer(["127.0.0.1:1"], group="g", topics={"topic": "*"})) as consumer:
    print("consumer", consumer.poll(wait_ms=10))
"""


def run_with(allowed: set[str], program: str) -> subprocess.CompletedProcess[str]:
    """A program in an interpreter of its own that can import the standard library and these packages only."""
    argv = [sys.executable, "-P", "-c", FORBID + program, ",".join(allowed | {"rollcall_ha"})]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def modules_of(extras: list[str]) -> set[str]:
    """Top-level modules of everything that these extras install."""
    needed = lock.closure(ENTRIES, lock.roots(TABLES, extras))
    found = {module: {lock.canonical(name) for name in names} for module, names in installed().items()}
    return {module for module, names in found.items() if names <= needed or (module == NAMESPACE and names & needed)}


@pytest.mark.slow
def test_client_and_producer_need_the_base_alone() -> None:
    """With every other library forbidden the REST client reads a page; producer and consumer look for a broker."""
    done = run_with(modules_of(["base"]), USE_CLIENT)

    assert done.stderr == ""
    assert done.stdout.split("\n") == ["REST 2", "producer not-appended", "consumer []", ""]


@pytest.mark.slow
def test_the_command_names_the_extra_that_is_missing() -> None:
    """With the base alone ``rollcall`` says what to install, in one line."""
    program = f"from {entry.__name__} import main\nsys.argv[1:] = ['status']\nmain()"
    done = run_with(modules_of(["base"]), program)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'rollcall-ha[server]'" in done.stderr


@pytest.mark.slow
def test_the_version_took_the_whole_command_line_and_was_refused_by_the_base_alone() -> None:
    done = run_with(modules_of(["base"]), f"from {entry.__name__} import main\nsys.argv[1:] = ['--version']\nmain()")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION_LINE}\n", "")


@pytest.mark.slow
def test_servers_and_commands_need_the_extra_server_alone() -> None:
    """Every module outside of analytics can be imported without Spark, pandas and what only tests use."""
    modules = [
        "rollcall_ha." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in FOLDERS
        if name != "analytics"
        for path in sorted((ROOT / name).rglob("*.py"))
        if path.name != "__main__.py" and path != OF_OTLP
    ]
    done = run_with(
        modules_of(["base", "server"]), f"import importlib\nfor n in {modules!r}: importlib.import_module(n)"
    )

    assert done.stderr == ""
    assert len(modules) > 100
