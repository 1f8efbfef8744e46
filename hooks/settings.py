"""
The settings of the hooks: ``hooks.toml``, as one checked value.

Here: the keys, what is wrong with them, secrets. Not here: what is delivered when (``notices``, ``desk``), the callers'
files (``client.identity``).

Rule 1: a secret is in a file that not everybody may read (``node.files.read_secret``), or in the environment: never in
the settings, which lie beside code, nor on a command line, which every user of a machine can read.
Rule 2: a payload leaves this machine through TLS only. Signed, it could still be read, held back and sent again.
Rule 3: a command runs as a user that the settings name, if this process is root: else every hook is root's by
oversight.
"""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import re
import shutil
import ssl
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rollcall_ha.client.addresses import base_url
from rollcall_ha.client.identity import Identity
from rollcall_ha.hooks.notices import Kind, Notice
from rollcall_ha.node.config import ConfigError, is_loopback, split_address
from rollcall_ha.node.files import read_secret

FILE_NAME = "hooks.toml"
FILE_VERSION = 1
HOOKS_MAX = 32
SECRET_PREFIX = "whsec_"  # noqa: S105 (how Standard Webhooks marks one)
SECRET_BYTES_LEAST, SECRET_BYTES_MOST = 24, 64
SECRETS_MAX = 2
"""A new one and the one before it, while the receiver learns the new one."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class FleetSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the controllers are, and as whom they are asked: a viewer is enough."""

    controllers: tuple[str, ...]
    """host:port of REST ports."""
    authority: str = ""
    identity: str = ""
    """PEM of a client certificate, its key beside it."""
    token_file: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a delivery is tried again, when it is given up, how much may wait."""

    first_pause_ms: int = 500
    """Doubled after each failure."""
    pause_ms_max: int = 300_000
    tries_max: int = 40
    age_s_max: int = 86_400
    waiting_max: int = 20_000
    """Deliveries on disk; with more, events stay unread with the controllers."""
    lane_waiting_max: int = 1_000
    """Deliveries of one hook for one set; the oldest beyond are given up, so that one set never fills the rest."""
    dead_letters_max: int = 10_000


class HookSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hook: a webhook with ``url``, or a command with ``command``."""

    name: str
    kinds: tuple[Kind, ...]
    sets: tuple[str, ...] = ("*",)
    """Patterns of cluster/name: * and ? as in a shell."""
    url: str = ""
    authority: str = ""
    """PEM of the receiver's authority; empty: those of this machine."""
    secret_file: str = ""
    secret_variable: str = ""
    command: tuple[str, ...] = ()
    user: str = ""
    timeout_ms: int = 10_000
    at_a_time: int = 8
    """Sets that are delivered beside each other; of one set it is always one delivery."""

    def wants(self, notice: Notice) -> bool:
        """Whether it is delivered here; a gap of the record is said to every hook."""
        if notice.kind is Kind.GAPS:
            return True
        if notice.kind not in self.kinds:
            return False
        return notice.set_key is None or any(fnmatchcase(str(notice.set_key), pattern) for pattern in self.sets)


class HooksFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Paths are relative to it."""

    version: int
    fleet: FleetSection
    hooks: tuple[HookSection, ...]
    data: str = "hooks-data"
    metrics: str = ""
    """host:port of /metrics, on loopback; empty: there is none."""
    certificate_days: tuple[int, ...] = (30, 7, 1)
    """Said once for each certificate and each of these numbers of days that are left."""
    probe: str = ""
    """Folder of the journal of a probe (docs/probe.md) on this machine; empty: there is none."""
    probe_gap_ms: int = 1_000
    """A gap that a client felt for so long, stalls of the probe itself left out, is told."""
    group_lag_alarm_messages: int = 100_000
    """A group that is further behind, in all sets, is said once, and again when it has caught up."""
    limits: Limits = Limits()
    folder: str = ""
    """Where the file lies; not a key of it."""

    def path(self, text: str) -> Path:
        """A path of the file."""
        return Path(self.folder) / text

    def hook(self, name: str) -> HookSection:
        """Raises ``ConfigError``: there is none of that name."""
        found = next((one for one in self.hooks if one.name == name), None)
        if found is None:
            raise ConfigError(f"there is no hook {name!r}; there are: {', '.join(one.name for one in self.hooks)}")
        return found

    def identity(self) -> Identity:
        """Whom to trust and what to show; nothing is read yet."""
        authority, certificate, token = (
            self.path(text) if text else None
            for text in (self.fleet.authority, self.fleet.identity, self.fleet.token_file)
        )
        return Identity(authority=authority, certificate=certificate, token_file=token)

    def context(self, hook: HookSection) -> ssl.SSLContext:
        """Whom a webhook trusts. Blocks. Raises ``ConfigError``."""
        authority = self.path(hook.authority) if hook.authority else None
        try:
            context = ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise ConfigError(f"hook {hook.name}: authority {authority} cannot be used: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def secrets(self, hook: HookSection, variables: Mapping[str, str]) -> tuple[bytes, ...]:
        """The keys of a webhook, the newest first. Blocks. Raises ``ConfigError`` that does not show one."""
        if hook.secret_variable:
            where, text = f"variable {hook.secret_variable}", variables.get(hook.secret_variable, "")
        else:
            file = self.path(hook.secret_file)
            where, text = str(file), _private_text(hook.name, file)
        lines = text.split()
        if not 0 < len(lines) <= SECRETS_MAX:
            raise ConfigError(f"hook {hook.name}: {where} holds {len(lines)} secrets; 1 or, while one is changed, 2")
        return tuple(_secret(hook.name, where, line) for line in lines)


_decode = msgspec.json.Decoder(HooksFile).decode


def load(file: Path) -> HooksFile:
    """Read and check the file, but for what it names (``check_surroundings``). Raises ``ConfigError``."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; docs/hooks.md has an example") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no TOML: {error}") from error
    try:
        # By way of JSON, because decoders are made at import time (CONTRIBUTING.md); no key of ours is a date of TOML.
        made = _decode(msgspec.json.encode({**found, "folder": str(file.absolute().parent)}))
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}: {error}; docs/hooks.md has an example") from error
    if made.version != FILE_VERSION:
        raise ConfigError(f"{file} has version {made.version}, this program reads version {FILE_VERSION}")
    _check(file, made)
    return made


def _check(file: Path, made: HooksFile) -> None:
    names = [one.name for one in made.hooks]
    if not 0 < len(names) <= HOOKS_MAX:
        raise ConfigError(f"{file} has {len(names)} hooks; 1 to {HOOKS_MAX} are possible")
    if len(set(names)) < len(names):
        raise ConfigError(f"{file}: two hooks have one name: {', '.join(names)}; what waits is kept by name")
    if not made.fleet.controllers:
        raise ConfigError(f"{file}: fleet.controllers is empty; name the REST ports: host:port")
    for address in made.fleet.controllers:
        try:
            base_url(address)
        except ValueError as error:
            raise ConfigError(f"{file}: fleet.controllers: {error}") from None
    if made.metrics and not is_loopback(split_address(made.metrics)[0]):
        raise ConfigError(f"{file}: metrics is {made.metrics!r}; it asks nobody who reads it, so: 127.0.0.1:PORT")
    _check_limits(file, made)
    for hook in made.hooks:
        _check_hook(file, hook)
        if Kind.FELT in hook.kinds and not made.probe:
            raise ConfigError(
                f"{file}: hook {hook.name!r} is told what a probe felt, and no journal of one is named; probe ="
                ' "/var/lib/rollcall-probe"'
            )


def _check_limits(file: Path, made: HooksFile) -> None:
    ranges = {
        "first_pause_ms": (10, 60_000),
        "pause_ms_max": (100, 3_600_000),
        "tries_max": (1, 10_000),
        "age_s_max": (10, 30 * 86_400),
        "waiting_max": (10, 200_000),
        "lane_waiting_max": (10, 100_000),
        "dead_letters_max": (10, 100_000),
    }
    for key, (least, most) in ranges.items():
        value = getattr(made.limits, key)
        if not least <= value <= most:
            raise ConfigError(f"{file}: limits.{key} is {value}, and {least} to {most} is possible")
    if made.group_lag_alarm_messages < 1:
        raise ConfigError(f"{file}: group_lag_alarm_messages is {made.group_lag_alarm_messages}; it is at least 1")
    if made.probe_gap_ms < 1:
        raise ConfigError(f"{file}: probe_gap_ms is {made.probe_gap_ms}; it is at least 1")
    if any(not 0 < days <= 3_650 for days in made.certificate_days):
        raise ConfigError(f"{file}: certificate_days is {list(made.certificate_days)}; each is 1 to 3650 days")


def _check_hook(file: Path, hook: HookSection) -> None:
    where = f"{file}: hook {hook.name!r}"
    if not _NAME.fullmatch(hook.name):
        raise ConfigError(f"{where}: a name is up to 63 small letters, digits and - behind the first")
    if not hook.kinds or Kind.GAPS in hook.kinds:
        known = ", ".join(kind for kind in Kind if kind is not Kind.GAPS)
        raise ConfigError(f"{where}: kinds is {[*hook.kinds]}; choose of {known}; gaps are said to every hook")
    if not hook.sets or not all(hook.sets):
        raise ConfigError(f'{where}: sets is {[*hook.sets]}; patterns of cluster/name, ["*"] for all')
    if bool(hook.url) == bool(hook.command):
        raise ConfigError(f"{where} has {'both' if hook.url else 'neither'} url and command; one of them")
    if not 100 <= hook.timeout_ms <= 600_000:
        raise ConfigError(f"{where}: timeout_ms is {hook.timeout_ms}, and 100 to 600000 is possible")
    if not 1 <= hook.at_a_time <= 64:
        raise ConfigError(f"{where}: at_a_time is {hook.at_a_time}, and 1 to 64 is possible")
    if hook.url:
        _check_webhook(where, hook)
        return
    if hook.secret_file or hook.secret_variable or hook.authority:
        raise ConfigError(f"{where}: a command takes no secret and no authority; leave them out")
    if not Path(hook.command[0]).is_absolute():
        # By PATH, it would be whatever program of that name comes first in the environment of the day.
        raise ConfigError(f"{where}: command begins with {hook.command[0]!r}; name the program by its whole path")


def _check_webhook(where: str, hook: HookSection) -> None:
    parts = urlsplit(hook.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{where}: url is {hook.url!r}; https://host/path")
    if parts.username or parts.password:
        raise ConfigError(f"{where}: url holds a name or a password, which logs would show; sign by secret_file")
    # Rule 2.
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(f"{where}: url is {hook.url!r}, without TLS and not on loopback; take https")
    if hook.authority and parts.scheme == "http":
        raise ConfigError(f"{where}: authority {hook.authority!r} is useless without https")
    if bool(hook.secret_file) == bool(hook.secret_variable):
        raise ConfigError(f"{where} needs a secret: either secret_file or secret_variable")
    if hook.user:
        raise ConfigError(f"{where}: user {hook.user!r} is for commands; leave it out")


def check_surroundings(made: HooksFile, variables: Mapping[str, str]) -> None:
    """What the file names is there: authorities, certificates, secrets, programs, users. Blocks. ``ConfigError``."""
    try:
        made.identity().context()
        made.identity().token()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for hook in made.hooks:
        if hook.url:
            made.secrets(hook, variables)
            if hook.url.startswith("https:"):
                made.context(hook)
        else:
            _check_command(hook)


def _check_command(hook: HookSection) -> None:
    program = hook.command[0]
    if shutil.which(program) is None:
        raise ConfigError(f"hook {hook.name}: {program} is no program that can be run here")
    own = os.geteuid()
    if own == 0 and not hook.user:
        raise ConfigError(
            f"hook {hook.name}: this process is root, and the command would be; name its user: user = "
            '"nobody", or user = "root" if it must be'
        )
    if not hook.user:
        return
    try:
        wanted = pwd.getpwnam(hook.user).pw_uid
    except KeyError:
        raise ConfigError(f"hook {hook.name}: there is no user {hook.user!r} on this machine") from None
    if own not in (0, wanted):
        raise ConfigError(
            f"hook {hook.name}: user is {hook.user!r}, and this process is user {own}: only root may become another"
        )


def _private_text(name: str, file: Path) -> str:
    try:
        return read_secret(file).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"hook {name}: secret_file {file} cannot be read: {error.strerror}") from error


def _secret(name: str, where: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not text.startswith(SECRET_PREFIX) or not SECRET_BYTES_LEAST <= len(found) <= SECRET_BYTES_MOST:
        raise ConfigError(
            f"hook {name}: {where} holds no secret: {SECRET_PREFIX} and the base64 of {SECRET_BYTES_LEAST} to "
            f"{SECRET_BYTES_MOST} random bytes; rollcall hooks secret makes one"
        )
    return found
