"""
The table of orders: what a person may ask of the controllers, one row each.

Here: the rows, what they say of paths and bodies, and the requests that are no commands themselves. REST's routes, its
document and its roles (``api.rest``), the client's ``order`` and ``preview``, and the table of docs/orders.md are made
from it. Not here: the commands (``commands``), what is asked of an order on its way in (``api.rest.orders``), reads and
the operations of brokers (``api.rest.routes``).

Rule 1: a body has the fields of what is asked for, but for those that the path names and those that the row fixes.
Three requests become a command on the leader alone: it knows who can take over, which values are in force, its level.
Rule 2: two ways to write one order are one command: members decide on equal bytes, and a retry is known by its bytes.
Rule 3: an operation's id is the name of its method in a generated client. It is kept: a program was written against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin
from urllib.parse import quote

import msgspec
from msgspec.structs import FieldInfo, replace

from rollcall_ha.controller.contract import consuming
from rollcall_ha.controller.contract.commands import (
    BeginMaintenance,
    Bootstrap,
    ChangeControllers,
    CleanReplicas,
    ConfigureSet,
    ElectMaster,
    ElectUnclean,
    EndMaintenance,
    ImportSet,
    IssueToken,
    OrderSwitchover,
    PauseElections,
    ResumeElections,
    RevokeCertificate,
    RevokeToken,
)
from rollcall_ha.controller.contract.ids import ControllerName, SetKey
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.contract.replies import AnsweredBy, Done, Elected, LeadershipTransferred
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.contract.views import ElectionPreview, OrderPreview


class TransferLead(AnsweredBy[LeadershipTransferred]):
    """Have another controller lead. The leader makes ``TransferLeadership`` of it."""

    to: ControllerName | None = None
    """None: the one that has the fewest entries to come."""
    reason: str = ""


class ChangeSettings(AnsweredBy[Done]):
    """
    Settings of the fleet: those in force, or of ``version``, then of ``preset``, then ``values``; judged as a whole.

    The leader makes ``ApplySettings`` of it. Keys are those of docs/settings.md, such as ``heartbeat_timeout_ms``.
    """

    values: dict[str, int] = msgspec.field(default_factory=dict)
    preset: str | None = None
    version: int | None = None
    """Go back to this one; it becomes a new version."""
    expected_version: int | None = None
    """Refuse if another one is in force. None: whichever is."""
    reason: str = ""


class RaiseLevel(AnsweredBy[Done]):
    """From here on, what a feature level brought may appear (R15). The leader makes ``RaiseFeatureLevel`` of it."""

    level: int | None = None
    """None: the leader's own."""
    assume_upgraded: bool = False
    """Controllers whose REST port the leader cannot reach have the level, by the caller's word."""
    reason: str = ""


_NAMED_BY = {"{set}": "set_key", "{id}": "token_id", "{topic}": "topic", "{group}": "group"}
"""Part of a path -> the field that it stands for; ``{cluster}`` stands before ``{set}``."""


class Order(msgspec.Struct, frozen=True):
    """One row."""

    operation: str
    """Its id in the OpenAPI document."""
    path: str
    """Under /v1. It is posted there."""
    asks: type[AnsweredBy[Any]]
    """The command, or the request that the leader makes one of."""
    role: Role
    """The least that may give it."""
    summary: str
    fixed: Mapping[str, object] = msgspec.field(default_factory=dict)
    """Fields of the command that no caller chooses; by them two rows of one command are told apart."""
    tag: str = "act"
    """Its group in the OpenAPI document."""

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that the path names."""
        return tuple(name for part, name in _NAMED_BY.items() if part in self.path)

    @property
    def fields(self) -> tuple[FieldInfo, ...]:
        """The fields of its body (rule 1)."""
        every = msgspec.structs.fields(self.asks)
        return tuple(one for one in every if one.name not in self.named and one.name not in self.fixed)

    @property
    def gives(self) -> type:
        """The type of its answer, as ``AnsweredBy`` says."""
        bases: tuple[object, ...] = self.asks.__orig_bases__  # type: ignore[attr-defined]
        (answer,) = next(get_args(base) for base in bases if get_origin(base) is AnsweredBy)
        assert isinstance(answer, type)
        return answer

    @property
    def previews(self) -> type[ElectionPreview] | type[OrderPreview] | type[consuming.BrokersAnswer]:
        """The type of its answer to a dry run."""
        if issubclass(self.asks, consuming.BrokerOrder):
            return consuming.BrokersAnswer
        return ElectionPreview if self.gives is Elected else OrderPreview

    def asked(self, named: Mapping[str, object], body: object) -> AnsweredBy[Any]:
        """What a path and a body ask for."""
        chosen = {one.name: getattr(body, one.name) for one in self.fields}
        return _in_one_way(self.asks(**named, **self.fixed, **chosen))

    def path_of(self, asked: AnsweredBy[Any]) -> str:
        """Where ``asked`` is posted."""
        path = f"/v1{self.path}"
        if "set_key" in self.named:
            path = path.replace(f"/v1{OF_SET}", set_path(getattr(asked, "set_key")))  # noqa: B009
        for part, name in _NAMED_BY.items():
            if part in path:
                path = path.replace(part, quoted(getattr(asked, name)))
        return path

    def body_of(self, asked: AnsweredBy[Any]) -> dict[str, Any]:
        """What is posted for ``asked``, as JSON's values."""
        values: dict[str, Any] = msgspec.to_builtins(asked)
        names = (one.encode_name for one in self.fields)
        # None is the default wherever it may stand: less to read in a trace.
        return {name: values[name] for name in names if values[name] is not None}


def _in_one_way(asked: AnsweredBy[Any]) -> AnsweredBy[Any]:
    # Rule 2: [2,1] means what [1,2,2] means, and the same order repeated would be another one under its id.
    match asked:
        case CleanReplicas(broker_ids=ids):
            return replace(asked, broker_ids=tuple(sorted(set(ids))))
        case ImportSet(replicas=replicas, sync_state_set=ids):
            in_order = tuple(sorted(replicas, key=lambda replica: replica.broker_id))
            return replace(asked, replicas=in_order, sync_state_set=tuple(sorted(set(ids))))
    return asked


OF_SET = "/sets/{cluster}/{set}"

_BY_HAND: dict[str, object] = {"expired_at_ms": None}
"""A person ends whichever there is; with this field a leader ends the one whose time has passed."""
_REMOVAL: dict[str, object] = {"verb": MembershipVerb.REMOVE, "raft": "", "broker": "", "rest": ""}
_FLEET: dict[str, object] = {"set_key": None}

# fmt: off
ORDERS: tuple[Order, ...] = (
    Order("electMaster", f"{OF_SET}/elect", ElectMaster, Role.OPERATOR,
          "Elect by policy, or this broker if it may be elected cleanly."),
    Order("switchOver", f"{OF_SET}/switchover", OrderSwitchover, Role.OPERATOR,
          "Let the master drain and hand over (R29); answered at its end, or after 2.5 s at most with row.end null; "
          "then the same request id waits on."),
    Order("pauseSet", f"{OF_SET}/pause", PauseElections, Role.OPERATOR,
          "Hold no automatic election in this set until a time; an order still elects, and detection goes on."),
    Order("resumeSet", f"{OF_SET}/resume", ResumeElections, Role.OPERATOR,
          "End the pause of this set; the fleet's goes on.", _BY_HAND),
    Order("pauseFleet", "/pause", PauseElections, Role.OPERATOR,
          "Hold no automatic election in any set until a time.", _FLEET),
    Order("resumeFleet", "/resume", ResumeElections, Role.OPERATOR,
          "End the pause of the fleet; those of single sets go on.", _BY_HAND | _FLEET),
    Order("transferLeadership", "/controllers/transfer", TransferLead, Role.OPERATOR,
          "Have another controller lead, at once; answered when a leader is known."),
    Order("beginMaintenance", "/maintenance", BeginMaintenance, Role.OPERATOR,
          "Until a time, elect a replica, or those of a host, by order only, and do not miss them."),
    Order("endMaintenance", "/maintenance/end", EndMaintenance, Role.OPERATOR,
          "Elect and expect the replicas again.", _BY_HAND),
    # An admin's, as all that follow: its word decides which log is the truth.
    Order("bootstrapSet", f"{OF_SET}/bootstrap", Bootstrap, Role.ADMIN,
          "Hold the first election by an operator's word (R8)."),
    Order("electMasterUnclean", f"{OF_SET}/elect-unclean", ElectUnclean, Role.ADMIN,
          "Elect outside the SyncStateSet: the only order that can lose messages (S72)."),
    Order("cleanReplicas", f"{OF_SET}/clean", CleanReplicas, Role.ADMIN,
          "Forget replicas, or the whole set if none is named; its epochs stay in a tombstone (S78)."),
    Order("importSet", f"{OF_SET}/import", ImportSet, Role.ADMIN,
          "Take over a set of RocketMQ's controllers; it elects when all of its brokers have come."),
    Order("configureSet", f"{OF_SET}/configuration", ConfigureSet, Role.ADMIN,
          "Change how many replicas the set expects, and how many have to hold a message."),
    Order("addController", "/controllers/add", ChangeControllers, Role.ADMIN,
          "Let a controller with three new addresses take entries; the leader gives it a vote when it has caught up.",
          {"verb": MembershipVerb.ADD}),
    Order("removeController", "/controllers/remove", ChangeControllers, Role.ADMIN,
          "Take a controller out for good; it is not asked any more, and may be stopped.", _REMOVAL),
    Order("raiseFeatureLevel", "/feature-level", RaiseLevel, Role.ADMIN,
          "Allow what a feature level brought, once every controller has it; it never falls (R15)."),
    Order("applySettings", "/settings", ChangeSettings, Role.ADMIN,
          "Set the fleet to other values, or back to those of a version; judged as a whole."),
    Order("revokeCertificate", "/certificates/revoke", RevokeCertificate, Role.ADMIN,
          "Believe a certificate no longer, on any port (R28); every node closes its links.",
          tag="access"),
    Order("issueToken", "/tokens", IssueToken, Role.ADMIN,
          "Let whoever has the token with this digest act in a role; its caller has drawn the token, and keeps it.",
          tag="access"),
    Order("revokeToken", "/tokens/{id}/revoke", RevokeToken, Role.ADMIN,
          "Take a token back.", tag="access"),
    # The masters' own ports ask for the same role.
    Order("createTopic", "/topics/{topic}/create", consuming.CreateTopic, Role.OPERATOR,
          "Make a topic in every set, or in those that are named.", tag="consume"),
    Order("changeTopic", "/topics/{topic}/change", consuming.ChangeTopic, Role.OPERATOR,
          "Change a topic's queues or permission.", tag="consume"),
    Order("deleteTopic", "/topics/{topic}/delete", consuming.DeleteTopic, Role.OPERATOR,
          "Delete a topic; its messages stay until their age, and an order alone makes it again.", tag="consume"),
    Order("createGroup", "/groups/{group}/create", consuming.CreateGroup, Role.OPERATOR,
          "Make a group in every set, or in those that are named.", tag="consume"),
    Order("changeGroup", "/groups/{group}/change", consuming.ChangeGroup, Role.OPERATOR,
          "Change a group's settings: retries, whether it may consume or broadcast, order.", tag="consume"),
    Order("deleteGroup", "/groups/{group}/delete", consuming.DeleteGroup, Role.OPERATOR,
          "Forget a group's settings and offsets.", tag="consume"),
    Order("resetGroup", "/groups/{group}/reset", consuming.ResetGroup, Role.OPERATOR,
          "Let a group go on at a time in a topic.", tag="consume"),
)
# fmt: on


def order_of(asked: AnsweredBy[Any]) -> Order:
    """The row of what is asked for. Raises ``ValueError``: it is no order of a person."""
    for order in ORDERS:
        if (
            order.asks is type(asked)
            and all(getattr(asked, name) is not None for name in order.named)
            and all(getattr(asked, name) == value for name, value in order.fixed.items())
        ):
            return order
    raise ValueError(f"{asked} is no order that a person gives")


def set_path(key: SetKey) -> str:
    """Where a set is."""
    return f"/v1/sets/{quoted(key.cluster)}/{quoted(key.name)}"


def quoted(part: str) -> str:
    """One part of a path, its slashes too."""
    return quote(part, safe="")
