"""Settings of hooks for tests: a ``hooks.toml`` with one hook after the other, and its secret."""

from __future__ import annotations

import base64
import os
import pwd
from pathlib import Path

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OWN_USER = pwd.getpwuid(os.geteuid()).pw_name


def write_secret(folder: Path, *lines: str) -> Path:
    """The file ``secret``, as ``rollcall hooks secret`` leaves it."""
    file = folder / "secret"
    file.write_text("\n".join(lines or (SECRET,)) + "\n")
    file.chmod(0o600)
    return file


def webhook(name: str, url: str, *, kinds: str = '"elections"', more: str = "") -> str:
    """A section of a webhook whose secret lies beside the file."""
    return f'[[hooks]]\nname = "{name}"\nkinds = [{kinds}]\nurl = "{url}"\nsecret_file = "secret"\n{more}\n'


def command(name: str, *argv: str, kinds: str = '"elections"', more: str = "") -> str:
    """A section of a command that runs as whoever runs the test."""
    words = ", ".join(f'"{word}"' for word in argv)
    return f'[[hooks]]\nname = "{name}"\nkinds = [{kinds}]\ncommand = [{words}]\nuser = "{OWN_USER}"\n{more}\n'


def write_hooks(folder: Path, *sections: str, fleet: str = 'controllers = ["127.0.0.1:1"]', head: str = "") -> Path:
    """The file; ``head``: keys before its first section."""
    file = folder / "hooks.toml"
    file.write_text("\n".join((f"version = 1\n{head}", f"[fleet]\n{fleet}", *sections)))
    return file
