"""
TLS of one process: its files, the contexts made of them, and their renewal while it runs.

Here: reading and checking the files, contexts for both ends, what is revoked. Not here: names and their judgement
(``certified``), sockets (``remoting.secured``, ``ha.transport``, ``controller.replication.raft.transport``).

Rule 1: TLS 1.3 between processes of a fleet, a certificate on both sides, signed by the fleet's own authority. Who the
peer is, is judged by the URI name (``judge``), never by the host that was dialled.
Rule 2: a context is asked for at each new link, and not kept: files that were renewed count from the next link on.
Rule 3: renewed files that cannot be used change nothing; the old ones go on, and the reason is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.node.certified import (
    CertifiedName,
    PeerCertificate,
    PeerKind,
    PeerRefused,
    judge_peer,
    no_longer,
    parse_certified_name,
)
from rollcall_ha.node.files import read_secret

LOOK_INTERVAL_MS = 1_000
"""Between two looks for files that were replaced, wherever some are watched."""
NOT_YET_VALID = "certificate is not yet valid"
"""OpenSSL's words, in ``tls_reason``: the signature has been judged by then."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")
"""What OpenSSL calls first bytes that are no hello."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of one process."""

    authority: Path
    """One or more authorities: both of them while one takes over from the other."""
    certificate: Path
    """With its chain, if there is one."""
    key: Path

    def stamps(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when a file is replaced. Raises ``OSError``."""
        found = (file.stat() for file in (self.authority, self.certificate, self.key))
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in found)


class TlsFilesError(ValueError):
    """The files cannot prove who this process is; the message names the file and the reason."""


class _Loaded(msgspec.Struct, frozen=True, kw_only=True):
    stamps: tuple[tuple[int, int, int], ...]
    own: PeerCertificate
    mutual_server: ssl.SSLContext
    asking_server: ssl.SSLContext
    client: ssl.SSLContext


class Credentials:
    """
    The certificate of this process, and who is no longer believed. For several threads: everything it hands out is made
    anew and replaced as a whole.
    """

    def __init__(self, files: TlsFiles, *, fleet: str, name: CertifiedName | None) -> None:
        """
        Read the files. Blocks. ``name``: who this process has to be; None = whoever the certificate names. ``fleet``
        empty: the one that it names.

        Raises ``TlsFilesError``. Unchecked, a certificate of another process, or of another fleet's authority, would be
        refused by every peer, in their logs only.
        """
        self.files = files
        self.fleet = fleet
        self.name = name
        self.revoked: frozenset[str] = frozenset()
        """Serial numbers; replaced by ``revoke``."""
        self.listeners: list[Callable[[], None]] = []
        """Called after a renewal and after a revocation, on the thread that brought it: look at your open links."""
        self.renewals = 0
        """How often the files were taken anew."""
        self.complaint = ""
        """Why the files on the disk are not those in use; empty = they are."""
        self._loaded = self._load()

    @property
    def own(self) -> PeerCertificate:
        """The certificate in use."""
        return self._loaded.own

    def server_context(self) -> ssl.SSLContext:
        """For a port that only processes of the fleet dial: TLS 1.3, no link without a certificate."""
        return self._loaded.mutual_server

    def asking_context(self) -> ssl.SSLContext:
        """
        For a port that others dial, too: TLS 1.2 or newer, a certificate of the fleet is asked for and judged if shown.
        """
        return self._loaded.asking_server

    def client_context(self) -> ssl.SSLContext:
        """For dialling; the host name is not compared: ``judge`` the peer before anything is sent."""
        return self._loaded.client

    def judge(
        self,
        found: Mapping[str, Any] | None,
        *,
        expected: CertifiedName | None = None,
        kinds: AbstractSet[PeerKind] | None = None,
    ) -> PeerCertificate:
        """As ``judge_peer``, in this fleet and with what is revoked by now. Raises ``PeerRefused``."""
        return judge_peer(found, fleet=self.fleet, revoked=self.revoked, expected=expected, kinds=kinds)

    def no_longer(self, certificate: PeerCertificate, now_ms: int) -> PeerRefused | None:
        """As ``certified.no_longer``, with what is revoked by now."""
        return no_longer(certificate, revoked=self.revoked, now_ms=now_ms)

    def revoke(self, serials: AbstractSet[str]) -> None:
        """From here on these are nobody's, and no others; tells the listeners if that changes anything."""
        if serials != self.revoked:
            self.revoked = frozenset(serials)
            self._tell()

    def renew_if_changed(self) -> bool:
        """Take files that were replaced; blocks. True: taken, and the listeners were told."""
        try:
            if self.files.stamps() == self._loaded.stamps:
                self.complaint = ""
                return False
            loaded = self._load()
        except (OSError, TlsFilesError) as error:
            # Half of them are replaced, or the wrong ones: without the old ones this process could open no link at all.
            self.complaint = str(error)
            return False
        self.complaint = ""
        self._loaded = loaded
        self.renewals += 1
        self._tell()
        return True

    def on_change(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> Callable[[], None]:
        """Run ``look`` on ``loop`` after each renewal and revocation; returns what ends that."""

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(look)

        self.listeners.append(tell)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self.listeners.remove(tell)

        return end

    def _tell(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    def _load(self) -> _Loaded:
        files = self.files
        for file in (files.authority, files.certificate, files.key):
            try:
                (read_secret if file == files.key else Path.read_bytes)(file)
            except OSError as error:
                raise TlsFilesError(f"{file} cannot be read: {error.strerror}") from error
        # Before the files are read: replaced in between, they are read again at the next look.
        stamps = files.stamps()
        try:
            mutual = _context(files, is_server=True)
            asking = _context(files, is_server=True)
            client = _context(files, is_server=False)
        except (OSError, ValueError) as error:
            raise TlsFilesError(
                f"{files.authority.name}, {files.certificate.name} and {files.key.name} in {files.certificate.parent} "
                f"are no PEM files that belong together: {error}"
            ) from error
        asking.minimum_version = ssl.TLSVersion.TLSv1_2  # RocketMQ's clients on Java 8
        asking.verify_mode = ssl.CERT_OPTIONAL
        found = _shown_to_peers(files)
        self.fleet = self.fleet or _fleet_of(found)
        try:
            own = judge_peer(found, fleet=self.fleet, revoked=frozenset(), expected=self.name)
        except PeerRefused as error:
            raise TlsFilesError(f"{files.certificate}: {error}") from None
        return _Loaded(stamps=stamps, own=own, mutual_server=mutual, asking_server=asking, client=client)


def tls_reason(error: ssl.SSLError) -> str:
    """What is wrong, for the most part in the words of OpenSSL."""
    if error.reason in _NO_TLS:
        return "TLS: plain bytes, or another protocol"
    text = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason
    return f"TLS: {text or error}"


def _context(files: TlsFiles, *, is_server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The name is not that of a host: the caller judges the URI name (rule 1).
    context.check_hostname = False
    # Without it, anybody who reaches the Raft port could vote.
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    if is_server:
        # A session that is taken up again is not judged again: a certificate that has expired meanwhile would pass.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return context


def _fleet_of(found: Mapping[str, Any] | None) -> str:
    """The fleet that a certificate names; empty: none, which its judge finds too."""
    uris = [str(value) for kind, value in (found or {}).get("subjectAltName", ()) if kind == "URI"]
    with contextlib.suppress(ValueError):
        return parse_certified_name(uris[0]).fleet if uris else ""
    return ""


def _shown_to_peers(files: TlsFiles) -> Mapping[str, Any] | None:
    """
    The certificate as a peer of this fleet sees it: a handshake with ourselves, in memory.

    Raises ``TlsFilesError``: a peer would refuse it, as expired or as not signed by the authority.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = _context(files, is_server=True).wrap_bio(incoming, outgoing, server_side=True)
    client = _context(files, is_server=False).wrap_bio(outgoing, incoming, server_side=False)
    try:
        for _ in range(4):
            for end in (client, server):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as error:
        raise TlsFilesError(
            f"{files.certificate} is not taken by those who trust {files.authority}: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise TlsFilesError(f"{files.certificate} and {files.key} make no TLS link: {error.reason or error}") from error
    return server.getpeercert()
