"""``rollcall context``: fleets by name, in a file for its owner alone, and below everything that is said more nearly."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest
import typer

from rollcall_ha.cli import context, contexts
from rollcall_ha.cli.main import app
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.files import atomic_replace
from tests.support.cli import CliRunner, Ran, Run
from tests.support.fleet_certs import FleetCertificates

TOKEN = "0f1e2d3c" * 8


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user in an empty directory, with nothing in the environment; options of one test do not reach the next."""
    for name in [name for name in os.environ if name.startswith("ROLLCALL_")]:
        monkeypatch.delenv(name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(context, "OPTIONS", context.CommonOptions())
    return tmp_path / "config" / "rollcall" / "contexts.json"


@pytest.fixture
def rollcall(file: Path) -> Run:
    def run(*arguments: str) -> Ran:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def certificates(tmp_path: Path) -> FleetCertificates:
    return FleetCertificates(tmp_path / "tls")


def options(**chosen: str | Path | None) -> None:
    """As if a command line had said so."""
    for name, value in chosen.items():
        setattr(context.OPTIONS, name, value)


def fleet_file(folder: Path) -> Path:
    arguments = ["init", "--directory", str(folder), "--controller", "c1=file:1,file:2,file:3"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    context.OPTIONS.config = None
    return folder / "rollcall.toml"


def test_a_context_is_added_used_listed_and_removed(rollcall: Run, file: Path) -> None:
    """The first one is in use; the file is for its owner, and so is its folder."""
    assert rollcall("context", "add", "prod", "--controllers", "p1:1,p2:1").code == 0
    assert rollcall("context", "add", "stage", "--controllers", "s1:1").code == 0
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert context.controller_addresses() == ("p1:1", "p2:1")

    assert rollcall("context", "use", "stage").code == 0
    assert context.controller_addresses() == ("s1:1",)
    assert rollcall("context", "list", "-o", "name").out == "prod\nstage\n"
    listed = json.loads(rollcall("context", "list", "-o", "json").out)
    assert (listed["current"], listed["contexts"][0]["controllers"]) == ("stage", ["p1:1", "p2:1"])

    assert rollcall("context", "remove", "stage").code == 0
    with pytest.raises(typer.Exit) as nowhere:
        context.controller_addresses()
    assert nowhere.value.exit_code == 2, "removed: the other one does not take its place by itself"
    rollcall("context", "use", "prod")
    assert rollcall("context", "use", "--none").code == 0
    assert json.loads(file.read_text())["current"] == ""


def test_the_nearest_word_counts(
    rollcall: Run, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Option, environment, named context, fleet file here, context in use: each is there, and one after the other goes."""
    rollcall("context", "add", "used", "--controllers", "used:1")
    rollcall("context", "add", "named", "--controllers", "named:1")
    here = fleet_file(Path())
    monkeypatch.setenv(contexts.CONTEXT_VARIABLE, "named")
    monkeypatch.setenv(context.ENVIRONMENT, "environment:1")
    options(controllers="option:1")
    found = [context.controller_addresses()]
    options(controllers="")
    found.append(context.controller_addresses())
    monkeypatch.delenv(context.ENVIRONMENT)
    found.append(context.controller_addresses())
    assert capsys.readouterr().err == "(context named)\n"
    monkeypatch.delenv(contexts.CONTEXT_VARIABLE)
    found.append(context.controller_addresses())
    here.unlink()
    found.append(context.controller_addresses())

    assert found == [("option:1",), ("environment:1",), ("named:1",), ("file:3",), ("used:1",)]
    options(context="named")
    assert context.controller_addresses() == ("named:1",)


def test_a_fleet_file_by_option_counts_before_the_environments_context(
    rollcall: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And two options that name two fleets are refused with both."""
    rollcall("context", "add", "prod", "--controllers", "prod:1")
    named = fleet_file(tmp_path / "fleet")
    monkeypatch.setenv(contexts.CONTEXT_VARIABLE, "prod")
    options(config=named)
    assert context.controller_addresses() == ("file:3",)

    both = rollcall("--context", "prod", "--config", str(named), "sets")
    assert (both.code, "--context prod and --config" in both.err, str(named) in both.err) == (2, True, True)


def test_credentials_are_those_of_the_context(
    rollcall: Run, file: Path, tmp_path: Path, certificates: FleetCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By absolute paths, so from any directory; the file itself holds none of them."""
    admin = certificates.issue(PeerKind.ADMIN, "admin")
    token = tmp_path / "robot.token"
    atomic_replace(token, f"{TOKEN}\n".encode())
    monkeypatch.chdir(tmp_path)
    arguments = ["--authority", "tls/ca.pem", "--identity", "tls/admin.pem", "--token-file", "robot.token"]
    assert rollcall("context", "add", "prod", "--controllers", "p1:1", *arguments).code == 0
    monkeypatch.chdir(tmp_path / "here")
    found = context.identity()

    assert (found.authority, found.certificate, found.token()) == (certificates.authority_file, admin, TOKEN)
    assert [secret for secret in (TOKEN, "PRIVATE") if secret in file.read_text()] == []
    options(authority=tmp_path / "other.pem")
    assert (context.identity().certificate, context.identity().token_file) == (None, None), "of another authority"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_file_that_others_can_use_is_refused(rollcall: Run, file: Path, mode: int) -> None:
    """Whoever could write it would be sent this user's token; the remedy is in the message."""
    rollcall("context", "add", "prod", "--controllers", "p1:1")
    file.chmod(mode)
    ran = rollcall("sets")

    assert (ran.code, ran.out) == (2, "")
    assert f"has mode 0{mode:o}, so others can use it; it must be 0600: chmod 600 {file}" in ran.err
    assert rollcall("context", "list").code == 2
    assert rollcall("context", "add", "more", "--controllers", "p2:1").code == 2, "nor is it written over"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "prod", "--controllers", "p2:1"), "has a context 'prod'; replace it with --replace"),
        (("add", "-x", "--controllers", "p2:1"), ""),
        (("add", "a b", "--controllers", "p2:1"), "is no name of a context"),
        (("add", "new", "--controllers", " , "), "name the controllers"),
        (("add", "new", "--controllers", "p1:0"), "is not the address of a controller"),
        (("add", "new", "--controllers", "p1:1", "--authority", "none.pem"), "none.pem cannot be used"),
        (("use", "stage"), "has no context 'stage'; it has: prod"),
        (("use",), "--none"),
        (("remove", "stage"), "has no context 'stage'; it has: prod"),
    ],
)
def test_wrong_use_changes_nothing(rollcall: Run, file: Path, arguments: tuple[str, ...], words: str) -> None:
    """Exit code 2 with both values; a slip in a path shows up when the context is added, not in an outage."""
    rollcall("context", "add", "prod", "--controllers", "p1:1")
    before = file.read_bytes()
    ran = rollcall("context", *arguments)

    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", ["", "{", '{"version": 2}', '{"version": 1, "tokens": []}', '{"contexts": 1}'])
def test_a_file_that_is_none_is_refused_and_named(rollcall: Run, file: Path, content: str) -> None:
    """Never taken for an empty one: what it held would be lost at the next add."""
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(0o600)

    for arguments in (("sets",), ("context", "add", "prod", "--controllers", "p1:1")):
        ran = rollcall(*arguments)
        assert (ran.code, str(file) in ran.err) == (2, True)
    assert file.read_text() == content


def test_a_context_that_is_named_and_unknown_is_refused(rollcall: Run, file: Path) -> None:
    """Not the one in use in its place."""
    rollcall("context", "add", "prod", "--controllers", "p1:1")
    ran = rollcall("--context", "prdo", "sets")

    assert (ran.code, "has no context 'prdo'; it has: prod" in ran.err) == (2, True)


def test_the_file_is_where_the_environment_says() -> None:
    """A relative XDG_CONFIG_HOME is none, as its specification says."""
    assert contexts.contexts_file({"ROLLCALL_CONTEXTS": "/x", "HOME": "/h"}) == Path("/x")
    assert contexts.contexts_file({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}) == Path("/c/rollcall/contexts.json")
    assert contexts.contexts_file({"XDG_CONFIG_HOME": "c", "HOME": "/h"}) == Path("/h/.config/rollcall/contexts.json")


def test_a_user_id_that_no_table_knows_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container under an id that the orchestrator drew: every command ended in a traceback."""
    monkeypatch.delenv("HOME", raising=False)

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)

    assert contexts.load(contexts.contexts_file({})).contexts == ()
