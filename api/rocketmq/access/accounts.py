"""
The accounts of RocketMQ's peers: access keys, their secrets, and what each may do.

Here: the file that ``rocketmq.credentials`` of the fleet file names, and looking for a changed one. Not here:
signatures (``signatures``), codes (``rights``). Raises ``ConfigError`` with the file and the remedy, never with a
secret.

Rule 1: the file is refused if everybody on its machine can read it (``node.files.read_secret``).
Rule 2: it is read at the start of a controller and whenever it was changed; while a changed one cannot be used, the
accounts of before count.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.names import text_complaint
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.files import read_secret
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import LOOK_INTERVAL_MS

SECRET_CHARACTERS_MIN = 8
SECRET_BYTES = 32
EVERY_SET = "*"


class Account(Frozen, forbid_unknown_fields=True):
    """One access key."""

    secret: str
    role: Role
    sets: tuple[str, ...] = ()
    """The brokerNames that a broker may speak for; ``*`` is every one."""

    def __repr__(self) -> str:
        """Leave the secret out: an account may come into a log line or a failed assertion."""
        return f"Account(role={self.role}, sets={self.sets})"

    @property
    def spoken_for(self) -> frozenset[str] | None:
        """The sets that it may speak for; None = every one."""
        return None if EVERY_SET in self.sets else frozenset(self.sets)


class _File(Frozen, forbid_unknown_fields=True):
    accounts: dict[str, Account]


msgspec.json.Decoder(_File)  # builds the type; msgspec has no decoder object for TOML


def new_accounts() -> str:
    """A file with new secrets: an access key for all brokers, one for clients, and one for mqadmin."""
    lines = ["# Access keys of RocketMQ's brokers, clients and mqadmin (docs/rocketmq.md). Made by: rollcall init"]
    for key, role, more in (
        ("brokers", Role.BROKER, f'\nsets = ["{EVERY_SET}"]'),
        ("clients", Role.VIEWER, ""),
        ("mqadmin", Role.ADMIN, ""),
    ):
        lines.append(f'\n[accounts.{key}]\nsecret = "{secrets.token_urlsafe(SECRET_BYTES)}"\nrole = "{role}"{more}')
    return "\n".join(lines) + "\n"


def read_accounts(path: Path) -> Mapping[str, Account]:
    """By access key. Blocks. Raises ``ConfigError``."""
    try:
        found = msgspec.toml.decode(read_secret(path), type=_File)
    except OSError as error:
        raise ConfigError(f"rocketmq.credentials: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"rocketmq.credentials: {path} is no UTF-8; save the file as UTF-8") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"rocketmq.credentials: {path}: {error}") from None
    except msgspec.MsgspecError:
        # Without the words of the reader, which may quote the line that it could not read, and so a secret.
        raise ConfigError(
            f"rocketmq.credentials: {path} is no TOML; it takes [accounts.ACCESS_KEY] with secret, role and sets"
        ) from None
    for key, account in found.accounts.items():
        if complaint := _complaint(key, account):
            raise ConfigError(f"rocketmq.credentials: {path}: account {key!r}: {complaint}")
    return found.accounts


def _complaint(key: str, account: Account) -> str | None:
    if complaint := text_complaint("the access key", key):
        return complaint
    if len(account.secret) < SECRET_CHARACTERS_MIN:
        return f"its secret has {len(account.secret)} characters, at least {SECRET_CHARACTERS_MIN} are taken"
    if account.role is Role.BROKER and not account.sets:
        return f"a broker needs sets: the brokerNames that it may speak for, or {EVERY_SET!r} for every one"
    if account.role is not Role.BROKER and account.sets:
        return f"sets belong to the role broker, this one is {account.role}"
    return None


class AccountsFile:
    """The file on the disk, and what was read of it last."""

    def __init__(self, path: Path) -> None:
        """Blocks. Raises ``ConfigError``."""
        self.path = path
        # Before it is read: changed in between, it is read again at the next look.
        self._stamp = _stamp(path)
        self.accounts = read_accounts(path)
        self.complaint = ""
        """Why the file on the disk is not what counts; empty = it is."""

    def take_if_changed(self) -> bool:
        """Read the file if it was changed; blocks. True: ``accounts`` are new."""
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return False
        try:
            self.accounts = read_accounts(self.path)
        except ConfigError as error:
            # Half written, or with a wrong mode: without the accounts of before no broker could register any more.
            self.complaint = str(error)
            return False
        self._stamp, self.complaint = stamp, ""
        return True


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    """What changes with the file or its mode; None: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode


async def watch_accounts(file: AccountsFile, take: Callable[[Mapping[str, Account]], None]) -> None:
    """Look every second for a changed file, until cancelled; ``take`` gets its accounts."""
    logger = get_logger("rocketmq.access")
    told = ""
    while True:
        await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        if await asyncio.to_thread(file.take_if_changed):
            take(file.accounts)
            logger.info("access_keys_taken", keys=sorted(file.accounts))
        # Once for each reason: a file that is wrong for a day would be 86,400 lines.
        if file.complaint != told:
            told = file.complaint
            if told:
                logger.error("access_keys_not_taken", reason=told)
