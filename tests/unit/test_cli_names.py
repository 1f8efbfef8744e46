"""Names before numbers: what the command line calls a broker, and which words of a person mean one."""

from __future__ import annotations

import json
import typing
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.cli import records
from rollcall_ha.cli.diagnosis import Facts, diagnose
from rollcall_ha.cli.output import Figure
from rollcall_ha.cli.plans import plan_drain
from rollcall_ha.cli.waiting import Until, missing
from rollcall_ha.controller.contract.events import AnyEvent, EventRecord, ReplicaAlive
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    FleetIncarnation,
    Incarnation,
    RequestId,
    SessionOrdinal,
    SetKey,
)
from rollcall_ha.controller.contract.labels import in_words, label, labels, word
from rollcall_ha.controller.contract.replies import Done, Elected
from rollcall_ha.controller.contract.values import Maintenance, MaintenanceScope
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import ElectionPreview, HistoryPage, MaintenancesAnswer, SetStatus
from tests.support.cli import Run, scripted
from tests.support.fake_controllers import (
    KEY,
    SET_PATH,
    everywhere,
    freshness,
    history_row,
    noted,
    problem,
    set_page,
    set_status,
    showing,
    verdict,
)
from tests.support.set_views import shown_member

CROSSED = {BrokerId(1): "orders-3", BrokerId(2): "orders-1", BrokerId(3): "orders-2"}
"""As a fleet was really founded: the third broker of the fleet file came first."""


def named(status: SetStatus, names: dict[BrokerId, str] = CROSSED) -> SetStatus:
    """The set with its brokers bound to names."""
    members = tuple(replace(shown_member(number), owner=name) for number, name in names.items())
    return replace(status, view=replace(status.view, members=members))


SETS = everywhere("GET", "/v1/sets", set_page(named(set_status())))


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against scripted controllers."""
    return scripted(monkeypatch)


# --- labels ----------------------------------------------------------------------------------------------------------


def test_a_label_has_the_name_first_and_the_id_alone_where_nobody_is_bound() -> None:
    assert (label(1, CROSSED), label(1, {}), label(9, CROSSED)) == ("orders-3 (1)", "1", "9")
    assert labels((1, 2), CROSSED) == "{orders-3 (1), orders-1 (2)}"
    assert (labels((1, 2), {}), labels((), CROSSED)) == ("{1,2}", "{}")


def test_a_wiped_broker_has_two_ids_and_is_typed_by_id() -> None:
    """``clean --broker orders-3`` would have been the hint for the dead id, and the living one has that name, too."""
    wiped = {BrokerId(1): "orders-3", BrokerId(2): "orders-1", BrokerId(4): "orders-3"}
    assert (word(1, wiped), word(4, wiped), word(2, wiped)) == ("1", "4", "orders-1")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("replica 1 is master in epoch 2", "replica orders-3 (1) is master in epoch 2"),
        ("current master; replica 2 is designated", "current master; replica orders-1 (2) is designated"),
        ("broker 1, heard 0.2 s ago, broker 3.", "broker orders-3 (1), heard 0.2 s ago, broker orders-2 (3)."),
        ("waits for 1 replica 12 times", "waits for 1 replica 12 times"),
        ("master 1.5 s silent, broker 1:9876", "master 1.5 s silent, broker 1:9876"),
        ("brokers 1 of 3, epoch 1", "brokers 1 of 3, epoch 1"),
    ],
)
def test_reasons_of_the_controllers_are_shown_with_names(told: str, shown: str) -> None:
    assert in_words(told, CROSSED) == shown
    assert in_words(told, {}) == told


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_status_showed_broker_1_for_the_machine_of_orders_3(rollcall: Run) -> None:
    gone = named(set_status(in_sync=(1, 2), problems=("REPLICA_SILENT",)))
    gone = replace(gone, replicas=(*gone.replicas[:2], replace(gone.replicas[2], is_alive=False)))
    ran = rollcall(showing(gone), "status")
    header, first = (line.split() for line in ran.out.splitlines()[3:5])
    assert header[:4] == ["SET", "NAME", "BROKER", "ADDRESS"]
    assert first[:3] == ["broker-a", "orders-3", "1"]
    assert "broker orders-2 (3) (heard 0.3 s ago) is gone" in ran.out
    assert "rollcall clean demo/broker-a --broker orders-2" in ran.out


def test_sets_of_brokers_without_names_look_as_before(rollcall: Run) -> None:
    ran = rollcall(showing(set_status()), "status")
    assert ran.out.splitlines()[3].split()[:3] == ["SET", "BROKER", "ADDRESS"]
    ran = rollcall(everywhere("GET", "/v1/sets", set_page(set_status())), "sets")
    assert "{1,2,3} of 3" in ran.out


def test_sets_name_the_master_and_tsv_stays_ids(rollcall: Run) -> None:
    ran = rollcall(SETS, "sets")
    assert "orders-3 (1)" in ran.out
    assert "{orders-3 (1), orders-1 (2), orders-2 (3)} of 3" in ran.out
    cells = rollcall(SETS, "sets", "-o", "tsv").out.splitlines()[1].split("\t")
    assert (cells[2], cells[4]) == ("1", "{1,2,3} of 3")


def test_history_names_both_masters_and_tsv_stays_ids(rollcall: Run) -> None:
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(history_row(),), next_before=None, names=CROSSED)
    script = SETS | everywhere("GET", f"{SET_PATH}/history", page)
    assert "  orders-2->orders-3  " in rollcall(script, "history", "broker-a").out
    assert "\t3->1\t" in rollcall(script, "history", "broker-a", "-o", "tsv").out


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (ElectionKind.REQUESTED, "replace master 1 by the new disk"),
        (ElectionKind.HANDOVER, "replace master orders-3 (1) by the new disk"),
    ],
)
def test_the_reason_of_a_person_was_rewritten_as_one_of_ours(rollcall: Run, kind: ElectionKind, shown: str) -> None:
    """Who wrote it is told by the kind of the election: only an order has the words of a person."""
    row = replace(history_row(), kind=kind, cause="replace master 1 by the new disk")
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(row,), next_before=None, names=CROSSED)
    out = rollcall(SETS | everywhere("GET", f"{SET_PATH}/history", page), "history", "broker-a", "-o", "wide").out
    assert shown in out


def test_a_dry_run_says_by_name_who_would_be_elected(rollcall: Run) -> None:
    preview = ElectionPreview(freshness=freshness(), verdict=verdict(), grade_note="0 bytes", names=CROSSED)
    ran = rollcall(SETS | everywhere("POST", f"{SET_PATH}/elect", preview), "elect", "broker-a", "--dry-run")
    assert ran.out.startswith("Would elect broker orders-1 (2).")
    assert "SyncStateSet {orders-3 (1), orders-1 (2)} -> {orders-1 (2)}" in ran.out
    assert "current master; replica orders-1 (2) is designated" in ran.out


def test_a_refusal_names_the_brokers_that_it_tells_of(rollcall: Run) -> None:
    refused = replace(problem(409, "INVALID_CLEAN", current="[3]", names=CROSSED), detail="replicas [3] are alive")
    script = SETS | everywhere("POST", f"{SET_PATH}/clean", refused)
    ran = rollcall(script, "clean", "broker-a", "--broker", "orders-2", "--yes")
    assert ran.code == 1
    assert "Brokers: orders-3 (1), orders-1 (2), orders-2 (3)" in ran.err


def test_doctor_and_wait_name_the_broker_that_is_gone() -> None:
    status = named(set_status(in_sync=(1, 2)))
    told = missing(status, Until.IN_SYNC)
    assert told == "2 of 3 replicas are in sync: {orders-3 (1), orders-1 (2)}; not yet: {orders-2 (3)}"
    gone = replace(status, replicas=(*status.replicas[:2], replace(status.replicas[2], is_alive=False)))
    found = [one for one in diagnose(Facts(now_ms=0, controllers=(), sets=(gone,))) if "broker" in one.subject]
    assert [one.subject for one in found] == ["demo/broker-a broker orders-2 (3)"]
    assert "rollcall clean demo/broker-a --broker orders-2" in found[0].remedy


def test_every_fact_of_an_event_that_is_a_broker_is_shown_by_its_name() -> None:
    """A new event with a field of another name would show the id again."""
    told = {
        one.encode_name
        for kind in get_args(AnyEvent)
        for one in msgspec.structs.fields(kind)
        if _is_broker(one.type) and one.name not in NO_BROKERS
    }
    assert told | {"winner"} == records.BROKER_FACTS


NO_BROKERS = {"next_id", "bound_incarnations"}
"""The id that is given next belongs to nobody; incarnations are too long for a line."""


def _is_broker(kind: Any) -> bool:
    return kind is BrokerId or any(_is_broker(one) for one in typing.get_args(kind))


# --- what is taken ---------------------------------------------------------------------------------------------------

ELECTED = Elected(verdict=verdict(), view=named(set_status()).view)


@pytest.mark.parametrize("to", ["orders-1", "2"])
def test_an_election_takes_a_name_or_an_id(rollcall: Run, to: str) -> None:
    bodies: list[Any] = []
    script = SETS | everywhere("POST", f"{SET_PATH}/elect", noted(bodies, ELECTED))
    ran = rollcall(script, "elect", "broker-a", "--to", to, "--expect-master", "orders-3")
    assert ran.out.startswith("OK  broker orders-1 (2) is master of broker-a in masterEpoch 8")
    assert (bodies[0]["to"], bodies[0]["expectedMaster"]) == (2, 1)


def test_a_name_that_nobody_has_is_refused_with_those_that_are_there(rollcall: Run) -> None:
    for command in (
        ("elect", "broker-a", "--to", "orders-9"),
        ("switchover", "broker-a", "--to", "orders-9"),
        ("bootstrap", "broker-a", "--master", "orders-9"),
        ("clean", "broker-a", "--broker", "orders-9", "--yes"),
        ("elect", "broker-a", "--expect-master", "orders-9"),
        ("maintenance", "begin", "broker-a:orders-9", "--for", "1h"),
    ):
        ran = rollcall(SETS, *command)
        assert (ran.code, ran.err) == (
            2,
            "rollcall: no broker 'orders-9' in demo/broker-a; known: orders-3 (1), orders-1 (2), orders-2 (3)\n",
        ), command


def test_a_name_with_two_ids_was_never_the_first_of_them(rollcall: Run) -> None:
    wiped = named(set_status(), {BrokerId(1): "orders-3", BrokerId(2): "orders-1", BrokerId(4): "orders-3"})
    script = everywhere("GET", "/v1/sets", set_page(wiped))
    ran = rollcall(script, "clean", "broker-a", "--broker", "orders-3", "--yes")
    assert (ran.code, "orders-3 is broker 1 and 4 of demo/broker-a" in ran.err) == (2, True)


def test_a_clean_asks_and_answers_by_name(rollcall: Run) -> None:
    bodies: list[Any] = []
    script = SETS | everywhere("POST", f"{SET_PATH}/clean", noted(bodies, Done()))
    ran = rollcall(script, "clean", "broker-a", "--broker", "orders-2", "--broker", "1", "--yes")
    assert bodies[0]["brokerIds"] == [3, 1]
    assert ran.out.startswith("OK  forgot broker orders-2 (3), orders-3 (1) of demo/broker-a")
    ran = rollcall(script, "clean", "broker-a", "--broker", "3")
    assert (ran.code, "Forget broker orders-2 (3) of demo/broker-a?" in ran.err) == (2, True)


def test_ids_of_a_full_set_name_need_no_look(rollcall: Run) -> None:
    bodies: list[Any] = []
    script = everywhere("POST", f"{SET_PATH}/elect", noted(bodies, ELECTED))
    assert rollcall(script, "elect", "demo/broker-a", "--to", "2").code == 0
    assert rollcall(script, "elect", "demo/broker-a", "--to", "orders-1").code == 4


@pytest.mark.parametrize("what", ["broker-a:orders-1", "broker-a:2", "demo/broker-a:orders-1", "orders-1"])
def test_a_maintenance_takes_a_name_with_or_without_its_set(rollcall: Run, what: str) -> None:
    bodies: list[Any] = []
    one_set = everywhere("GET", SET_PATH, {"freshness": freshness(), "set": named(set_status())})
    script = SETS | one_set | everywhere("POST", "/v1/maintenance", noted(bodies, Done()))
    ran = rollcall(script, "maintenance", "begin", what, "--for", "1h")
    assert bodies[0]["scope"]["brokerId"] == 2
    assert ran.out.startswith("OK  demo/broker-a:orders-1 (2) is in maintenance until")


def test_a_name_in_two_sets_wants_the_set(rollcall: Run) -> None:
    other = named(set_status())
    other = replace(other, view=replace(other.view, set_key=SetKey(KEY.cluster, BrokerName("broker-b"))))
    script = everywhere("GET", "/v1/sets", set_page(named(set_status()), other))
    for command in (("maintenance", "begin", "orders-1", "--for", "1h"), ("drain", "orders-1")):
        ran = rollcall(script, *command)
        assert ran.code == 2
        assert "orders-1 is more than one replica; name one of them: demo/broker-a:2, demo/broker-b:2" in ran.err


def test_maintenances_are_listed_by_name_and_taken_by_id(rollcall: Run) -> None:
    one = Maintenance(
        scope=MaintenanceScope(set_key=KEY, broker_id=BrokerId(2)),
        expires_at_ms=1,
        reason="",
        begun_at_ms=0,
        begun_by="admin:me",
    )
    found = MaintenancesAnswer(freshness=freshness(), maintenances=(one,), names={str(KEY): CROSSED})
    script = everywhere("GET", "/v1/maintenance", found)
    assert "demo/broker-a:orders-1 (2)" in rollcall(script, "maintenance", "list").out
    assert rollcall(script, "maintenance", "list", "-o", "name").out == "demo/broker-a:2\n"


def test_status_ends_a_maintenance_by_name(rollcall: Run) -> None:
    scope = MaintenanceScope(set_key=KEY, broker_id=BrokerId(2))
    one = Maintenance(scope=scope, expires_at_ms=1, reason="", begun_at_ms=0, begun_by="admin:me")
    status = named(set_status())
    first, second, third = status.replicas
    status = replace(status, replicas=(first, replace(second, maintenance=one), third))
    out = rollcall(showing(status), "status").out
    assert "demo/broker-a:orders-1 (2) is in maintenance" in out
    assert "rollcall maintenance end demo/broker-a:orders-1" in out


def test_a_drain_of_a_broker_moves_its_mastership_alone(rollcall: Run) -> None:
    plan = plan_drain([named(set_status())], MaintenanceScope(set_key=KEY, broker_id=BrokerId(1)))
    assert [(move.master, move.to) for move in plan.moves] == [(1, 2)]
    assert plan_drain([set_status()], MaintenanceScope(set_key=KEY, broker_id=BrokerId(2))).moves == ()
    one_set = everywhere("GET", SET_PATH, {"freshness": freshness(), "set": named(set_status())})
    ran = rollcall(SETS | one_set, "drain", "orders-2")
    assert ran.out.startswith("OK  drain demo/broker-a:orders-2 (3): 0 masters moved")
    found = json.loads(rollcall(SETS | one_set, "drain", "orders-2", "--dry-run", "-o", "json").out)
    assert (found["moves"], found["left"]) == ([], [])


def test_events_name_the_brokers_of_their_set() -> None:
    event = ReplicaAlive(broker_id=BrokerId(1), incarnation=Incarnation("i"), session_ordinal=SessionOrdinal(1))
    record = EventRecord(
        version=1,
        fleet_incarnation=FleetIncarnation("f"),
        term=1,
        index=2,
        ordinal=0,
        stamped_at_ms=0,
        set_key=KEY,
        request_id=RequestId("r"),
        requested_by="controller:c1",
        event=event,
    )
    facts = "brokerId=1 sessionOrdinal=1"
    for is_wide, told in (
        (False, "replica orders-3 (1) is heard again"),
        (True, facts.replace("1", "orders-3 (1)", 1)),
    ):
        shown = records.event_table((record,), {str(KEY): CROSSED}, is_wide=is_wide).rows[0][4]
        assert isinstance(shown, Figure)
        assert (shown, shown.raw) == (told, facts)
