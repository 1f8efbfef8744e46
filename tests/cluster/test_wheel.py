"""
The distribution as a stranger gets it: what is in the wheel, and a fleet started from it in a hostile directory.

The wheel is built by hatchling itself and installed by pip without an index, so that nothing is downloaded. The fresh
environment borrows the libraries of the one that runs the tests, but not our editable install: a line of a ``.pth``
file adds a folder, and ``.pth`` files in such a folder are not read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import rollcall_ha
from rollcall_ha.node.config import FLEET_FILE_NAME

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.name for path in (ROOT / "src" / "rollcall_ha").iterdir() if path.is_symlink())
SHADOWS = ("api", "typer", "msgspec", "httpx", "node", "uvicorn", "rollcall_ha")
"""Modules of the user's own, in the directory in which the user works."""
FOR_A_CHECKOUT = {
    "deploy/Containerfile",
    "deploy/check.sh",
    "deploy/local/analytics_demo.py",
    "deploy/lock.py",
    "deploy/pythons.sh",
    "deploy/setup.sh",
    "deploy/spark-standalone.sh",
}
"""What builds and checks a checkout, or is run by make alone."""
pytestmark = [pytest.mark.cluster, pytest.mark.prove]


def run(directory: Path, argv: Sequence[str | Path], *, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """A command with nothing of the tests in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROLLCALL"))}
    done = subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, check=False, cwd=directory, env=environment,
        timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT, [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT])
    (built,) = folder.glob("*.whl")
    return built


def make_environment(folder: Path) -> Path:
    """A virtual environment that has our libraries and nothing of ours; the path of its Python."""
    venv.create(folder, with_pip=False)
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(ROOT, [*pip, "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed", *what])


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A user's directory: a folder ``api`` and modules named like libraries, all of which must not be imported."""
    place = tmp_path / "work"
    (place / "api").mkdir(parents=True)
    (place / "api" / "__init__.py").write_text("raise SystemExit('the api of the working directory was imported')\n")
    for name in SHADOWS:
        (place / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the working directory was imported')\n")
    return place


def test_the_wheel_holds_the_product_alone(wheel: Path) -> None:
    """One top-level name of ours, no test and no double, no script of the checkout, and all the data that modules read."""
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name.removeprefix("rollcall_ha/") for name in names if name.startswith("rollcall_ha/")}
    ours = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name.split("/")[0] for name in names} == {"rollcall_ha", f"rollcall_ha-{rollcall_ha.__version__}.dist-info"}
    assert {name.split("/")[0] for name in inside} == {*FOLDERS, "__init__.py", "py.typed"}
    assert [name for name in names if re.search(r"test|conftest|fake|memory_log|simulation", name.split("/")[-1])] == []
    assert [name for name in names if name.endswith(".java") and not name.startswith("rollcall_ha/analytics/")] == []
    assert ours - inside == FOR_A_CHECKOUT
    assert inside - ours == {"__init__.py", "py.typed"}


def test_nothing_in_the_wheel_names_what_is_left_out(wheel: Path) -> None:
    """It would be missed by a user alone, at the moment of the import."""
    archive = zipfile.ZipFile(wheel)
    modules = [file.removesuffix(".py").rpartition("/")[2] for file in FOR_A_CHECKOUT if file.endswith(".py")]
    named = re.compile(rf"rollcall_ha[\w.]*(?: import |\.)(?:[\w, ]+, )?(?:{'|'.join(modules)})\b")
    texts = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}

    assert [name for name, text in texts.items() if named.search(text)] == []


def test_the_wheel_says_what_it_needs_and_where_it_runs(wheel: Path) -> None:
    """Metadata by which pip resolves and people choose."""
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    lines = archive.read(metadata).decode().split("\n\n")[0].splitlines()

    assert "Requires-Python: >=3.11" in lines
    assert "License-Expression: Apache-2.0" in lines
    assert [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line] == [
        "Requires-Dist: httpx<0.29,>=0.28.1",
        "Requires-Dist: msgspec<0.23,>=0.22.0",
    ]
    for minor in (11, 12, 13):
        assert f"Classifier: Programming Language :: Python :: 3.{minor}" in lines


def make_clash(folder: Path) -> Path:
    """The source of a distribution whose top-level packages have the names of our folders."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} of another distribution was imported')\n")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "clash"\nversion = "1"\n'
        f"[tool.hatch.build.targets.wheel]\npackages = {FOLDERS!r}\n"
    )
    return folder


def test_a_fleet_runs_from_the_wheel_among_clashing_names(wheel: Path, tmp_path: Path, workplace: Path) -> None:
    """
    The wheel starts six processes where the user has an ``api`` and the environment another ``api``; then an editable
    install and the script of the checkout look at that fleet from the same directory, and the install stops it.
    """
    from_wheel, editable = make_environment(tmp_path / "env"), make_environment(tmp_path / "editable")
    install(from_wheel, wheel, make_clash(tmp_path / "clash"))
    install(editable, "--editable", ROOT)
    commands = [from_wheel.parent / "rollcall", editable.parent / "rollcall", ROOT / "rollcall"]
    versions = [run(workplace, [command, "--version"]).stdout for command in commands]

    try:
        up = run(workplace, [commands[0], "demo", "up"])
        pages = [run(workplace, [command, "status"]) for command in commands]
    finally:
        down = run(workplace, [commands[1], "demo", "down"])

    assert versions == [f"rollcall {rollcall_ha.__version__}\n"] * 3
    assert "3 replicas in sync" in up.stdout
    assert ["broker-a" in page.stdout for page in pages] == [True] * 3
    assert "stopped 7" in down.stdout
    assert (workplace / ".demo" / FLEET_FILE_NAME).is_file()
