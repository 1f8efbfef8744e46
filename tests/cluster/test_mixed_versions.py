"""
The last release and this program in one quorum, as during an upgrade: each leads in turn, and nobody diverges (R15).

The release has TLS on its Raft links only, and no URI names. So this program renews all certificates, and its processes
read a copy of the fleet file that says ``insecure``, as docs/upgrading.md has it.

The release is taken out of the history of this repository, and started from there by its own entry points. Where the
history does not have it (a shallow clone, a tarball) the test is skipped, and says so.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import our_environment, python_module, wait_until
from rollcall_ha.node.config import FLEET_FILE_NAME, load_fleet_file, split_address
from tests.support.fleet_story import Answer, await_authority, counted, curl, load
from tests.support.runtime_controller import broker_id_body, heartbeat_body, register_body

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
RELEASE = "18a65836a607f6904b83004f9bb7e7af2477944d"
"""The last one with feature level 1; a commit, because it has no tag."""
DEADLINE_S = 40.0
LEADER_TRIALS = 12
OLDER = "older.toml"
"""The fleet file as it was founded. It is the other one that has a new name in docs/upgrading.md: launcher, producer and
audit read rollcall.toml here, and have to know that ports are plain."""


def by_release(release: Path, module: str, *arguments: str) -> list[str]:
    """Command line of a module of the release, whose folders lie at the top: it had no namespace yet."""
    return ["env", f"PYTHONPATH={release}", *python_module(module.removeprefix("rollcall_ha."), *arguments)]


class MixedFleet(Fleet):
    """A fleet of which some nodes run the release that lies in ``release``."""

    release: Path
    older: set[str]

    def start(self, name: str) -> int:
        """As ``Fleet.start``; a node of ``older`` by the release's own code, with the file that it founded."""
        if name not in self.older:
            return super().start(name)
        module = "rollcall_ha.api.server" if name in self.file.controllers else "rollcall_ha.broker.server"
        section = self.file.controllers.get(name)
        addresses = (section.raft, section.broker, section.rest) if section is not None else ()
        argv = by_release(self.release, module, "--config", str(self.directory / OLDER), "--name", name)
        return self.processes.start(name, argv, ports=[split_address(address) for address in addresses])

    def upgrade(self, name: str) -> None:
        """A clean stop, and a start by this program on the same directory."""
        self.older.remove(name)
        self.terminate(name)
        self.restart(name)
        self.wait_live([name], deadline_s=DEADLINE_S)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release's files, from the history."""
    try:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", RELEASE], capture_output=True, check=False, timeout=DEADLINE_S
        )
    except FileNotFoundError:
        pytest.skip("git is not installed: the last release cannot be had")
    if archive.returncode != 0:
        pytest.skip(f"the history has no release {RELEASE[:7]}: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def prepare(directory: Path) -> None:
    """What docs/upgrading.md says of a fleet whose certificates have no URI names."""
    file = directory / FLEET_FILE_NAME
    for order in (
        ("renew", "--all"),
        ("issue", "admin", "--kind", "admin", "--into", str(directory / "tls")),
        ("issue", "client", "--kind", "client", "--into", str(directory / "tls")),
    ):
        arguments = ("certs", *order, "--config", str(file), "--authority-directory", str(directory / "tls"))
        command = python_module("rollcall_ha.cli.main", *arguments)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, env=our_environment())
    text = file.read_text()
    (directory / OLDER).write_text(text)
    file.write_text(text.replace("[fleet]\n", "[fleet]\ninsecure = true\n", 1))
    assert load_fleet_file(file).fleet.insecure


@pytest.fixture
def fleet(release: Path, tmp_path: Path) -> Iterator[MixedFleet]:
    """Three controllers and three brokers of the release, founded by it."""
    plan = Fleet.create(tmp_path / "plan", Layout())
    arguments = ["init", "--directory", str(tmp_path / "fleet"), "--name", plan.file.fleet.name]
    for name, one in plan.file.controllers.items():
        arguments += ["--controller", f"{name}={one.raft},{one.broker},{one.rest}"]
    for name, broker in plan.file.brokers.items():
        arguments += ["--broker", f"{name}={broker.listen},{broker.ha},{broker.health}"]
    subprocess.run(by_release(release, "rollcall_ha.cli.main", *arguments), check=True, timeout=DEADLINE_S)
    prepare(tmp_path / "fleet")
    with MixedFleet(tmp_path / "fleet") as found:
        found.release = release
        found.older = {*found.controllers, *found.brokers}
        found.up(deadline_s=DEADLINE_S)
        yield found


# --- asking -------------------------------------------------------------------------------------------------------------


def _post(fleet: MixedFleet, path: str, body: dict[str, Any]) -> Answer:
    """To the leader, whichever it is by now."""
    answers: list[Answer] = []

    def is_answered() -> bool:
        leader = fleet.leader(deadline_s=DEADLINE_S)
        answers[:] = [curl(fleet.rest(leader), path, body=body)]
        return answers[0].status not in (307, 503)

    wait_until(is_answered, deadline_s=DEADLINE_S, what=f"an answer to {path}")
    return answers[0]


def _done(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.document
    found: dict[str, Any] = answer.document
    return found


def _refusal(answer: Answer) -> str:
    return str(answer.document["code"])


def _drive(fleet: MixedFleet, name: str) -> None:
    """Every command of level 1 that REST takes, on a set of its own; refusals of some of them."""
    of_set, key = f"/v1/sets/demo/{name}", {"cluster": "demo", "name": name}
    registered = []
    for number in (1, 2, 3):
        _done(_post(fleet, "/v1/broker-ids", broker_id_body(number, name)))
        registered.append(_done(_post(fleet, "/v1/replicas", register_body(number, name, 3))))
        _done(_post(fleet, "/v1/heartbeat", heartbeat_body(number, name)))
    view = _view(fleet, name)
    master, other = view["master"], next(number for number in (1, 2, 3) if number != view["master"])
    alter = {
        "command": "AlterSyncStateSet", "setKey": key, "brokerId": master, "incarnation": f"{master:032x}",
        "masterEpoch": view["masterEpoch"], "seq": 1, "syncStateSetEpoch": view["syncStateSetEpoch"],
        "newSet": sorted({master, other}),
    }  # fmt: skip
    assert _done(_post(fleet, "/v1/sync-state-set", alter))["verdict"]["isAccepted"]
    assert _done(_post(fleet, "/v1/sync-state-set", alter))["verdict"]["isAccepted"], "the retry hears the verdict"
    assert _refusal(_post(fleet, "/v1/sync-state-set", {**alter, "newSet": [master]})) == "SEQUENCE_REUSED"
    assert _refusal(_post(fleet, f"{of_set}/elect", {})) == "MASTER_STILL_EXISTS"
    assert _refusal(_post(fleet, f"{of_set}/bootstrap", {"master": master})) == "NOT_BOOTSTRAPPABLE"
    _beat(fleet, name)
    _done(_post(fleet, f"{of_set}/elect", {"to": other, "reason": "drill"}))
    _beat(fleet, name)
    unclean = {"to": master, "acceptedLossBytes": 1_000_000}
    _post(fleet, f"{of_set}/elect-unclean", unclean)
    goodbye = {
        "command": "SayGoodbye", "setKey": key, "brokerId": other, "incarnation": f"{other:032x}",
        "sessionOrdinal": 1, "cleanMark": {"nonce": "n", "endOffset": 100},
    }  # fmt: skip
    _done(_post(fleet, "/v1/goodbye", goodbye))
    again = {**register_body(other, name, 3), "incarnation": f"{other + 16:032x}"}
    again["previousIncarnations"] = [f"{other:032x}"]
    again["replaces"] = {"incarnation": f"{other:032x}", "sessionOrdinal": 1}
    _done(_post(fleet, "/v1/replicas", again))
    assert _refusal(_post(fleet, f"{of_set}/clean", {"brokerIds": [77]})) == "UNKNOWN_REPLICA"
    _done(_post(fleet, f"{of_set}/clean", {"brokerIds": [3], "isUnclean": True}))
    _done(_post(fleet, f"{of_set}/clean", {"isUnclean": True}))
    assert _post(fleet, f"{of_set}/clean", {}).status != 200, "it was cleaned"
    assert _post(fleet, "/v1/sync-state-set", {**alter, "seq": 2}).status != 200, "it was cleaned"


def _beat(fleet: MixedFleet, name: str) -> None:
    for number in (1, 2, 3):
        _done(_post(fleet, "/v1/heartbeat", heartbeat_body(number, name)))


def _view(fleet: MixedFleet, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def has_master() -> bool:
        leader = fleet.leader(deadline_s=DEADLINE_S)
        answer = curl(fleet.rest(leader), f"/v1/sets/demo/{name}")
        if answer.status != 200:
            return False
        found[:] = [answer.document["set"]["view"]]
        return found[0]["master"] is not None

    wait_until(has_master, deadline_s=DEADLINE_S, what=f"{name} to have a master")
    return found[0]


IMPORT = {
    "replicas": [{"brokerId": 1, "address": "127.0.0.1:4001"}], "nextId": 2, "master": 1, "masterEpoch": 7,
    "syncStateSet": [1], "syncStateSetEpoch": 12,
}  # fmt: skip

NEWCOMER = {"name": "c9", "raft": "127.0.0.1:9", "broker": "127.0.0.1:10", "rest": "127.0.0.1:11"}


# --- comparing ----------------------------------------------------------------------------------------------------------


def _agree(fleet: MixedFleet) -> int:
    """
    Wait until every controller has applied the same entries, and compare what each has made of them; the index.

    Compared: the head of the chain of events, which covers every event before it byte for byte, and the view of every
    set. A program's own fields are left out where the other one has none.
    """
    told: dict[str, tuple[tuple[int, ...], str, str]] = {}

    def is_even() -> bool:
        told.update({name: _told(fleet.rest(name)) for name in fleet.controllers})
        # An event is shown when its journal is synced, which is later than its entry is applied.
        return len({places for places, _, _ in told.values()}) == 1

    wait_until(is_even, deadline_s=DEADLINE_S, what="all controllers to have applied the same entries")
    assert len({chain for _, chain, _ in told.values()}) == 1, f"the chains of events differ: {told}"
    assert len({views for _, _, views in told.values()}) == 1, f"the states differ: {told}"
    return next(iter(told.values()))[0][0]


def _told(endpoint: Endpoint) -> tuple[tuple[int, ...], str, str]:
    """The applied index with the place of the newest event, the chain's head there, and the views at that index."""
    status = curl(endpoint, "/v1/status?consistency=local&limit=500").document
    views = [_common(one["view"]) for one in status["sets"]]
    events = _all_events(endpoint)
    last = events[-1]
    places = (int(status["freshness"]["index"]), last["term"], last["index"], last["ordinal"])
    return places, str(last["chain"]), json.dumps(views, sort_keys=True)


def _common(view: dict[str, Any]) -> dict[str, Any]:
    ours = ("isStopping", "owner")
    members = [{name: value for name, value in one.items() if name not in ours} for one in view["members"]]
    # An order that is under way would be another state; none is given here.
    assert view.get("switchover") is None
    return {name: value for name, value in view.items() if name != "switchover"} | {"members": members}


def _all_events(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    mark = ""
    while True:
        page = curl(endpoint, f"/v1/events?limit=500{mark}").document
        found += page["events"]
        following = page["nextFrom"]
        if not page["events"] or following is None:
            return found
        mark = f"&from={following['term']}.{following['index']}.{following['ordinal']}"


def _digest(endpoint: Endpoint) -> str:
    """Of the state, which controllers of level 2 have; every controller has applied the same entries."""
    controller = curl(endpoint, "/v1/status?consistency=local&limit=1").document["controller"]
    assert controller["differing"] == []
    return str(controller["stateDigest"])


def _let_lead(fleet: MixedFleet, *, older: bool) -> str:
    """Let a controller of that program lead: one of the other program hangs until it is not the leader any more."""
    for _ in range(LEADER_TRIALS):
        leader = fleet.leader(deadline_s=DEADLINE_S)
        if (leader in fleet.older) is older:
            return leader
        fleet.stop(leader)
        await_authority(fleet, tuple(name for name in fleet.controllers if name != leader))
        fleet.cont(leader)
        fleet.wait_ready([leader], deadline_s=DEADLINE_S)
    raise AssertionError(f"no controller of the {'older' if older else 'newer'} program led in {LEADER_TRIALS} trials")


# --- the upgrade --------------------------------------------------------------------------------------------------------


def test_two_versions_share_a_quorum_and_the_level_is_raised_when_all_are_upgraded(fleet: MixedFleet) -> None:
    """Both lead, each takes every command of level 1; what level 2 brought is refused until it is raised."""
    key = fleet.set_key()
    with load(fleet) as work:
        fleet.upgrade("c3")
        _let_lead(fleet, older=True)
        _drive(fleet, "older-leads")
        compared = [_agree(fleet)]
        fleet.upgrade("c2")
        _let_lead(fleet, older=False)
        _drive(fleet, "newer-leads")
        assert _refusal(_post(fleet, "/v1/sets/demo/moving/import", IMPORT)) == "FEATURE_LEVEL"
        # An older controller could not read the members, and would be cut off with the first change.
        assert _refusal(_post(fleet, "/v1/controllers/add", NEWCOMER)) == "FEATURE_LEVEL"
        assert _refusal(_post(fleet, "/v1/controllers/remove", {"name": "c1"})) == "FEATURE_LEVEL"
        raising = _post(fleet, "/v1/feature-level", {})
        assert _refusal(raising) == "FEATURE_LEVEL"
        assert "c1 has level 1" in raising.document["detail"]
        compared.append(_agree(fleet))
        # A broker of this program asks to be let out before it stops, which is of level 2: it stops all the same.
        for name in fleet.brokers:
            fleet.upgrade(name)
            fleet.wait_ready([name], deadline_s=DEADLINE_S)
            fleet.wait_redundant(key, deadline_s=DEADLINE_S)
        master = fleet.broker_by_id(key, fleet.wait_redundant(key).view.master or BrokerId(0))
        fleet.terminate(master)
        fleet.restart(master)
        fleet.wait_redundant(key, deadline_s=DEADLINE_S)
        work.wait_more()
        compared.append(_agree(fleet))
        assert fleet.pid("c1") is not None, f"the older one stopped:\n{fleet.processes.tail('c1')}"
        fleet.upgrade("c1")
        assert _refusal(_post(fleet, "/v1/sets/demo/moving/import", IMPORT)) == "FEATURE_LEVEL"
        _done(_post(fleet, "/v1/feature-level", {"reason": "all upgraded"}))
        _done(_post(fleet, "/v1/sets/demo/moving/import", IMPORT))
        _drive(fleet, "all-upgraded")
        fleet.kill(fleet.broker_by_id(key, fleet.wait_redundant(key).view.master or BrokerId(0)))
        work.wait_more()
        compared.append(_agree(fleet))
    levels = {
        reached.status.controller.fleet_level for reached in fleet.client().survey() if reached.status is not None
    }
    kinds = {event["event"]["kind"] for event in _all_events(fleet.rest("c1"))}
    digests = {_digest(fleet.rest(name)) for name in fleet.controllers}
    counted(compared_at=compared, kinds=sorted(kinds), digests=sorted(digests))
    assert len(digests) == 1, "the controllers have made different states of the same entries"
    assert digests != {""}
    assert levels == {FEATURE_LEVEL}
    assert kinds >= {
        "fleet-initialised", "leadership-taken", "broker-id-granted", "replica-registered", "replica-silent",
        "goodbye-said", "master-elected", "sync-state-set-altered", "command-refused", "master-entered", "loss-graded",
        "milestone-reached", "replicas-cleaned", "feature-level-raised", "set-imported",
    }  # fmt: skip
