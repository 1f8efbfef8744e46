"""
Encryption of a file, piece by piece, with a passphrase.

Here: the key and the pieces. Not here: what the pieces are.

Rule 1: scrypt makes the key of passphrase and salt; each file has a salt of its own, so its key seals no other file,
and a piece may have its number as nonce.
Rule 2: number, "is the last" and the file's first line are authenticated with each piece: none can be left out, moved,
repeated or taken from another file.
Rule 3: a passphrase comes from a file, never from a command line, which every user of the machine reads.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from rollcall_ha.node.files import read_secret

METHOD = "aes-256-gcm, scrypt 2^16/8/1"
SALT_BYTES = 16
_COST = 2**16
"""64 MiB and some 0.2 s for each guess."""
_KEY_BYTES = 32


class SealError(ValueError):
    """The passphrase cannot be read, or the piece is not what was sealed with it."""


def new_salt() -> str:
    """As hex digits."""
    return secrets.token_hex(SALT_BYTES)


def read_passphrase(file: Path) -> bytes:
    """From the file, without its line end. Raises ``SealError``."""
    try:
        found = read_secret(file).rstrip(b"\r\n")
    except OSError as error:
        raise SealError(f"the passphrase's file {file} cannot be read: {error.strerror}") from error
    if not found:
        # Taken for "none", what was to be encrypted would be written in clear.
        raise SealError(f"the passphrase's file {file} is empty")
    return found


class Seal:
    """The key of one file."""

    def __init__(self, passphrase: bytes, salt: str, *, first_line: bytes) -> None:
        """Takes some 0.2 s. Raises ``SealError``: the salt is none."""
        try:
            raw = bytes.fromhex(salt)
        except ValueError as error:
            raise SealError(f"the salt {salt!r} is not hex digits") from error
        self._cipher = AESGCM(Scrypt(salt=raw, length=_KEY_BYTES, n=_COST, r=8, p=1).derive(passphrase))
        self._first_line = first_line

    def close(self, piece: bytes, number: int, *, is_last: bool) -> bytes:
        """The piece as base64."""
        return base64.b64encode(self._cipher.encrypt(_nonce(number, is_last), piece, self._first_line))

    def open(self, sealed: bytes, number: int, *, is_last: bool) -> bytes:
        """Inverse of ``close``. Raises ``SealError``."""
        try:
            raw = base64.b64decode(sealed, validate=True)
            return self._cipher.decrypt(_nonce(number, is_last), raw, self._first_line)
        except (InvalidTag, binascii.Error) as error:
            raise SealError("it was not sealed so with this passphrase") from error


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])
