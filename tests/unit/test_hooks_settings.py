"""``hooks.toml``: each slip is named with both values and the remedy; secrets are the owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import structlog

from rollcall_ha.hooks import __main__ as program
from rollcall_ha.hooks.settings import HooksFile, check_surroundings, load
from rollcall_ha.node.config import ConfigError
from tests.support.hook_files import SECRET, command, webhook, write_hooks, write_secret

HTTPS = "https://pager.example/rollcall"


def refused(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file)
    return str(caught.value)


def test_a_file_with_a_webhook_and_a_command_is_taken(tmp_path: Path) -> None:
    write_secret(tmp_path)
    file = write_hooks(tmp_path, webhook("pager", HTTPS), command("vip", "/bin/true", more='sets = ["c/broker-*"]'))
    made = load(file)
    check_surroundings(made, {})
    assert [hook.name for hook in made.hooks] == ["pager", "vip"]
    assert made.path(made.data) == tmp_path / "hooks-data"


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ((webhook("pager", "http://pager.example/x"),), "without TLS"),
        ((webhook("pager", "https://me:secret@pager.example/x"),), "a name or a password"),
        ((webhook("pager", HTTPS, more='secret_variable = "S"'),), "either secret_file or secret_variable"),
        ((webhook("pager", HTTPS, more='command = ["/bin/true"]'),), "both url and command"),
        ((webhook("pager", HTTPS, kinds='"gaps"'),), "gaps are said to every hook"),
        ((webhook("pager", HTTPS, kinds='"felt"'),), 'probe = "/var/lib/rollcall-probe"'),
        ((webhook("pager", HTTPS, kinds='"election"'),), "Invalid enum value 'election'"),
        ((webhook("Pager", HTTPS),), "a name is"),
        ((webhook("pager", HTTPS), webhook("pager", HTTPS)), "two hooks have one name"),
        ((webhook("pager", HTTPS, more="timeout_ms = 5"),), "100 to 600000"),
        ((webhook("pager", HTTPS, more="retries = 5"),), "retries"),
        ((command("vip", "true"),), "by its whole path"),
        ((command("vip", "/bin/true", more='secret_file = "x"'),), "takes no secret"),
        ((), "hooks"),
        ((webhook("pager", HTTPS), "[limits]\ntries_max = 0"), "limits.tries_max is 0"),
    ],
)
def test_a_slip_is_refused_with_its_remedy(tmp_path: Path, sections: tuple[str, ...], told: str) -> None:
    assert told in refused(write_hooks(tmp_path, *sections))


def test_metrics_stay_on_loopback_and_the_version_is_ours(tmp_path: Path) -> None:
    assert "127.0.0.1:PORT" in refused(write_hooks(tmp_path, webhook("a", HTTPS), head='metrics = "0.0.0.0:9100"\n'))
    file = write_hooks(tmp_path, webhook("a", HTTPS))
    file.write_text(file.read_text().replace("version = 1", "version = 2"))
    assert "has version 2, this program reads version 1" in refused(file)


@pytest.mark.parametrize(
    ("lines", "mode", "told"),
    [
        ((SECRET,), 0o644, "mode is 0644"),
        (("plain-text-secret",), 0o600, "rollcall hooks secret"),
        (("whsec_c2hvcnQ=",), 0o600, "24 to 64 random bytes"),
        ((SECRET, SECRET, SECRET), 0o600, "holds 3 secrets"),
    ],
)
def test_a_secret_that_everybody_can_read_or_that_is_none_is_refused_and_not_shown(
    tmp_path: Path, lines: tuple[str, ...], mode: int, told: str
) -> None:
    write_secret(tmp_path, *lines).chmod(mode)
    made = load(write_hooks(tmp_path, webhook("pager", HTTPS)))
    with pytest.raises(ConfigError, match=told) as caught:
        check_surroundings(made, {})
    assert lines[0] not in str(caught.value)


def test_a_secret_of_a_volume_that_a_group_reads_was_refused(tmp_path: Path) -> None:
    """Kubernetes shows it so, with an ``fsGroup``."""
    write_secret(tmp_path).chmod(0o440)
    made = load(write_hooks(tmp_path, webhook("pager", HTTPS)))
    try:
        check_surroundings(made, {})
    except ConfigError as error:
        pytest.fail(str(error))


def test_a_secret_comes_from_the_environment_too(tmp_path: Path) -> None:
    section = webhook("pager", HTTPS).replace('secret_file = "secret"', 'secret_variable = "PAGER_SECRET"')
    made = load(write_hooks(tmp_path, section))
    assert made.secrets(made.hooks[0], {"PAGER_SECRET": SECRET}) == (bytes(range(32)),)
    with pytest.raises(ConfigError, match="PAGER_SECRET holds 0 secrets"):
        made.secrets(made.hooks[0], {})


def test_root_runs_no_command_whose_user_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each hook would be root's by oversight."""
    section = command("vip", "/bin/true").replace("user = ", "# user = ")
    made = load(write_hooks(tmp_path, section))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError, match="name its user"):
        check_surroundings(made, {})
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    check_surroundings(made, {})


def test_a_user_that_is_not_there_or_that_nobody_can_become_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_user(name: str) -> HooksFile:
        section = command("vip", "/bin/true")
        return load(write_hooks(tmp_path, section.replace(section.split("user = ")[1].split("\n")[0], f'"{name}"')))

    with pytest.raises(ConfigError, match="no user 'nobody-at-all'"):
        check_surroundings(with_user("nobody-at-all"), {})
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(ConfigError, match="only root may become another"):
        check_surroundings(with_user("root"), {})


def test_the_verbs_say_what_is_wrong_and_with_which_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["check", "--file", str(tmp_path / "nowhere")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    is_configured = structlog.is_configured()
    assert program.main(["run", "--file", str(tmp_path / "nowhere")]) == 64
    # It set up the logs before it read the file: every later test of that process wrote to a stream that was closed.
    assert structlog.is_configured() == is_configured
    file = write_hooks(tmp_path, webhook("pager", HTTPS))
    assert program.main(["check", "--file", str(file)]) == 2
    secret = tmp_path / "secret"
    assert program.main(["secret", str(secret)]) == 0
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text().strip() not in capsys.readouterr().out
    assert program.main(["secret", str(secret)]) == 2
    assert program.main(["check", "--file", str(file)]) == 0
    assert "pager: elections of * to https" in capsys.readouterr().out
    assert program.main(["dead-letters", "--file", str(file)]) == 2
    assert "has not been started" in capsys.readouterr().err
    assert program.main(["test", "--file", str(file), "vip"]) == 2
    assert "there are: pager" in capsys.readouterr().err


def test_a_test_event_goes_to_a_command_and_says_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_hooks(tmp_path, command("ok", "/bin/true"), command("no", "/bin/sh", "-c", "echo broken; exit 3"))
    assert program.main(["test", "--file", str(file), "ok"]) == 0
    assert program.main(["test", "--file", str(file), "no"]) == 1
    assert "exit code 3: broken" in capsys.readouterr().out
