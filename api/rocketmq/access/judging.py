"""
Who a RocketMQ peer is, and whether it may have what it asks for.

Here: the judgement of each request. Not here: which code needs which right (``rights``), what a broker may say of a
replica that another link speaks for (``controller.claims``), which links there are (``node.remoting.secured``).

Rule 1: a certificate of the fleet comes first, then a signature, then an address that is listed, then an insecure
fleet's word. Nothing else opens the door.
Rule 2: where access keys are configured, an address alone opens nothing.
Rule 3: a refusal is answered by RocketMQ's NO_PERMISSION with its reason, and counted; at most one a second is a log
line. It does not tell whether the access key or the signature was the wrong one.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec.structs import replace

from rollcall_ha.api.broker_port.code_table import AccessRefused
from rollcall_ha.api.rocketmq.access.accounts import Account, AccountsFile
from rollcall_ha.api.rocketmq.access.rights import Right, is_allowed, least_role, right_of, sets_named
from rollcall_ha.api.rocketmq.access.signatures import ACCESS_KEY, SIGNATURE, verify_signature
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.certified import PeerCertificate, PeerKind
from rollcall_ha.node.config import FleetFile, IpNetwork, RocketmqTls, refuse_plain_tls, rocketmq_networks
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import FewLines
from rollcall_ha.node.telemetry import get_logger

ADDRESSES_REMEMBERED_MAX = 4_096
REFUSAL_INTERVAL_S = 1.0
NAMED_CHARACTERS_MAX = 100
_ROLES: dict[PeerKind, Role] = {
    PeerKind.BROKER: Role.BROKER,
    # A producer or consumer looks for routes; it never says anything about a broker.
    PeerKind.CLIENT: Role.VIEWER,
    PeerKind.VIEWER: Role.VIEWER,
    PeerKind.OPERATOR: Role.OPERATOR,
    PeerKind.ADMIN: Role.ADMIN,
}


class AccessRules(Frozen):
    """What the fleet file says about RocketMQ's peers without a certificate."""

    is_insecure: bool = False
    """The whole fleet is."""
    takes_plain: bool = False
    takes_nameless_tls: bool = False
    """Neither: only peers with a certificate come."""
    networks: tuple[IpNetwork, ...] | None = None
    """None: any."""
    accounts: Mapping[str, Account] | None = None
    """By access key; None: nothing has to be signed."""

    @property
    def is_closed(self) -> bool:
        """Whether nobody comes without a certificate."""
        return not (self.takes_plain or self.takes_nameless_tls)

    @property
    def words(self) -> str:
        """What opens the door besides a certificate, for the log of a start."""
        found = [
            "nothing" if self.is_closed else "",
            "" if self.accounts is None else f"{len(self.accounts)} access keys",
            "" if self.networks is None else f"{len(self.networks)} networks",
        ]
        return ", ".join(filter(None, found)) or "everybody"


def accounts_of(document: FleetFile) -> AccountsFile | None:
    """The file of access keys that the fleet file names; None: it names none. Blocks. Raises ``ConfigError``."""
    section = document.rocketmq
    if section is None or section.credentials is None:
        return None
    return AccountsFile(document.path(section.credentials))


def rules_of(document: FleetFile, accounts: AccountsFile | None) -> AccessRules:
    """``accounts``: those of ``accounts_of``. Raises ``ConfigError``."""
    section, is_insecure = document.rocketmq, document.fleet.insecure
    if section is None:
        return AccessRules(is_insecure=is_insecure, takes_plain=is_insecure)
    refuse_plain_tls(section, is_insecure=is_insecure)
    return AccessRules(
        is_insecure=is_insecure,
        takes_plain=section.tls is not RocketmqTls.ENFORCING,
        takes_nameless_tls=section.tls is not RocketmqTls.DISABLED and not is_insecure,
        networks=rocketmq_networks(section) or None,
        accounts=None if accounts is None else accounts.accounts,
    )


class RocketmqAccess:
    """The judgement on one port. Runs on the loop; nothing of it waits."""

    def __init__(self, rules: AccessRules, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``monotonic``: seconds."""
        self._rules = rules
        self._monotonic = monotonic
        self._logger = get_logger("rocketmq.refused")
        self._lines = FewLines(REFUSAL_INTERVAL_S)
        self._is_listed = lru_cache(ADDRESSES_REMEMBERED_MAX)(self._find_network)
        self.refused: Counter[str] = Counter()
        """Requests, by reason; a metric."""

    @property
    def words(self) -> str:
        """``AccessRules.words``."""
        return self._rules.words

    def take_accounts(self, accounts: Mapping[str, Account]) -> None:
        """From the next request on these count, also on links that stand."""
        self._rules = replace(self._rules, accounts=accounts)

    def judge(self, frame: Frame, *, address: str, certificate: PeerCertificate | None) -> Principal:
        """
        Who asks; it may have what it asks for. ``address``: host:port of its end of the link.

        Raises ``AccessRefused``, which is counted.
        """
        try:
            return self._judge(frame, address, certificate)
        except AccessRefused as refusal:
            self.refused[refusal.reason] += 1
            self._tell(frame, address, refusal)
            raise

    def _tell(self, frame: Frame, address: str, refusal: AccessRefused) -> None:
        # Unbounded, whoever is refused would fill the disk: a peer without the key asks again and again.
        if (left_out := self._lines.take(self._monotonic())) is not None:
            self._logger.warning(
                "refused",
                reason=refusal.reason,
                code=frame.code,
                address=address,
                detail=str(refusal),
                left_out=left_out,
            )

    def _judge(self, frame: Frame, address: str, certificate: PeerCertificate | None) -> Principal:
        if certificate is not None:
            caller = _certified(certificate, address)
            sets: frozenset[str] | None = frozenset((certificate.name.set_key.partition("/")[2],))
        else:
            self._require_listed(address)
            if self._rules.accounts is None:
                return self._unproven(frame, address)
            key, account = _account_of(frame, self._rules.accounts)
            caller = Principal(
                name=key, role=account.role, proved_by=ProvedBy.SIGNATURE, serial=key, address=address
            )  # fmt: skip
            sets = account.spoken_for
        _require_right(frame, caller, sets)
        return caller

    def _unproven(self, frame: Frame, address: str) -> Principal:
        # As admin, which an unproven caller is in an insecure fleet only, it could register under an id that belongs to
        # the certificate of a broker of ours.
        role = Role.ADMIN if self._rules.is_insecure else least_role(right_of(frame))
        return Principal(name="rocketmq", role=role, proved_by=ProvedBy.NOTHING, address=address)

    def _require_listed(self, address: str) -> None:
        if self._rules.is_closed:
            raise AccessRefused("no certificate", "a certificate of this fleet is needed here; see [rocketmq]")
        # By the request, not by the link: in an insecure fleet brokers of our own come to this port plain, too.
        host = address.rpartition(":")[0].strip("[]")
        if not self._is_listed(host):
            raise AccessRefused("address", f"{host} is in none of the networks of rocketmq.addresses")

    def _find_network(self, host: str) -> bool:
        if self._rules.networks is None:
            return True
        try:
            found = ipaddress.ip_address(host)
        except ValueError:
            return False
        # A port that is bound to "::" sees 10.0.0.1 as ::ffff:10.0.0.1, which no network of IPv4 has.
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._rules.networks)


def _certified(certificate: PeerCertificate, address: str) -> Principal:
    told = certificate.name
    role = _ROLES.get(told.kind)
    if role is None:
        raise AccessRefused("certificate", f"a {told.kind} has no use for RocketMQ's codes")
    cluster, _, name = told.set_key.partition("/")
    return Principal(
        name=told.name,
        role=role,
        proved_by=ProvedBy.CERTIFICATE,
        serial=certificate.serial,
        address=address,
        set_key=SetKey(cluster=ClusterName(cluster), name=BrokerName(name)) if name else None,
    )


def _account_of(frame: Frame, accounts: Mapping[str, Account]) -> tuple[str, Account]:
    fields = frame.ext_fields or {}
    key = fields.get(ACCESS_KEY)
    if not key or SIGNATURE not in fields:
        raise AccessRefused("not signed", "AccessKey and Signature are needed here: give access key and secret key")
    account = accounts.get(key)
    # One answer for both (rule 3): else a stranger could ask which access keys there are.
    if account is None or not verify_signature(account.secret, fields, frame.body):
        raise AccessRefused("signature", "AccessKey or Signature is wrong")
    return key, account


def _require_right(frame: Frame, caller: Principal, sets: frozenset[str] | None) -> None:
    right = right_of(frame)
    if not is_allowed(caller.role, right):
        raise AccessRefused("right", f"{caller} has no right to {right}, which code {frame.code} needs")
    if right is not Right.SPEAK or sets is None:
        return
    named = sets_named(frame)
    # Default deny: a request that names no set would otherwise speak for whichever its handler takes it for.
    if not named or not named <= sets:
        asked = ", ".join(sorted(named))[:NAMED_CHARACTERS_MAX] or "no set"
        raise AccessRefused("set", f"{caller} may speak for {', '.join(sorted(sets))}; this request names {asked}")
