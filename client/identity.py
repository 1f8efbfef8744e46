"""
Who asks the controllers, and whom the caller trusts: an authority, a certificate, a token.

Here: the files of a caller, the TLS context made of them, what a failed handshake means. Not here: calls (``client``),
where a command finds its files (``cli.context``), the certificates of servers (``node.tls``).

Rule 1: a controller is proved by its host name, under the fleet's authority, before a byte is sent to it.
Rule 2: a token is sent through TLS only: over a plain link, whoever listens would have its rights.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.files import read_secret

AUTHORITY_VARIABLE = "ROLLCALL_AUTHORITY"
IDENTITY_VARIABLE = "ROLLCALL_IDENTITY"
TOKEN_FILE_VARIABLE = "ROLLCALL_TOKEN_FILE"  # noqa: S105 (the name of a variable)
KEY_SUFFIX = ".key"
TOKEN_BYTES_MAX = 512


class IdentityError(ValueError):
    """The caller's files cannot be used; the message names the file, the reason and the remedy."""


class Identity(Frozen):
    """Files, not their contents: it may be sent to other processes of the same user."""

    authority: Path | None = None
    """PEM of the fleet's authority; None: controllers are asked without TLS (an insecure fleet)."""
    certificate: Path | None = None
    """PEM; its key lies beside it, as FILE.key in place of FILE.pem. None: no certificate is shown."""
    token_file: Path | None = None

    @classmethod
    def of_environment(cls, variables: Mapping[str, str]) -> Identity:
        """What the three variables name; nothing is read yet."""
        authority, certificate, token_file = (
            Path(variables[name]) if variables.get(name) else None
            for name in (AUTHORITY_VARIABLE, IDENTITY_VARIABLE, TOKEN_FILE_VARIABLE)
        )
        return cls(authority=authority, certificate=certificate, token_file=token_file)

    @property
    def key(self) -> Path | None:
        """Where the key of the certificate is."""
        return None if self.certificate is None else self.certificate.with_suffix(KEY_SUFFIX)

    def context(self) -> ssl.SSLContext | None:
        """The context of a client; None: without TLS. Blocks. Raises ``IdentityError``."""
        if self.authority is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # compares host names, and wants a certificate
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(self.authority)
        except OSError as error:
            raise _unusable(self.authority, error, "name the fleet's ca.pem by --authority") from error
        if self.certificate is not None and self.key is not None:
            for file in (self.certificate, self.key):
                try:
                    (read_secret if file == self.key else Path.read_bytes)(file)
                except OSError as error:
                    remedy = "name a certificate with its key beside it by --identity; rollcall certs issue makes them"
                    raise _unusable(file, error, remedy) from error
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                raise _unusable(self.certificate, error, f"it and {self.key} must belong together") from error
        return context

    def token(self) -> str:
        """The secret of a bearer token, or nothing. Blocks. Raises ``IdentityError``."""
        if self.token_file is None:
            return ""
        try:
            text = read_secret(self.token_file).decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise _unusable(self.token_file, error, "rollcall tokens issue --out FILE makes it") from error
        return checked_token(text, str(self.token_file))


def checked_token(text: str, where: str) -> str:
    """A token without the space around it. Raises ``IdentityError`` that does not show it."""
    token = text.strip()
    # In a header, a line end in it would begin another header.
    if not token or len(token) > TOKEN_BYTES_MAX or not token.isascii() or not token.isprintable() or " " in token:
        raise IdentityError(f"{where} holds no token: one line of printable characters, as rollcall tokens issue wrote")
    return token


def _unusable(file: Path, error: Exception, remedy: str) -> IdentityError:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return IdentityError(f"{file} cannot be used: {told}; {remedy}")


class NotTrusted(ClientError):
    """A handshake failed: this controller is not proved, or it does not take our certificate. Nothing was executed."""


_ALERTS = {
    "UNKNOWN_CA": "the controller does not know the authority of our certificate; show one of this fleet (--identity)",
    "CERTIFICATE_EXPIRED": "our certificate has expired; make a new one: rollcall certs renew",
    "CERTIFICATE_REVOKED": "our certificate is revoked; make a new one: rollcall certs issue",
    "BAD_CERTIFICATE": "the controller does not take our certificate; show one of this fleet (--identity)",
    "CERTIFICATE_REQUIRED": "the controller wants a certificate; show one (--identity)",
    "WRONG_VERSION_NUMBER": "it speaks no TLS: the fleet is insecure, or this is another port",
}
_VERDICTS = {
    10: "the controller's certificate has expired; make new ones: rollcall certs renew",
    18: "another authority signed the controller's certificate; is this the fleet's ca.pem? (--authority)",
    19: "another authority signed the controller's certificate; is this the fleet's ca.pem? (--authority)",
    20: "another authority signed the controller's certificate; is this the fleet's ca.pem? (--authority)",
    7: "another authority signed the controller's certificate; is this the fleet's ca.pem? (--authority)",
    62: "the controller's certificate is not for this name; add it to fleet.rest_names and renew the certificate",
    64: "the controller's certificate is not for this address; add it to fleet.rest_names and renew the certificate",
}


def trouble_of(error: BaseException) -> str | None:
    """What a failed call says about TLS, with the remedy; None: it failed for another reason."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLCertVerificationError):
            told = _VERDICTS.get(found.verify_code, "the controller is not proved")
            return f"{told} ({found.verify_message})"
        if isinstance(found, ssl.SSLError):
            reason = found.reason or str(found)
            remedy = next((text for alert, text in _ALERTS.items() if alert in reason), None)
            return f"{remedy} ({reason})" if remedy is not None else None
        found = found.__cause__ or found.__context__
    return None
