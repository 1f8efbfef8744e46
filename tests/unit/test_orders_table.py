"""The table of orders: each way of an order is made from its row, and few files know an order by name."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.controller.contract.commands import (
    AnyCommand,
    ChangeControllers,
    CleanReplicas,
    ElectMaster,
    EndMaintenance,
    OperatorCommand,
    PauseElections,
    ResumeElections,
    RevokeToken,
)
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, ControllerName, SetKey
from rollcall_ha.controller.contract.orders import ORDERS, Order, TransferLead, order_of
from rollcall_ha.controller.contract.replies import AnsweredBy
from rollcall_ha.controller.contract.values import MaintenanceScope, MembershipVerb

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "analytics",
    "api",
    "broker",
    "cli",
    "client",
    "controller",
    "deploy",
    "epoch",
    "ha",
    "hooks",
    "node",
    "probe",
)
NAMED_IN_MAX = 8
MANY: dict[str, int] = {
    # The leading controller's own duties and RocketMQ's brokers give this one, too.
    "electMaster": 13,
    # A duty gives it, brokers drain for it, and its answer waits for its end.
    "switchOver": 12,
    # Founding a fleet, in a process and in the lake's generator, begins with it.
    "raiseFeatureLevel": 9,
}
"""Orders with more; the numbers go down, never up."""
KEY = SetKey(ClusterName("east/1"), BrokerName("broker a"))


def names_of(order: Order) -> set[str]:
    """The operation's id, what is asked for, and the command that the leader makes of it."""
    made = {"TransferLead": "TransferLeadership", "ChangeSettings": "ApplySettings", "RaiseLevel": "RaiseFeatureLevel"}
    asked = order.asks.__name__
    return {order.operation, asked, made.get(asked, asked)}


def product_files() -> dict[str, str]:
    """Every Python file of the product, with its text."""
    paths = (path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


@pytest.mark.slow
def test_an_order_is_named_in_at_most_eight_product_files() -> None:
    """Counted: files of the product in which the operation's id or the type of the order stands as a word, anywhere."""
    files = product_files()
    assert len(files) > 300
    for order in ORDERS:
        word = re.compile(rf"\b(?:{'|'.join(sorted(names_of(order)))})\b")
        named_in = [name for name, text in files.items() if word.search(text)]
        most = MANY.get(order.operation, NAMED_IN_MAX)
        assert 3 <= len(named_in) <= most, (
            f"{order.operation} is named in {len(named_in)} files, at most {most} may know it: {named_in}. What is the "
            "same for every order belongs to controller/contract/orders.py or to what is made from it"
        )


def test_every_command_of_a_person_has_a_row_and_no_other_has() -> None:
    asked = {name for order in ORDERS for name in names_of(order)}
    commands = {kind.__name__ for kind in OperatorCommand.__args__}
    others = {kind.__name__ for kind in AnyCommand.__args__} - commands
    assert commands <= asked
    assert not others & asked
    assert len({order.operation for order in ORDERS}) == len({order.path for order in ORDERS}) == len(ORDERS)


@pytest.mark.parametrize(
    ("asked", "operation", "path", "body"),
    [
        (
            ElectMaster(set_key=KEY, to=BrokerId(2), reason="x"),
            "electMaster",
            "/v1/sets/east%2F1/broker%20a/elect",
            {"to": 2, "reason": "x"},
        ),
        (
            PauseElections(set_key=KEY, expires_at_ms=5),
            "pauseSet",
            "/v1/sets/east%2F1/broker%20a/pause",
            {"expiresAtMs": 5, "reason": ""},
        ),
        (PauseElections(set_key=None, expires_at_ms=5), "pauseFleet", "/v1/pause", {"expiresAtMs": 5, "reason": ""}),
        (
            ChangeControllers(verb=MembershipVerb.REMOVE, name=ControllerName("c4")),
            "removeController",
            "/v1/controllers/remove",
            {"name": "c4", "reason": ""},
        ),
        (RevokeToken(token_id="a b"), "revokeToken", "/v1/tokens/a%20b/revoke", {"reason": ""}),
        (TransferLead(), "transferLeadership", "/v1/controllers/transfer", {"reason": ""}),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_an_order_finds_its_row_its_path_and_its_body(
    asked: AnsweredBy[object], operation: str, path: str, body: dict[str, object]
) -> None:
    """What the path says, what the row fixes and what is not said do not stand in the body."""
    order = order_of(asked)
    assert (order.operation, order.path_of(asked), order.body_of(asked)) == (operation, path, body)


@pytest.mark.parametrize(
    "asked",
    [
        ResumeElections(set_key=KEY, expired_at_ms=1),
        EndMaintenance(scope=MaintenanceScope(host="h"), expired_at_ms=1),
        ChangeControllers(verb=MembershipVerb.PROMOTE, name=ControllerName("c4")),
    ],
)
def test_what_only_a_controller_orders_has_no_row(asked: AnsweredBy[object]) -> None:
    with pytest.raises(ValueError, match="is no order that a person gives"):
        order_of(asked)


def test_two_ways_to_write_an_order_are_one_command() -> None:
    """Members decide on equal bytes, and a retry is known by its bytes."""

    class Told(msgspec.Struct):
        broker_ids: tuple[BrokerId, ...]
        is_unclean: bool = False
        reason: str = ""

    (clean,) = (order for order in ORDERS if order.asks is CleanReplicas)
    given = [tuple(map(BrokerId, ids)) for ids in ((2, 1), (1, 2, 2), (1, 2))]
    assert len({clean.asked({"set_key": KEY}, Told(broker_ids=ids)) for ids in given}) == 1
