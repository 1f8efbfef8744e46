"""The CLI against scripted controllers: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml
from msgspec.structs import replace

from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.controller.contract.commands import CleanReplicas
from rollcall_ha.controller.contract.events import ReplicasCleaned, is_asked_by
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SyncStateSetEpoch
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.replies import Done, Elected
from rollcall_ha.controller.contract.values import EventRef, Phase, StopReason
from rollcall_ha.controller.contract.views import (
    ElectionPreview,
    EventPage,
    HistoryPage,
    OrderPreview,
    PhaseSpan,
    SetAnswer,
    StopEnd,
    WriteStop,
)
from rollcall_ha.controller.runtime.verify import verify
from tests.support.cli import CliRunner, Run, scripted
from tests.support.core_builders import Fleet
from tests.support.fake_controllers import (
    EACH,
    KEY,
    NAMES,
    SET_PATH,
    SETS,
    STATUS,
    answer,
    controller_status,
    everywhere,
    fleet_status,
    freshness,
    history_row,
    noted,
    problem,
    set_page,
    set_status,
    verdict,
)


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    return scripted(monkeypatch)


@pytest.mark.parametrize("command", [("sets",), ("history", "broker-a"), ("status",)])
def test_unreachable_controllers_have_their_own_exit_code(rollcall: Run, command: tuple[str, ...]) -> None:
    """4, on standard error, with nothing on standard output."""
    ran = rollcall({}, *command)

    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("UNREACHABLE  ")
    assert [ran.err.count(name) for name in NAMES] == [1, 1, 1]


def test_no_leader_has_its_own_exit_code(rollcall: Run) -> None:
    """3 where controllers answer but none leads."""
    ran = rollcall(everywhere("GET", "/v1/sets", problem(503, "NO_LEADER")), "sets")

    assert ran.code == 3
    assert "rollcall status" in ran.err


def test_refusal_shows_both_values_every_replica_and_the_remedy(rollcall: Run) -> None:
    """Exit code 1; the text goes to standard error."""
    refused = problem(409, "NOT_ELIGIBLE", requested="1", current="2", verdict=verdict(winner=None))
    ran = rollcall(SETS | {("c1", "POST", f"{SET_PATH}/elect"): refused}, "elect", "broker-a", "--to", "1")

    assert (ran.code, ran.out) == (1, "")
    assert "REFUSED  NOT_ELIGIBLE" in ran.err
    assert "requested 1; current 2" in ran.err
    assert "not in SyncStateSet; unclean election is off" in ran.err
    assert "What to do: do this" in ran.err


def test_refusal_for_a_program_is_the_problem_document(rollcall: Run) -> None:
    """With -o json standard output has the document and nothing else."""
    refused = problem(409, "NOT_ELIGIBLE", requested="1", current="2")
    script = SETS | {("c1", "POST", f"{SET_PATH}/elect"): refused}
    ran = rollcall(script, "elect", "broker-a", "--to", "1", "-o", "json")

    assert ran.code == 1
    assert json.loads(ran.out)["code"] == "NOT_ELIGIBLE"


def test_unknown_outcome_names_the_request_id_and_how_to_find_out(rollcall: Run) -> None:
    """Exit code 5."""

    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    script = SETS | {("c1", "POST", f"{SET_PATH}/elect"): never}
    ran = rollcall(script, "elect", "broker-a", "--request-id", "r-77")

    assert ran.code == 5
    assert "rollcall events --request r-77" in ran.err
    assert "--request-id r-77" in ran.err


def test_dry_run_names_every_replica_with_its_reason(rollcall: Run) -> None:
    """The winner first, and what would change."""
    preview = ElectionPreview(freshness=freshness(), verdict=verdict(), grade_note="0 bytes, proven once 2 entered")
    ran = rollcall(SETS | {("c1", "POST", f"{SET_PATH}/elect"): preview}, "elect", "broker-a", "--dry-run")
    lines = ran.out.splitlines()

    assert ran.code == 0
    assert lines[0].startswith("Would elect broker 2.")
    assert [line.split()[1] for line in lines[4:7]] == ["2", "3", "1"]
    assert "masterEpoch 7 -> 8, SyncStateSet {1,2} -> {2}, SyncStateSetEpoch 12 -> 13" in ran.out


def test_dry_run_of_an_election_that_would_be_refused_shows_that_refusal(rollcall: Run) -> None:
    """It said "Would elect broker 2" with exit code 0, and the real command was refused: a master is alive."""
    refused = problem(409, "MASTER_STILL_EXISTS", current="1")
    ran = rollcall(SETS | {("c1", "POST", f"{SET_PATH}/elect"): refused}, "elect", "broker-a", "--dry-run")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("REFUSED  MASTER_STILL_EXISTS")


def test_dry_run_of_clean_asks_the_controllers(rollcall: Run) -> None:
    """It listed replicas by itself, with exit code 0, also of the master and of broker 77."""
    bodies = []
    cleaned = ReplicasCleaned(
        broker_ids=(BrokerId(3),),
        remaining=(BrokerId(1), BrokerId(2)),
        master=BrokerId(1),
        master_epoch=MasterEpoch(7),
        sync_state_set=(BrokerId(1), BrokerId(2)),
        sync_state_set_epoch=SyncStateSetEpoch(13),
        is_unclean=False,
        reason="",
    )

    def clean(request: httpx.Request) -> httpx.Response:
        bodies.append(msgspec.json.decode(request.content))
        if bodies[-1]["brokerIds"] == [77]:
            return answer(problem(404, "UNKNOWN_REPLICA"))
        return answer(OrderPreview(freshness=freshness(), events=(cleaned,)))

    script = SETS | {("c1", "POST", f"{SET_PATH}/clean"): clean}
    ran = rollcall(script, "clean", "broker-a", "--broker", "3", "--dry-run")
    unknown = rollcall(script, "clean", "broker-a", "--broker", "77", "--dry-run")

    assert (ran.code, unknown.code) == (0, 1)
    assert ran.out.startswith(
        "Would forget replicas {3}; {1,2} remain, with master 1, masterEpoch 7, SyncStateSet {1,2}."
    )
    assert unknown.err.startswith("REFUSED  UNKNOWN_REPLICA")
    assert [body["dryRun"] for body in bodies] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("switchover", "broker-a", "--deadline-ms", "-5"), ("--deadline-ms", "'-5'", "100")),
        (("switchover", "broker-a", "--deadline-ms", "60001"), ("--deadline-ms", "'60001'", "60000")),
        (("drain", "m1", "--deadline-ms", "-5"), ("--deadline-ms", "'-5'", "100")),
        (("switchover", "broker-a", "--max-lag", "-1"), ("'-1'", "from 0 to")),
        (("elect", "broker-a", "--expect-epoch", "-1"), ("'-1'", "from 0 to")),
        (("elect", "broker-a", "--unclean", "--accept-loss", "-1"), ("'-1'", "from 0 to")),
        (("switchover", "broker-a", "--to", "9" * 26), ("9" * 26, str(2**63 - 1))),
        (("elect", "broker-a", "--to", "0"), ("broker 0", str(2**63 - 1))),
        (("clean", "broker-a", "--broker", "9" * 5_000), ("9" * 40, str(2**63 - 1))),
        (("bootstrap", "broker-a", "--master", "0"), ("broker 0", str(2**63 - 1))),
        (("switchover", "broker-a", "--expect-master", "0"), ("broker 0", str(2**63 - 1))),
        (("raise-level", "0", "--yes"), ("'0'", "from 1 to")),
        (("raise-level", "9" * 26, "--yes"), ("9" * 26, str(2**63 - 1))),
        (("history", "broker-a", "--before", "-1"), ("'-1'", "from 0 to")),
        (("explain", "broker-a", "9" * 26), ("9" * 26, str(2**63 - 1))),
        (("config", "apply", "--version", "-1"), ("'-1'", "from 0 to")),
        (("config", "apply", "--preset", "fast", "--expect-version", "9" * 26), ("9" * 26, str(2**63 - 1))),
        (("config", "set", "broker-a", "--expected-replicas", "9" * 26), ("9" * 26, str(2**63 - 1))),
        (("config", "set", "broker-a", "--min-in-sync", "9" * 26), ("9" * 26, str(2**63 - 1))),
    ],
)
def test_a_number_that_can_not_be_was_sent_and_came_back_as_outcome_unknown(
    rollcall: Run, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """It is wrong use, told with the limit, although no controller answers: nothing was asked of one."""
    ran = rollcall({}, *arguments)

    assert ran.code == 2
    told = "".join(ran.err.replace("│", "").split())
    assert all("".join(word.split()) in told for word in words), ran.err


def test_election_passes_on_what_the_caller_expects(rollcall: Run) -> None:
    """--expect-master and --expect-epoch are checked where the decision is made."""
    bodies: list[Any] = []
    elected = Elected(verdict=verdict(), view=set_status().view)
    script = SETS | {("c1", "POST", f"{SET_PATH}/elect"): noted(bodies, elected)}
    options = ("--to", "2", "--expect-master", "1", "--expect-epoch", "7", "--reason", "disk swap")
    ran = rollcall(script, "elect", "broker-a", *options)

    assert ran.code == 0
    assert ran.out.startswith("OK  broker 2 is master of broker-a in masterEpoch 8")
    del bodies[0]["requestId"]
    assert bodies == [{"to": 2, "expectedMaster": 1, "expectedEpoch": 7, "reason": "disk swap"}]


@pytest.mark.parametrize(
    "arguments",
    [
        ("elect", "broker-a", "--unclean"),
        ("elect", "broker-a", "--accept-loss", "1"),
        ("elect", "broker-a", "--unclean", "--accept-loss", "1"),
        ("clean", "broker-a"),
        ("elect", "nobody"),
        ("events", "--from", "here"),
        ("status", "--watch=0.01s"),
        ("status", "-o", "xml"),
    ],
)
def test_wrong_use_changes_nothing_and_exits_with_2(rollcall: Run, arguments: tuple[str, ...]) -> None:
    """A script without a terminal is never asked, and never loses by accident."""
    ran = rollcall(SETS | STATUS, *arguments)

    assert ran.code == 2
    assert ran.err


def test_an_address_that_is_none_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--controllers h:x`` was a traceback, and ``10.99.0.1`` was asked at a port 443 that nobody had named."""
    monkeypatch.setattr(context.OPTIONS, "controllers", "")
    ran = CliRunner().invoke(app, ["--controllers", "h:x", "status"])

    assert (ran.exit_code, ran.stderr) == (
        2,
        "rollcall: 'h:x' is not the address of a controller: host:port, or https://host:port\n",
    )
    ran = CliRunner().invoke(app, ["--controllers", "h:1,10.99.0.1", "status"])
    assert (ran.exit_code, ran.stderr) == (
        2,
        "rollcall: '10.99.0.1' has no port: 10.99.0.1:PORT, the REST port of a controller (9200 by rollcall init)\n",
    )


def test_ambiguous_set_name_wants_the_cluster(rollcall: Run) -> None:
    """Two clusters may use one name; the message shows both full names."""
    other = set_status()
    key = msgspec.structs.replace(KEY, cluster="other")
    other = msgspec.structs.replace(other, view=msgspec.structs.replace(other.view, set_key=key))
    ran = rollcall(everywhere("GET", "/v1/sets", set_page(set_status(), other)), "history", "broker-a")

    assert ran.code == 2
    assert "demo/broker-a, other/broker-a" in ran.err


def test_history_prints_stops_of_writes_between_the_reigns(rollcall: Run) -> None:
    """A set acknowledged nothing for 15 s under the master that it had, and its history showed no line of it."""
    row = history_row()
    stops = [
        WriteStop(
            master_epoch=row.master_epoch,
            broker_id=row.to_master,
            began_at_ms=row.elected_at_ms + 60_000 * number,
            reason=StopReason.NOT_ACKNOWLEDGED,
            detail="nothing is heard of broker 2",
            stopped_us=stopped_us,
            end=end,
            event=EventRef(term=7, index=4300 + number, ordinal=0),
        )
        for number, (stopped_us, end) in enumerate([(15_000_000, StopEnd.RESUMED), (None, None)], start=1)
    ]
    page = HistoryPage(
        freshness=freshness(), set_key=KEY, rows=(row, history_row(7)), next_before=None, stops=tuple(reversed(stops))
    )
    ran = rollcall(SETS | {("c1", "GET", f"{SET_PATH}/history"): page}, "history", "broker-a")

    lines = [line for line in ran.out.splitlines() if "broker:" in line or "controller:" in line]
    assert [line.split()[2] for line in lines] == ["writes-stopped", "writes-stopped", "failover", "failover"]
    assert "goes on, no reign changed" in lines[0]
    assert "not-acknowledged: nothing is heard of broker 2" in lines[1]
    assert "15.0 s" in lines[1]


def test_history_phases_and_the_unexplained_rest_add_up_to_the_total(rollcall: Run) -> None:
    """Columns that say nothing are left out; what no phase explains has its own."""
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(history_row(),), next_before=None)
    ran = rollcall(SETS | {("c1", "GET", f"{SET_PATH}/history"): page}, "history", "broker-a")
    header, row = ran.out.splitlines()[2:4]

    assert "FIRST ACK" not in header
    assert "ENTER" not in header
    assert [cell.strip() for cell in row.split("  ") if cell.strip()][5:10] == [
        "3.1 s",
        "12 ms",
        "50 ms",
        "3.0 ms",
        "3.2 s",
    ]


def test_a_fault_that_nobody_saw_is_shown_by_its_bounds(rollcall: Run) -> None:
    """After a stop of the whole fleet: "DETECT 0.0 ms", and one small number for an outage of a minute."""
    phases = (PhaseSpan(phase=Phase.DETECTED, duration_us=0), PhaseSpan(phase=Phase.SERVING, duration_us=800_000))
    bounded = msgspec.structs.replace(
        history_row(), phases=phases, total_us=830_000, total_us_max=66_000_000, missing=(Phase.FAULT,)
    )
    unbounded = msgspec.structs.replace(bounded, total_us_max=None)
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(bounded, unbounded), next_before=None)
    ran = rollcall(SETS | {("c1", "GET", f"{SET_PATH}/history"): page}, "history", "broker-a")

    assert "0.0 ms" not in ran.out
    assert "830 ms to 1 min" in ran.out
    assert "over 830 ms" in ran.out


def test_formats_agree_with_each_other(rollcall: Run) -> None:
    """json and yaml hold the answer of REST, with its version and its instants as dates; tsv the rows of the table."""
    as_json = json.loads(rollcall(SETS, "sets", "-o", "json").out)
    as_yaml = yaml.safe_load(rollcall(SETS, "sets", "-o", "yaml").out)
    as_tsv = rollcall(SETS, "sets", "-o", "tsv").out.splitlines()

    answered = json.loads(msgspec.json.encode(set_page(set_status())))
    assert as_json == as_yaml
    assert as_json.pop("format") == "rollcall/v1"
    assert as_json["sets"][0].pop("lastElectionAt") == "2023-11-14T22:13:20.000Z"
    assert as_json == answered
    assert [line.split("\t")[0] for line in as_tsv] == ["SET", "demo/broker-a"]


def test_names_are_what_other_commands_take(rollcall: Run) -> None:
    """One to a line, each once, nothing else; of a refusal nothing, for it would be taken for a name."""
    assert rollcall(SETS, "sets", "-o", "name").out == "demo/broker-a\n"
    assert rollcall(STATUS, "status", "-o", "name").out == "demo/broker-a\n"
    assert rollcall(EACH, "controllers", "-o", "name").out.split() == ["c1", "c2", "c3"]
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(history_row(8), history_row(7)), next_before=None)
    script = {("c1", "GET", f"{SET_PATH}/history"): page}
    assert rollcall(script, "history", "demo/broker-a", "-o", "name").out == "8\n7\n"
    refused = everywhere("POST", f"{SET_PATH}/elect", problem(409, "NOT_MASTER", verdict=verdict(winner=None)))
    ran = rollcall(refused, "elect", "demo/broker-a", "-o", "name")
    assert (ran.code, ran.out, "NOT_MASTER" in ran.err) == (1, "", True)


def test_a_list_has_its_version_too(rollcall: Run) -> None:
    """An array has no place for it."""
    page = json.loads(rollcall(EACH, "controllers", "-o", "json").out)

    assert page["format"] == "rollcall/v1"
    assert [one["status"]["name"] for one in page["items"]] == ["c1", "c2", "c3"]


def test_events_in_json_are_as_they_were_hashed(rollcall: Run, tmp_path: Path) -> None:
    """With a date beside its stamp, no exported event could be verified."""
    fleet = Fleet().serving()
    fleet.do(CleanReplicas(set_key=KEY, reason="tidy \u202e up"))
    page = EventPage(freshness=freshness(), events=tuple(fleet.records), next_from=None)
    out = rollcall({("c1", "GET", "/v1/events"): page}, "events", "-o", "json").out
    file = tmp_path / "events.json"
    file.write_text(out)

    assert json.loads(out)["format"] == "rollcall/v1"
    assert (verify(file).wrong, verify(file).events) == ((), len(fleet.records))


def test_the_events_of_one_caller_are_found_on_every_page(rollcall: Run) -> None:
    """Who elected at three in the morning: a name in a header, which anybody could write."""
    alice = Principal(name="alice", role=Role.ADMIN, proved_by=ProvedBy.CERTIFICATE, serial="a1", address="10.0.0.7:5")
    nobody = replace(alice, name="bob", proved_by=ProvedBy.NOTHING)
    fleet = Fleet()
    for caller in (alice, nobody, None, alice):
        fleet.do(CleanReplicas(set_key=KEY, reason="tidy"), by=caller)
    asked = [record for record in fleet.records if record.set_key == KEY]
    pages = [asked[:2], asked[2:], []]

    def page(request: httpx.Request) -> httpx.Response:
        place = int(request.url.params.get("from", "0.0.0").split(".")[1])
        following = EventRef(term=1, index=place + 1, ordinal=0) if pages[place] else None
        found = tuple(record for record in pages[place] if is_asked_by(record, request.url.params["by"]))
        return answer(EventPage(freshness=freshness(), events=found, next_from=following))

    script: dict[tuple[str, str, str], object] = {("c1", "GET", "/v1/events"): page}
    for name, marks in (("alice", 2), ("admin:alice", 2), ("bob", 1), ("controller:c1", 4), ("mallory", 0)):
        ran = rollcall(script, "events", "--by", name)
        assert ran.out.count("command-refused") == marks, ran.out
        assert ("No events." in ran.out) == (marks == 0)
    whole = rollcall(script, "events", "--by", "controller:c1").out
    assert whole.count("admin:alice (certificate)") == 2
    assert "admin:bob (unproven)" in whole


def test_events_are_the_newest_unless_a_place_to_begin_is_named(rollcall: Run) -> None:
    """``events --limit 20`` gave the first 20 events of the fleet's life."""
    asked: list[dict[str, str]] = []

    def page(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        return answer(EventPage(freshness=freshness(), events=(), next_from=None))

    script: dict[tuple[str, str, str], object] = {("c1", "GET", "/v1/events"): page}
    for arguments in ((), ("--oldest",), ("--from", "1.7.0"), ("--request", "r-1")):
        assert rollcall(script, "events", "--limit", "20", *arguments).code == 0

    assert [("newest" in one, one.get("from"), one["limit"]) for one in asked] == [
        (True, None, "20"),
        (False, None, "20"),
        (False, "1.7.0", "20"),
        (False, None, "20"),
    ]
    assert rollcall(script, "events", "--oldest", "--from", "1.7.0").code == 2


def test_full_set_name_needs_no_lookup(rollcall: Run) -> None:
    """cluster/name is taken as it is."""
    set_answer = SetAnswer(freshness=freshness(), set=set_status())
    page = HistoryPage(freshness=freshness(), set_key=KEY, rows=(), next_before=None)
    script = {("c1", "GET", SET_PATH): set_answer, ("c1", "GET", f"{SET_PATH}/history"): page}

    assert rollcall(script, "history", "demo/broker-a").code == 0


def test_addresses_come_from_a_fleet_file_if_nobody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a directory with one the CLI says where it looked, the demo's last; without any source it is wrong use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(context.ENVIRONMENT, raising=False)
    node = "127.0.0.1:{0}1,127.0.0.1:{0}2,127.0.0.1:{0}3"

    without = CliRunner().invoke(app, ["sets"])
    founded = CliRunner().invoke(app, ["init", "--directory", ".demo", "--controller", "c1=" + node.format(1)])
    context.OPTIONS.controllers = ""

    assert without.exit_code == 2
    assert context.ENVIRONMENT in without.stderr
    assert founded.exit_code == 0
    assert context.controller_addresses() == ("127.0.0.1:13",)
    own = CliRunner().invoke(app, ["init", "--controller", "c1=" + node.format(2)])
    assert own.exit_code == 0
    assert context.controller_addresses() == ("127.0.0.1:23",), "./rollcall.toml, as the controller command takes it"
    monkeypatch.setenv(context.ENVIRONMENT, "h1:1, h2:2")
    assert context.controller_addresses() == ("h1:1", "h2:2")


def test_the_level_of_the_fleet_is_shown_and_raised(rollcall: Run) -> None:
    """An upgraded fleet says what is left to do, on the page that is looked at; the order goes to the leader."""
    bodies: list[Any] = []
    upgraded = replace(fleet_status("c2"), controller=replace(controller_status("c2", leads=True), feature_level=2))
    shown = rollcall(SETS | {("c2", "GET", "/v1/status"): upgraded, ("c1", "GET", "/v1/status"): upgraded}, "status")
    ran = rollcall({("c1", "POST", "/v1/feature-level"): noted(bodies, Done())}, "raise-level", "--yes")

    assert "Feature level 1 of 2: when every controller is upgraded, raise it with: rollcall raise-level." in shown.out
    assert (ran.code, bodies[0].get("level")) == (0, None)


def test_a_pause_names_its_set_and_its_end(rollcall: Run) -> None:
    """An empty set name must not pause the fleet."""
    script = SETS | everywhere("POST", f"{SET_PATH}/pause", Done()) | everywhere("POST", "/v1/resume", Done())

    ran = rollcall(script, "pause", "broker-a", "--for", "2h", "--reason", "new switch")
    assert (ran.code, ran.out.startswith("OK  elections of demo/broker-a are paused until 20")) == (0, True)
    assert rollcall(script, "resume", "--fleet").out.startswith("OK  elections of the fleet are held again")
    for wrong in (("pause", "--for", "2h"), ("pause", "broker-a", "--fleet", "--for", "2h"), ("resume",)):
        ran = rollcall(script, *wrong)
        assert (ran.code, "name a set, or say --fleet" in ran.err) == (2, True), wrong
    for wrong_time in ("8d", "0s", "2 weeks", "m"):
        ran = rollcall(script, "pause", "broker-a", "--for", wrong_time)
        assert (ran.code, wrong_time in ran.err) == (2, True)


def test_a_maintenance_is_of_a_replica_by_its_number_or_else_of_a_host(rollcall: Run) -> None:
    bodies: list[Any] = []
    note = noted(bodies, Done())
    ok = everywhere("POST", "/v1/maintenance", note) | everywhere("POST", "/v1/maintenance/end", note)
    for words, scope in (
        ("broker-a:2", {"host": "", "setKey": {"cluster": "demo", "name": "broker-a"}, "brokerId": 2}),
        ("10.0.0.5", {"host": "10.0.0.5", "setKey": None, "brokerId": None}),
        ("::1", {"host": "::1", "setKey": None, "brokerId": None}),
        ("[fe80::1]", {"host": "fe80::1", "setKey": None, "brokerId": None}),
    ):
        ran = rollcall(SETS | ok, "maintenance", "begin", words, "--for", "30m", "--reason", "new disk")
        assert (ran.code, bodies[-1]["scope"], bodies[-1]["spendsLast"]) == (0, scope, False), ran
        assert "elected by word only, and not missed" in ran.out
        ran = rollcall(SETS | ok, "maintenance", "end", words)
        assert (ran.code, bodies[-1]["scope"]) == (0, scope)


def test_a_maintenance_of_a_master_says_that_it_stays_master_and_how_to_move_it(rollcall: Run) -> None:
    master = next(one for one in set_status().replicas if one.is_master)
    host = master.address.rpartition(":")[0]
    ran = rollcall(SETS | everywhere("POST", "/v1/maintenance", Done()), "maintenance", "begin", host, "--for", "30m")

    assert f"It is master of 1 sets, and stays that. Move them with: rollcall drain {host}" in ran.out


def test_a_drain_shows_its_plan_with_the_answer_to_each_order_and_moves_nothing(rollcall: Run) -> None:
    preview = OrderPreview(freshness=freshness(), events=())
    script = SETS | everywhere("POST", f"{SET_PATH}/switchover", preview)

    ran = rollcall(script, "drain", "10.0.0.11", "--dry-run")
    assert (ran.code, ran.out.startswith("drain 10.0.0.11: 1 masters would be moved, 0 left where they are")) == (
        0,
        True,
    )
    assert "would be taken" in ran.out
    ran = rollcall(SETS, "drain", "10.0.0.11", "--dry-run", "--min-budget", "2")
    assert "it may lose 1 more replicas, at least 2 are wanted (--min-budget)" in ran.out
    ran = rollcall(SETS, "rebalance", "--dry-run", "-o", "json")
    assert json.loads(ran.out)["moves"] == []


def test_a_drain_of_a_host_that_nobody_is_on_is_wrong_use(rollcall: Run) -> None:
    ran = rollcall(SETS, "drain", "10.0.0.99")
    assert (ran.code, "hosts: 10.0.0.11, 10.0.0.12, 10.0.0.13" in ran.err) == (2, True)
    assert rollcall(SETS, "drain", "10.0.0.12").out.startswith("OK  drain 10.0.0.12: 0 masters moved")


def test_an_acknowledgement_ends_the_block_of_a_set_and_says_so_on_record(rollcall: Run) -> None:
    bodies: list[Any] = []
    script = SETS | everywhere("POST", f"{SET_PATH}/resume", noted(bodies, Done()))
    ran = rollcall(script, "acknowledge", "broker-a", "--reason", "new switch")
    assert (ran.code, bodies[-1]["reason"]) == (0, "acknowledged: new switch")
    assert ran.out.startswith("OK  demo/broker-a fails over again")
