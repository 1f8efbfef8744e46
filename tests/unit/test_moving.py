"""Plans and their replay against controllers of docs/wire.md: ids stay, epochs only grow, nothing in use is touched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import Result

from rollcall_ha.api.rocketmq.moving.plan import Apply, CleanIds, Elect, Raise, Verb, Wipe, plan_export, plan_import
from rollcall_ha.api.rocketmq.moving.reading import Controllers, ForeignSet, ReadingError, names_from, split_addresses
from rollcall_ha.api.rocketmq.moving.replay import replay
from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.client.client import Client
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    Incarnation,
    MasterEpoch,
    ReplicaKind,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Condition, Done, MemberView, SetView
from rollcall_ha.controller.contract.values import ReplicaDescription
from rollcall_ha.controller.contract.views import OrderPreview
from tests.support import fake_controllers as ours
from tests.support.cli import CliRunner
from tests.support.fake_rocketmq import FakeBroker, FakeControllers, FakeSet, serving
from tests.support.runtime_controller import NAMES, running_group

KEY = SetKey(ClusterName("c1"), BrokerName("broker-a"))


def member(number: int, address: str = "", kind: ReplicaKind = ReplicaKind.ROCKETMQ) -> MemberView:
    return MemberView(
        broker_id=BrokerId(number),
        incarnation=Incarnation("i"),
        session_ordinal=SessionOrdinal(1),
        description=ReplicaDescription(address=address or f"127.0.0.1:{number}", ha_address="", kind=kind),
        is_alive=True,
        is_suspect=False,
    )


def our_view(
    *members: int, master: int | None = 1, epoch: int = 4, next_id: int = 0, condition: Condition = Condition.SERVING
) -> SetView:
    """A set of three RocketMQ brokers that runs here."""
    return replace(
        ours.set_status().view,
        set_key=KEY,
        master=None if master is None else BrokerId(master),
        master_epoch=MasterEpoch(epoch),
        members=tuple(member(number) for number in members or (1, 2, 3)),
        next_id=BrokerId(next_id or max(members or (3,)) + 1),
        condition=condition,
    )


@contextmanager
def running_fleet(
    epochs: tuple[int, ...] = (5, 6, 7), *, heard: tuple[int, ...] = (1, 2, 3)
) -> Iterator[tuple[FakeControllers, str, list[str]]]:
    """Controllers that run broker-a: master 1 in epoch 6, broker 3 not in sync; one broker per epoch in ``epochs``."""
    fake = FakeControllers()
    with contextmanager(_brokers)(epochs) as addresses, serving(fake.serve) as fake.address:
        fake.sets["broker-a"] = FakeSet(
            cluster="c1",
            next_id=4,
            ids={number: (address, "code") for number, address in enumerate(addresses, start=1)},
            master=1,
            epoch=6,
            members={1, 2},
            set_epoch=9,
        )
        for number in heard:
            fields = {"clusterName": "c1", "brokerName": "broker-a", "brokerId": str(number)}
            fake._heartbeat(fields)
        yield fake, fake.address, addresses


def _brokers(epochs: tuple[int, ...]) -> Iterator[list[str]]:
    if not epochs:
        yield []
        return
    broker = FakeBroker(name="broker-a", cluster="c1", epochs=(1, epochs[0]))
    with serving(broker.serve) as address, contextmanager(_brokers)(epochs[1:]) as others:
        yield [address, *others]


def read(address: str, **clusters: str) -> dict[str, ForeignSet]:
    with Controllers.connect((address,)) as controllers:
        return controllers.sets({name.replace("_", "-"): cluster for name, cluster in clusters.items()})


# --- import ----------------------------------------------------------------------------------------------------------


def test_set_is_read_with_everything_that_must_not_change() -> None:
    """Ids, next id, both epochs, who is in sync; a broker may know of a higher epoch than its controllers."""
    with running_fleet() as (_, address, brokers):
        (found,) = read(address, broker_a="").values()

    assert found.set_key == KEY
    assert [(r.broker_id, r.address, r.is_in_sync, r.is_alive, r.last_epoch) for r in found.replicas] == [
        (1, brokers[0], True, True, 5),
        (2, brokers[1], True, True, 6),
        (3, brokers[2], False, True, 7),
    ]
    assert (found.master, found.master_epoch, found.sync_state_set_epoch, found.next_id) == (1, 6, 9, 4)
    assert (found.sync_state_set, found.highest_epoch) == ((1, 2), 7)


def test_import_starts_above_every_epoch_that_anybody_showed() -> None:
    """The order names the highest; the controllers count on from there (``test_core_importing``)."""
    with running_fleet() as (_, address, _brokers):
        (line,) = plan_import(tuple(read(address, broker_a="").values()), {}, reason="move")

    assert (line.verb, line.reason) == (Verb.CREATE, "")
    assert line.order is not None
    assert (line.order.master, line.order.master_epoch, line.order.sync_state_set) == (1, 7, (1, 2))
    assert (line.order.next_id, line.order.sync_state_set_epoch, line.order.reason) == (4, 9, "move")


def test_what_would_be_a_guess_is_refused() -> None:
    """No master there, a dead one, one that is run here already."""
    with running_fleet(heard=(2, 3)) as (fake, address, _brokers):
        (dead,) = plan_import(tuple(read(address, broker_a="").values()), {})
        fake.sets["broker-a"].master = None
        (nobody,) = plan_import(tuple(read(address, broker_a="").values()), {})
    with running_fleet() as (_, address, _brokers):
        (here,) = plan_import(tuple(read(address, broker_a="").values()), {KEY: our_view()})
        moving = our_view(master=None, condition=Condition.WAITING_FOR_REPORTS)
        (again,) = plan_import(tuple(read(address, broker_a="").values()), {KEY: moving})
        cleaned = our_view(master=None, condition=Condition.CLEANED)
        (anew,) = plan_import(tuple(read(address, broker_a="").values()), {KEY: cleaned})

    assert [line.order for line in (dead, nobody, here)] == [None, None, None]
    assert "broker 1, is not alive under its controllers" in dead.reason
    assert "know no master" in nobody.reason
    assert "run here already" in here.reason
    assert (again.verb, anew.verb) == (Verb.REFRESH, Verb.CREATE)


def test_broker_that_does_not_answer_is_named() -> None:
    """Its epochs are those of its controllers then."""
    with running_fleet() as (fake, address, brokers):
        fake.sets["broker-a"].ids[3] = ("127.0.0.1:1", "code")
        (line,) = plan_import(tuple(read(address, broker_a="c1").values()), {})

    assert line.reason == "broker 3 did not say its epochs"
    assert line.order is not None
    assert line.order.master_epoch == 6
    assert len(brokers) == 3


def test_names_come_from_a_name_server_that_writes_bare_keys() -> None:
    """106 of Java."""
    with serving(FakeBroker(name="broker-a", cluster="c1", epochs=()).serve) as address:
        assert names_from(("127.0.0.1:1", address)) == {"broker-a": "c1"}
    assert split_addresses("a:1;b:2, c:3;") == ("a:1", "b:2", "c:3")


def test_nobody_who_answers_is_said_with_everybody_that_was_asked() -> None:
    """Two dead addresses, two reasons."""
    with pytest.raises(ReadingError, match=r"127\.0\.0\.1:1: .*; nonsense: "):
        Controllers.connect(("127.0.0.1:1", "nonsense"))
    with pytest.raises(ReadingError, match="no name server"):
        names_from(("127.0.0.1:1",))


# --- export ----------------------------------------------------------------------------------------------------------


def export(address: str, view: SetView) -> tuple[tuple[Any, ...], MasterEpoch]:
    """Plan and replay; the steps and the epoch there afterwards."""
    with Controllers.connect((address,)) as controllers:
        line = plan_export(view, controllers.sets({"broker-a": "c1"}).get("broker-a"))
        assert line.refusal == ""
        return line.steps, replay(controllers, line)


def test_empty_controllers_know_ids_and_a_higher_epoch_and_wait_for_our_master() -> None:
    """Whoever else comes first is not elected; gaps stay gaps, and the next newcomer gets the number that is next here."""
    fake = FakeControllers()
    with serving(fake.serve) as fake.address:
        steps, epoch = export(fake.address, our_view(1, 3, 6, master=3, epoch=250, next_id=8))
        found = fake.sets["broker-a"]
        assert [type(step) for step in steps] == [*[Apply] * 7, Elect, CleanIds, Raise]
        assert {number: address for number, (address, _) in found.ids.items()} == {
            1: "127.0.0.1:1",
            3: "127.0.0.1:3",
            6: "127.0.0.1:6",
        }
        assert (epoch, found.epoch, found.next_id, found.master, found.members) == (251, 251, 8, None, {3})
        with Controllers.connect((fake.address,)) as controllers:
            fields: dict[str, object] = {"clusterName": "c1", "brokerName": "broker-a", "brokerId": 1}
            assert controllers.ask(1002, fields).code == 2012
            controllers.ask(904, fields | {"brokerId": 3})
            answer = controllers.ask(1002, fields | {"brokerId": 3})
        assert (answer.code, found.master, found.epoch) == (0, 3, 252)


def test_export_goes_on_from_what_is_there() -> None:
    """The same again does nothing; another epoch is raised; another master or address begins anew."""
    fake = FakeControllers()
    with serving(fake.serve) as fake.address:
        export(fake.address, our_view())
        again, _ = export(fake.address, our_view())
        assert again == ()
        raised, epoch = export(fake.address, our_view(epoch=9))
        assert ([type(step) for step in raised], epoch) == ([Raise], 10)
        moved, epoch = export(fake.address, our_view(master=2, epoch=10))
        assert ([type(step) for step in moved], epoch) == ([Wipe, Apply, Apply, Apply, Elect, Raise], 11)
        assert fake.sets["broker-a"].members == {2}


def test_controllers_that_run_the_set_are_not_touched() -> None:
    """They have elected: it is theirs."""
    with running_fleet() as (fake, address, _brokers):
        before = repr(fake.sets)
        with Controllers.connect((address,)) as controllers:
            line = plan_export(our_view(), controllers.sets({"broker-a": "c1"})["broker-a"])
        assert "run it already: broker 1 is master there in epoch 6" in line.refusal
        assert line.steps == ()
        assert repr(fake.sets) == before


def test_broker_that_came_too_early_ends_the_export() -> None:
    """An election that was to fail succeeds: from here on the set is theirs."""
    fake = FakeControllers()
    with serving(fake.serve) as fake.address, Controllers.connect((fake.address,)) as controllers:
        line = plan_export(our_view(), None)
        controllers.ask(904, {"clusterName": "c1", "brokerName": "broker-a", "brokerId": 1})
        with pytest.raises(ReadingError, match="listens to those controllers already"):
            replay(controllers, line)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (replace(our_view(), members=(member(1), member(2, kind=ReplicaKind.NATIVE))), "brokers 2 are no RocketMQ"),
        (our_view(master=None), "has no master here"),
        (our_view(epoch=3_145_728), "takes 3145728 requests, 100000 are allowed"),
    ],
)
def test_what_cannot_be_exported_is_refused(view: SetView, says: str) -> None:
    """With the reason and, where there is one, the remedy."""
    assert says in plan_export(view, None).refusal


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command against a script of our controllers."""

    def run(view: SetView | None, *arguments: str, busy: bool = False) -> Result:
        status = () if view is None else (replace(ours.set_status(), view=view),)
        script = ours.everywhere("GET", "/v1/sets", ours.set_page(*status))

        def imported(request: httpx.Request) -> httpx.Response:
            is_dry = msgspec.json.decode(request.content).get("dryRun", False)
            return ours.answer(OrderPreview(freshness=ours.freshness(), events=()) if is_dry else Done())

        script |= ours.everywhere("POST", "/v1/sets/c1/broker-a/import", imported)
        if busy:
            script["c1", "GET", "/v1/sets"] = ours.problem(503, "NO_ANSWER", leader="c2")
        transport = ours.FakeControllers(script).transport()
        monkeypatch.setattr(context, "make_client", lambda: Client(ours.NAMES, transport=transport))
        return CliRunner().invoke(app, list(arguments))

    return run


def test_import_shows_what_it_reads_and_does(rollcall: Callable[..., Result]) -> None:
    """First dry, then for good; JSON for programs."""
    with running_fleet() as (_, address, brokers):
        options = ("import", "rocketmq", "--controllers", address)
        dry = rollcall(None, *options, "--namesrv", brokers[0], "--dry-run")
        done = rollcall(None, *options, "--set", "broker-a", "-o", "json")

    assert (dry.exit_code, done.exit_code) == (0, 0), dry.output + done.output
    lines = dry.stdout.splitlines()
    assert lines[0].startswith("WOULD  import 1 sets")
    assert lines[3].split() == ["c1/broker-a", "create", "1", "7", "{1,2}", "{1,2,3}", "4"]
    assert json.loads(done.stdout)["items"][0]["order"]["masterEpoch"] == 7


def test_the_dry_run_of_an_import_ended_where_the_leader_took_longer_than_a_second(
    rollcall: Callable[..., Result],
) -> None:
    """A follower gives up then; the leader, asked itself, has longer."""
    with running_fleet() as (_, address, brokers):
        options = ("import", "rocketmq", "--controllers", address, "--namesrv", brokers[0], "--dry-run")
        assert rollcall(None, *options, busy=True).exit_code == 0


def test_import_says_where_it_stops(rollcall: Callable[..., Result]) -> None:
    """Wrong use, unreachable, refused: each with its exit code."""
    with running_fleet() as (_, address, _brokers):
        options = ("import", "rocketmq", "--controllers", address)
        assert rollcall(None, *options).exit_code == 2
        assert rollcall(None, *options, "--set", "stranger").exit_code == 2
        refused = rollcall(our_view(), *options, "--set", "c1/broker-a")
        assert (refused.exit_code, "run here already" in refused.stdout) == (1, True)
    assert rollcall(None, "import", "rocketmq", "--controllers", "127.0.0.1:1", "--set", "x").exit_code == 4


def test_export_asks_before_it_writes(rollcall: Callable[..., Result]) -> None:
    """A script says --yes; a dry run needs no answer and writes nothing."""
    fake = FakeControllers()
    with serving(fake.serve) as fake.address:
        options = ("export", "rocketmq", "--controllers", fake.address)
        dry = rollcall(our_view(), *options, "--dry-run")
        unasked = rollcall(our_view(), *options)
        assert (dry.exit_code, unasked.exit_code, fake.sets) == (0, 2, {}), dry.output + unasked.output
        done = rollcall(our_view(), *options, "--yes", "--set", "broker-a")
        assert done.exit_code == 0, done.output
        assert "3 x apply, elect, raise" in done.stdout
        assert fake.sets["broker-a"].epoch == 5
        assert rollcall(our_view(), *options, "--set", "stranger").exit_code == 2
        assert rollcall(our_view(master=None), *options).exit_code == 1


# --- REST ------------------------------------------------------------------------------------------------------------


def test_import_by_rest_is_committed_once_and_refused_when_it_is_nonsense(tmp_path: Path) -> None:
    """POST .../import: 200, again 200, 422 for a body that cannot be, 409 for older news."""
    body: dict[str, Any] = {
        "replicas": [{"brokerId": number, "address": f"127.0.0.1:{number}"} for number in (2, 1)],
        "nextId": 3,
        "master": 1,
        "masterEpoch": 7,
        "syncStateSet": [2, 1],
        "syncStateSetEpoch": 4,
    }

    async def main() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect("c1")
            path = "/v1/sets/c1/broker-a/import"
            for _ in range(2):
                answer = await leader.http.post(path, json=body)
                assert answer.status_code == 200, answer.text
            view = (await leader.http.get("/v1/sets/c1/broker-a")).json()["set"]["view"]
            assert (view["condition"], view["masterEpoch"], view["nextId"]) == ("waiting-for-reports", 7, 3)
            assert (await leader.http.post(path, json=body | {"masterEpoch": 6})).status_code == 409
            assert (await leader.http.post(path, json=body | {"master": 9})).status_code == 422
            assert (await leader.http.post(path, json={"master": 1})).status_code == 422
            assert SyncStateSetEpoch(view["syncStateSetEpoch"]) == 0

    asyncio.run(main())
