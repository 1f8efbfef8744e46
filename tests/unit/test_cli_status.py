"""The command ``rollcall status`` against scripted controllers: its verdict, its lines for people, its exit code."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.problems import PROBLEMS, ProblemCode, words_of
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import ElectionPause, Maintenance, MaintenanceScope
from rollcall_ha.controller.contract.views import (
    CatchUp,
    MaintenancesAnswer,
    RefusedBroker,
    RefusedController,
    SetStatus,
)
from tests.support.cli import Run, scripted
from tests.support.fake_controllers import KEY, NAMES, STATUS, everywhere, fleet_status, set_page, set_status, showing


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    return scripted(monkeypatch)


def test_status_has_one_verdict_line_first_and_says_where_it_was_read(rollcall: Run) -> None:
    """The first line is enough to know whether to worry."""
    ran = rollcall(STATUS, "status")
    first = ran.out.splitlines()[0]

    assert ran.code == 0
    assert first.startswith("OK  1 broker set, 3 replicas in sync")
    assert first.endswith("read at index 4,207 from c2, 0.2 s old")
    assert "5,120,442" in ran.out
    assert "-1" not in ran.out.replace("broker-", "")


def test_status_without_a_leader_still_answers_and_is_marked_stale(rollcall: Run) -> None:
    """The page does not go dark with the quorum; exit code 0 because it answered."""
    script = {("c1", "GET", "/v1/status"): fleet_status("c1", is_stale=True)}
    ran = rollcall(script, "status")

    assert ran.code == 0
    assert ran.out.startswith("STALE  ")
    assert "broker-a" in ran.out
    assert "c2 unreachable" in ran.out
    assert "STALE  c1 says that c2 leads, which did not answer; this is what c1 knew" in ran.out


def test_status_of_controllers_without_authority_says_that_none_leads(rollcall: Run) -> None:
    """The leader of yesterday answers, too, and does not call itself one."""
    script = {(name, "GET", "/v1/status"): fleet_status(name, is_stale=True) for name in NAMES}
    assert rollcall(script, "status").out.startswith("STALE  no controller leads; this is what c")


@pytest.mark.parametrize(
    ("status", "first"),
    [
        (
            set_status(in_sync=(1,), problems=("NO_SPARE", "OF_A_NEWER_CONTROLLER")),
            "DEGRADED  broker-a: losing one more replica stops it; OF_A_NEWER",
        ),
        (
            set_status(master=None, condition=Condition.NO_ELIGIBLE_REPLICA, reason="1 gone; 2 gone; 3 not in sync"),
            "DOWN  broker-a does not serve: 1 gone; 2 gone; 3 not in sync",
        ),
        (
            set_status(
                condition=Condition.WRITES_STOPPED, reason="replica 1 acknowledges no write: its log cannot grow"
            ),
            "DOWN  broker-a does not serve: replica 1 acknowledges no write: its log cannot grow",
        ),
        (
            set_status(problems=("MASTER_NOT_SERVING",)),
            "DOWN  broker-a does not serve: the master on record has stopped itself",
        ),
    ],
    ids=["degraded", "without a master", "without writes", "fenced"],
)
def test_status_check_tells_a_script_and_its_first_line_a_person_what_is_wrong(
    rollcall: Run, status: SetStatus, first: str
) -> None:
    """All replicas in sync, one of them fenced: OK, exit code 0. Without the option the page is an answer: 0."""
    assert rollcall(showing(status), "status").code == 0
    ran = rollcall(showing(status), "status", "--check")
    assert (ran.code, ran.out.splitlines()[0].startswith(first)) == (6, True), ran.out


@pytest.mark.parametrize(
    ("catch_up", "cells", "raw"),
    [
        (CatchUp(left_bytes=1_200_000_000, bytes_per_s=45_000_000, left_s=27), ("45.0 M/s", "27.0 s"), ("45000000", "27")),
        (CatchUp(left_bytes=1_200_000_000, bytes_per_s=0, left_s=None), ("0 B/s", "no nearer"), ("0", "")),
        (CatchUp(left_bytes=1_200_000_000, bytes_per_s=None, left_s=None), ("unknown", "unknown"), ("", "")),
    ],
)  # fmt: skip
def test_status_says_when_a_slave_will_have_caught_up(
    rollcall: Run, catch_up: CatchUp, cells: tuple[str, str], raw: tuple[str, str]
) -> None:
    """A lag alone does not say whether to wait, or to look."""
    weak = set_status(in_sync=(1, 2))
    late = replace(weak.replicas[2], catch_up=catch_up)
    script = showing(replace(weak, replicas=(*weak.replicas[:2], late)))

    header, *_, row = rollcall(script, "status", "-o", "tsv").out.splitlines()
    told = dict(zip(header.split("\t"), row.split("\t"), strict=True))
    assert (told["SPEED"], told["CAUGHT UP IN"]) == raw
    out = rollcall(script, "status").out
    assert "CAUGHT UP IN" in out
    assert all(cell in out for cell in cells)
    assert "CAUGHT UP IN" not in rollcall(STATUS, "status").out, "nobody lags: no column"


def test_every_problem_of_a_set_has_words() -> None:
    """Codes are for programs; the table speaks to people."""
    assert list(PROBLEMS) == list(ProblemCode)
    assert words_of("NEEDS_BOOTSTRAP") == "needs a first master: rollcall bootstrap"
    assert words_of("OF_A_NEWER_CONTROLLER") == "OF_A_NEWER_CONTROLLER"


def test_status_after_a_set_was_cleaned_is_that_of_the_others(rollcall: Run) -> None:
    """The tombstone kept the fleet DOWN, and status --check at 6, for ever."""
    tomb = set_status(master=None, in_sync=(), condition=Condition.CLEANED, reason="cleaned; epochs continue above 7")
    tomb = replace(tomb, replicas=())
    ran = rollcall(showing(tomb, set_status()), "status", "--check")
    empty = rollcall(showing(tomb), "status", "--check")

    assert (ran.code, empty.code) == (0, 0)
    assert ran.out.startswith("OK  1 broker set, 3 replicas in sync")
    assert "Cleaned, of which only epochs and ids are kept: demo/broker-a." in ran.out
    assert empty.out.startswith("EMPTY  ")


def test_status_says_what_to_do_about_ids_that_are_gone(rollcall: Run) -> None:
    """A wiped replica comes back under a new id, and its old one kept the set DEGRADED without a word."""
    status = set_status(in_sync=(1, 2), problems=("REPLICA_SILENT",))
    gone = replace(status.replicas[2], is_alive=False)
    status = replace(status, replicas=(*status.replicas[:2], gone))
    ran = rollcall(showing(status), "status")

    assert "broker-a: broker 3 (heard 0.3 s ago) is gone. Start it again;" in ran.out
    assert ran.out.rstrip().endswith("rollcall clean demo/broker-a --broker 3")


@pytest.mark.parametrize(
    ("broker_id", "line"),
    [
        (3, "broker-a: broker 3 runs and is refused, 0.4 s ago: why (TOMBSTONED); the remedy."),
        (9, "broker-a: broker 9 runs and is refused, 0.4 s ago: why (TOMBSTONED); the remedy."),
        (None, "broker-a: a process at 10.0.0.3 runs and is refused, 0.4 s ago: why (TOMBSTONED); the remedy."),
    ],
)
def test_status_had_an_operator_start_a_process_that_ran_and_was_refused(
    rollcall: Run, broker_id: int | None, line: str
) -> None:
    """Isolated as the loser of an identity, with a certificate that is not taken, or under an id that was cleaned."""
    status = set_status(in_sync=(1, 2), problems=("REPLICA_SILENT",))
    gone = replace(status.replicas[2], is_alive=False, address="10.0.0.3:10911")
    refused = RefusedBroker(
        broker_id=None if broker_id is None else BrokerId(broker_id),
        host="10.0.0.3",
        code="TOMBSTONED",
        reason="why",
        hint="the remedy",
        age_ms=400,
    )
    status = replace(status, replicas=(*status.replicas[:2], gone), refused=(refused,))
    ran = rollcall(showing(status), "status")

    assert line in ran.out
    assert line in rollcall(everywhere("GET", "/v1/sets", set_page(status)), "sets").out
    assert ("Start it again" in ran.out) == (broker_id == 9), "9 is no replica of the set; 3 is gone"


def test_status_as_tsv_has_the_columns_of_wide_and_plain_numbers(rollcall: Run) -> None:
    """CONFIRM and HA ADDRESS were empty columns."""
    header, row, *_ = (line.split("\t") for line in rollcall(STATUS, "status", "-o", "tsv").out.splitlines())
    cells = dict(zip(header, row, strict=True))

    assert (cells["MAX OFFSET"], cells["CONFIRM"], cells["HA ADDRESS"]) == ("5120442", "5120442", "10.0.0.11:912")
    assert (cells["LAG"], cells["SEEN"]) == ("", "0.300")


def test_status_says_who_paused_elections_until_when_and_how_to_end_it(rollcall: Run) -> None:
    pause = ElectionPause(
        set_key=KEY, expires_at_ms=1_795_300_000_000, reason="new switch", paused_at_ms=1, paused_by="operator:alice"
    )
    paused = replace(set_status(), problems=("PAUSED",), pause=pause)
    fleet = replace(fleet_status("c1"), sets=(paused,))

    ran = rollcall(STATUS | {("c1", "GET", "/v1/status"): fleet}, "status")
    assert "elections are paused" in ran.out.splitlines()[0]
    assert "paused by operator:alice until 2026-11-2" in ran.out
    assert "(new switch); end it with: rollcall resume broker-a" in ran.out


def test_status_shows_a_maintenance_and_does_not_miss_its_replica(rollcall: Run) -> None:
    scope = MaintenanceScope(set_key=KEY, broker_id=BrokerId(2))
    one = Maintenance(
        scope=scope, expires_at_ms=1_795_300_000_000, reason="new disk", begun_at_ms=1, begun_by="operator:alice"
    )
    status = set_status()
    replicas = tuple(
        replace(replica, is_alive=False, maintenance=one) if replica.broker_id == 2 else replica
        for replica in status.replicas
    )
    fleet = replace(fleet_status("c1"), sets=(replace(status, replicas=replicas),))

    ran = rollcall(STATUS | {("c1", "GET", "/v1/status"): fleet}, "status")
    assert "is in maintenance by operator:alice until 2026-11-2" in ran.out
    assert "(new disk); end it with: rollcall maintenance end demo/broker-a:2" in ran.out
    assert " gone" not in ran.out
    listed = MaintenancesAnswer(freshness=fleet.freshness, maintenances=(one,))
    ran = rollcall(everywhere("GET", "/v1/maintenance", listed), "maintenance", "list")
    assert ("1 maintenance in force" in ran.out, "demo/broker-a:2" in ran.out) == (True, True)


def test_status_says_which_controller_refuses_which_and_why(rollcall: Run) -> None:
    """Also without a leader: two of three that refuse each other are no majority."""
    refused = RefusedController(
        name="", host="10.0.0.3", code="tls", reason="TLS: certificate has expired", hint="the remedy", age_ms=400
    )
    found = fleet_status("c1", is_stale=True)
    found = replace(found, controller=replace(found.controller, refused=(refused,)))
    ran = rollcall({("c1", "GET", "/v1/status"): found}, "status")

    assert (
        "WARNING  c1 refuses a process at 10.0.0.3 as a controller, 0.4 s ago: TLS: certificate has expired (tls); "
        "the remedy." in ran.out
    )


def test_status_says_how_many_entries_a_controller_that_was_put_back_lacks(rollcall: Run) -> None:
    known = fleet_status("c1")
    assert "its log lacks" not in rollcall(STATUS | {("c1", "GET", "/v1/status"): known}, "status").out
    lost = replace(known, controller=replace(known.controller, lost_entries=134))
    ran = rollcall(STATUS | {("c1", "GET", "/v1/status"): lost}, "status")
    assert "WARNING  c1: its log lacks 134 entries that brokers have seen" in ran.out
