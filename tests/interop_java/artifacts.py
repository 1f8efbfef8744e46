"""
Apache RocketMQ's published artifacts and our small Java clients, ready to run.

Here: find Java and Maven (or have Debian's packages installed), copy the artifacts of one version into a cache, compile
``src/``; artifacts of another system by a pom of its own (``obtain_jars``). Not here: starting anything (``fleet``), what is done with them (``tests.interop_java``).

Rule 1: the cache lies outside the checkout: ``$XDG_CACHE_HOME/rollcall`` or ``~/.cache/rollcall``.
Rule 2: a folder in the cache is whole or absent; several processes may ask at once.
Rule 3: what cannot be had is ``JavaUnavailableError``, whose message says what was tried; callers skip and count.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError

VERSION = "5.3.3"
"""The release that everything is compared with."""
HERE = Path(__file__).resolve().parent
SETUP = HERE.parent / "setup.sh"
INSTALL_DEADLINE_S = 600.0
COPY_DEADLINE_S = 300.0
COMPILE_DEADLINE_S = 120.0
REASON_CHARACTERS_MAX = 600


class JavaUnavailableError(LauncherError):
    """Java, Maven or the artifacts cannot be had here; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMq:
    """One release, ready to be started."""

    version: str
    jars: Path
    """Folder with the artifacts and all that they depend on."""
    classes: Path | None
    """Folder with our own clients, compiled against ``jars``; None for other releases than ``VERSION``."""

    def java(self, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """Command line that runs a main class."""
        path = f"{self.jars}/*" if self.classes is None else f"{self.classes}:{self.jars}/*"
        return ["java", *options, "-cp", path, main, *arguments]


def obtain(version: str = VERSION) -> RocketMq:
    """
    A release of RocketMQ from the cache, or from Maven's repositories if it is not there yet.

    Raises:
        JavaUnavailableError: it cannot be had on this machine.
    """
    if shutil.which("java") is None or shutil.which("javac") is None:
        _install()
    with _locked() as cache:
        jars = cache / f"rocketmq-{version}"
        if not jars.is_dir():
            if shutil.which("mvn") is None:
                _install()
            _copy_artifacts("rocketmq", version, HERE / "pom.xml", jars, f"rocketmq-broker-{version}.jar")
        if version != VERSION:
            return RocketMq(version=version, jars=jars, classes=None)
        classes = cache / f"clients-{version}-{_digest_of_sources()}"
        if not classes.is_dir():
            _compile(jars, classes)
    return RocketMq(version=version, jars=jars, classes=classes)


def obtain_jars(name: str, version: str, pom: Path, *, whole: str) -> Path:
    """
    The folder with the artifacts of ``pom`` in this version and all that they need, from the cache or from Maven's repositories.

    ``pom`` names the version ``${NAME.version}``; ``whole`` is a jar without which the copy is none.
    Raises ``JavaUnavailableError`` as ``obtain``.
    """
    if shutil.which("java") is None:
        _install()
    with _locked() as cache:
        jars = cache / f"{name}-{version}"
        if not jars.is_dir():
            if shutil.which("mvn") is None:
                _install()
            _copy_artifacts(name, version, pom, jars, whole)
    return jars


def cache_directory() -> Path:
    """Where artifacts are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollcall"


@contextmanager
def _locked() -> Iterator[Path]:
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _install() -> None:
    _run([str(SETUP), "interop"], deadline_s=INSTALL_DEADLINE_S, what="install a JDK and Maven")
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        raise JavaUnavailableError(
            f"no {', '.join(missing)} here; run as root: apt-get install openjdk-17-jdk-headless maven"
        )


def _copy_artifacts(name: str, version: str, pom: Path, jars: Path, whole: str) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        copied = Path(scratch) / "jars"
        # Maven keeps for a day that it has not found a plugin: a minute without network would skip all that needs Java.
        argv = [
            "mvn",
            "--batch-mode",
            "--quiet",
            "--update-snapshots",
            "--file",
            str(pom),
            f"-D{name}.version={version}",
        ]
        argv += ["dependency:copy-dependencies", f"-DoutputDirectory={copied}"]
        _run(argv, deadline_s=COPY_DEADLINE_S, what=f"copy the artifacts of {name} {version} with Maven")
        if not (copied / whole).exists():
            raise JavaUnavailableError(f"Maven ended well but copied no {whole}")
        copied.rename(jars)


def _sources() -> list[Path]:
    return sorted((HERE / "src").rglob("*.java"))


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _compile(jars: Path, classes: Path) -> None:
    with tempfile.TemporaryDirectory(dir=classes.parent) as scratch:
        compiled = Path(scratch) / "classes"
        argv = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(compiled), *map(str, _sources())]
        _run(argv, deadline_s=COMPILE_DEADLINE_S, what="compile our Java clients")
        compiled.rename(classes)


def _run(argv: list[str], *, deadline_s: float, what: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=deadline_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnavailableError(f"could not {what}: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[:REASON_CHARACTERS_MAX]
        raise JavaUnavailableError(f"could not {what}: {said or f'status {done.returncode}'}")
