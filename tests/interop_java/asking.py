"""
Questions to anything that speaks RocketMQ's remoting: one blocking request, one answer.

Here: who leads, what a set looks like to controllers, whom a name server routes to. Not here: any decision. The same
questions go to Java's servers and to Rollcall's, so that both are looked at through the same eyes.
Rule: whoever does not answer in time is ``None`` or an empty answer, never an exception: callers poll.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.fastjson import quote_keys
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.secured import ExpectedPeer

ASK_TIMEOUT_S = 1.0
proof: ExpectedPeer | None = None
"""With which certificate controllers are asked; None: on plain links, as anybody."""
GET_ROUTE = 105
GET_CLUSTER_INFO = 106
GET_BROKER_EPOCHS = 1007


def ask(
    address: str,
    code: int,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    timeout_s: float = ASK_TIMEOUT_S,
    expected: ExpectedPeer | None = None,
) -> Frame | None:
    """One request on a connection of its own; None = no answer."""
    try:
        with BlockingLink(address, timeout_ms=round(timeout_s * 1000), expected=expected) as link:
            return link.ask(code, fields, body)
    except OSError:
        return None


def loads(body: bytes) -> Any:
    """A JSON body as Java writes it. Raises ``msgspec.DecodeError``."""
    return msgspec.json.decode(quote_keys(body))


def is_leader(address: str) -> bool:
    """Whether a controller says of itself that it leads."""
    answer = ask(address, RequestCode.GET_METADATA_INFO, expected=proof)
    return answer is not None and (answer.ext_fields or {}).get("isLeader") == "true"


def leader_of(controllers: str) -> str | None:
    """Address of the leader by the first controller of ``host:port;host:port`` that knows one."""
    for address in controllers.split(";"):
        answer = ask(address, RequestCode.GET_METADATA_INFO, expected=proof)
        if answer is not None and (leader := (answer.ext_fields or {}).get("controllerLeaderAddress")):
            return leader
    return None


def wait_leader(controllers: str, *, deadline_s: float) -> str:
    """Address of the controller that says that it leads. Raises ``DeadlineError``."""
    found: list[str] = []

    def leads() -> bool:
        found[:] = [address for address in controllers.split(";") if is_leader(address)]
        return bool(found)

    wait_until(leads, deadline_s=deadline_s, what=f"one of {controllers} to lead")
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSeen:
    """What the leading controller says of a broker set (1006)."""

    master: int | None
    master_address: str | None
    master_epoch: int
    set_epoch: int
    in_sync: Mapping[int, str]
    """Id -> address of the members of the SyncStateSet."""
    others: Mapping[int, str]
    alive: frozenset[int]

    @property
    def ids(self) -> Mapping[int, str]:
        """Every replica: id -> address."""
        return {**self.in_sync, **self.others}


def set_of(controllers: str, name: str) -> SetSeen | None:
    """A set as the leader sees it; None = no leader, or it does not know the set."""
    leader = leader_of(controllers)
    return sets_at(leader, [name]).get(name) if leader else None


def sets_at(leader: str, names: Sequence[str], *, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, SetSeen]:
    """Those of ``names`` that the controller at ``leader`` knows; empty without an answer."""
    body = msgspec.json.encode(names)
    answer = ask(leader, RequestCode.GET_SYNC_STATE_DATA, body=body, timeout_s=timeout_s, expected=proof)
    if answer is None or answer.code != SystemCode.SUCCESS:
        return {}
    table = loads(answer.body).get("replicasInfoTable", {})
    return {name: _seen(info) for name, info in table.items()}


def _seen(info: dict[str, Any]) -> SetSeen:
    in_sync = {replica["brokerId"]: replica for replica in info.get("inSyncReplicas", ())}
    others = {replica["brokerId"]: replica for replica in info.get("notInSyncReplicas", ())}
    return SetSeen(
        master=info.get("masterBrokerId"),
        master_address=info.get("masterAddress"),
        master_epoch=info.get("masterEpoch", 0),
        set_epoch=info.get("syncStateSetEpoch", 0),
        in_sync={number: replica["brokerAddress"] for number, replica in in_sync.items()},
        others={number: replica["brokerAddress"] for number, replica in others.items()},
        alive=frozenset(number for number, replica in {**in_sync, **others}.items() if replica.get("alive")),
    )


def brokers_of(namesrv: str, set_name: str) -> dict[int, str]:
    """Role id -> address by the first name server of ``host:port;host:port`` that answers; empty without one."""
    for address in namesrv.split(";"):
        answer = ask(address, GET_CLUSTER_INFO, expected=proof)
        if answer is not None and answer.code == SystemCode.SUCCESS:
            table = loads(answer.body).get("brokerAddrTable", {}).get(set_name, {})
            return {int(role): broker for role, broker in table.get("brokerAddrs", {}).items()}
    return {}


def has_route(namesrv: str, topic: str) -> bool:
    """Whether the first name server that answers routes ``topic`` to somebody."""
    for address in namesrv.split(";"):
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        if (answer := ask(address, GET_ROUTE, fields, expected=proof)) is not None:
            return answer.code == SystemCode.SUCCESS and bool(loads(answer.body).get("brokerDatas"))
    return False


def log_end_of(broker: str) -> int:
    """Where a broker's log ends as it answers 1007; 0 without an answer."""
    answer = ask(broker, GET_BROKER_EPOCHS)
    return int(loads(answer.body)["maxOffset"]) if answer is not None and answer.code == SystemCode.SUCCESS else 0
