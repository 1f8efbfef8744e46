"""What hooks are told of each event: types, values as in history, stable ids, nothing twice."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.controller.contract.commands import CleanReplicas, PauseElections, RecordMilestones, ResumeElections
from rollcall_ha.controller.contract.consuming import GroupLine, GroupPage, SetRead
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName
from rollcall_ha.controller.contract.replies import Done, Elected
from rollcall_ha.controller.contract.values import Milestone, Phase, SilenceCause
from rollcall_ha.controller.contract.views import CertificateStatus, ControllerStatus
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.hooks import notices as module
from rollcall_ha.hooks.notices import Kind, Notice, SetMemory, Told, notices_of
from rollcall_ha.hooks.server import LAGGING_MAX, due_certificates, due_lags
from tests.support.core_builders import FLEET, SET_A, Fleet
from tests.support.core_fleets import ONE, TIMEOUT, alone, failed_over
from tests.support.fake_controllers import controller_status
from tests.unit.test_core_flaps import ALICE, fail_over, flapping

DAY_MS = 86_400_000


def told(records: list[EventRecord], before: SetMemory | None = None) -> list[Notice]:
    """Everything that the events of one set tell; the memory is written and read between each two, as in a store."""
    memory, found = before or SetMemory(), list[Notice]()
    for record in records:
        after, notices = notices_of(record, memory)
        found += notices
        memory = SetMemory() if after is None else msgspec.json.decode(msgspec.json.encode(after), type=SetMemory)
    return found


def of_type(notices: list[Notice], *types: str) -> list[Notice]:
    return [notice for notice in notices if notice.type in types]


def data(notice: Notice) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(msgspec.json.encode(notice))["data"]
    return found


def serve(fleet: Fleet, epoch: int, winner: int, observed_us: int) -> None:
    """The winner says that it takes sends."""
    milestones = tuple(
        Milestone(
            master_epoch=fleet.set.master_epoch,
            phase=phase,
            elapsed_us=elapsed_us,
            broker_id=broker_id,
            incarnation=None if broker_id is None else fleet.set.master_incarnation,
            observed_us=observed_us,
        )
        for phase, elapsed_us, broker_id in (
            (Phase.COMMITTED, 2_000, None),
            (Phase.NOTIFIED, 2_500, None),
            (Phase.PROMISED, 300, BrokerId(winner)),
            (Phase.ROLE_APPLIED, 900, BrokerId(winner)),
            (Phase.SERVING, 1_500, BrokerId(winner)),
        )
    )
    assert fleet.set.master_epoch == epoch
    fleet.do(RecordMilestones(set_key=SET_A, milestones=milestones))


def test_a_failover_is_told_when_it_is_decided_and_when_it_serves_with_the_outage_of_history() -> None:
    fleet = failed_over()
    serve(fleet, 2, 2, 61_000)
    row = history_of(fleet.records)[0]
    elected, serving = of_type(told(fleet.records), "master-elected", "master-serving")[-2:]

    assert (elected.type, elected.kind, serving.type, serving.kind) == (
        "master-elected",
        Kind.ELECTIONS,
        "master-serving",
        Kind.SERVING,
    )
    assert elected.event == row.event
    before, after = data(elected), data(serving)
    assert (before["totalUs"], before["totalUsMax"]) == (None, None)
    assert (after["totalUs"], after["totalUsMax"]) == (row.total_us, row.total_us_max)
    assert after["totalUs"] == 61_000
    for value in (before, after):
        assert value["fromMaster"] == 1
        assert value["toMaster"] == row.to_master == 2
        assert value["masterEpoch"] == row.master_epoch == 2
        assert value["cause"] == row.cause == "no heartbeat for 3.1 s"
        assert value["kind"] == "failover"
    assert after["missing"] == [phase.value for phase in row.missing]
    winner = fleet.replica(2).description
    assert winner is not None
    assert after["toAddress"] == winner.address


def test_serving_is_told_once_however_often_it_is_reported() -> None:
    fleet = failed_over()
    for _ in range(3):
        serve(fleet, 2, 2, 61_000)
    assert len(of_type(told(fleet.records), "master-serving")) == 1


def test_the_same_events_give_the_same_ids_and_no_two_notices_share_one() -> None:
    fleet = failed_over()
    serve(fleet, 2, 2, 61_000)
    first, second = told(fleet.records), told(fleet.records)
    assert [msgspec.json.encode(one) for one in first] == [msgspec.json.encode(one) for one in second]
    assert len({one.id for one in first}) == len(first)


def test_an_unproven_loss_is_told_and_a_proven_one_is_not() -> None:
    proven, refuted = failed_over(), failed_over(released=150)
    assert of_type(told(proven.records), "loss-graded") == []
    (loss,) = of_type(told(refuted.records), "loss-graded")
    assert (data(loss)["grade"], data(loss)["boundBytes"], data(loss)["masterEpoch"]) == ("refuted", 50, 2)


def test_exposure_begins_with_one_member_and_ends_with_its_length() -> None:
    fleet = alone()
    fleet.passed_ms += 5_000
    fleet.do(fleet.alter(1, 2, seq=2))
    exposed, covered = of_type(told(fleet.records), "set-exposed", "set-covered")[-2:]
    assert (exposed.type, data(exposed)["syncStateSet"], data(exposed)["expectedReplicas"]) == ("set-exposed", [1], 3)
    assert covered.type == "set-covered"
    took_ms = data(covered)["exposedMs"]
    assert isinstance(took_ms, int)
    assert 5_000 <= took_ms < 5_100


def test_a_set_of_one_replica_is_not_called_exposed() -> None:
    fleet = Fleet().serving(replicas=(1,), configuration=ONE)
    assert of_type(told(fleet.records), "set-exposed", "set-covered") == []


def test_a_set_that_flaps_is_told_when_it_is_blocked_when_it_waits_and_when_it_is_acknowledged() -> None:
    fleet = flapping(flap_failovers=2)
    for _ in range(3):
        fail_over(fleet, SilenceCause.TIMEOUT)
    fleet.apply([fleet.operation(ResumeElections(set_key=SET_A), requested_by=ALICE)])
    found = of_type(told(fleet.records), "set-flapping", "set-waits", "set-flapping-ended")
    assert [one.type for one in found] == ["set-flapping", "set-waits", "set-flapping-ended"]
    assert "2 failovers by timeout" in str(data(found[0])["reason"])
    assert {one.lane for one in found} == {str(SET_A)}


def test_a_persons_pause_is_not_called_flapping() -> None:
    fleet = Fleet().serving()
    order = PauseElections(set_key=SET_A, expires_at_ms=1_600_000, reason="work")
    assert fleet.apply([fleet.operation(order, requested_by=ALICE)]).replies[0] == Done()
    fleet.apply([fleet.operation(ResumeElections(set_key=SET_A), requested_by=ALICE)])
    assert of_type(told(fleet.records), "set-flapping", "set-flapping-ended") == []


def test_a_cleaned_set_is_forgotten() -> None:
    fleet = Fleet().serving()
    fleet.do(CleanReplicas(set_key=SET_A, broker_ids=(), is_unclean=True))
    memory: SetMemory | None = SetMemory()
    for record in fleet.records:
        memory, _ = notices_of(record, memory or SetMemory())
    assert memory is None


def test_an_election_without_anybody_is_told() -> None:
    fleet = Fleet().serving()
    for broker_id in (2, 3):
        fleet.silence(broker_id)
    fleet.silence(1)
    answer = fleet.elect(evidence=fleet.evidence(detection=TIMEOUT))
    assert not isinstance(answer, Elected)
    (failed,) = of_type(told(fleet.records), "election-failed")
    assert data(failed)["fromMaster"] == 1


def certificates(*, ends_in_days: float) -> tuple[ControllerStatus, ...]:
    one = CertificateStatus(
        name="rollcall://demo/broker/broker-a-1",
        serial="4f",
        expires_at_ms=int(1_000 * DAY_MS + ends_in_days * DAY_MS),
        expires_in_ms=0,
    )
    return tuple(
        msgspec.structs.replace(controller_status(name, leads=False), certificates=(one,)) for name in ("c1", "c2")
    )


@pytest.mark.parametrize(("ends_in_days", "said"), [(31, None), (29, 30), (6.5, 7), (0.5, 1), (-3, 1)], ids=str)
def test_a_certificate_is_said_once_for_the_smallest_limit_that_it_has_passed(
    ends_in_days: float, said: int | None
) -> None:
    controllers = certificates(ends_in_days=ends_in_days)
    remembered, found = due_certificates(controllers, (30, 7, 1), frozenset(), fleet=FLEET, now_ms=1_000 * DAY_MS)
    assert [data(one)["days"] for one in found] == ([] if said is None else [said])
    assert [one.kind for one in found] == [Kind.CERTIFICATES] * len(found)
    again = due_certificates(controllers, (30, 7, 1), frozenset(remembered), fleet=FLEET, now_ms=1_000 * DAY_MS)
    assert again == ([], [])
    if found:
        assert data(found[0])["toldBy"] == ControllerName("c1")


def lags(*found: tuple[str, int], trouble: str = "") -> GroupPage:
    lines = (GroupLine(group=name, set_key=SET_A, members=1, topics=1, lag=lag, stuck_queues=1) for name, lag in found)
    return GroupPage(read=(SetRead(set_key=SET_A, trouble=trouble),), groups=tuple(lines))


def said(page: GroupPage, told: list[str]) -> tuple[list[str], list[tuple[str, object, object]]]:
    lagging, found = due_lags(page, 100, frozenset(told), fleet=FLEET, now_ms=7)
    assert {one.kind for one in found} <= {Kind.LAG}
    return lagging, [(one.type, data(one)["group"], data(one)["lag"]) for one in found]


def test_a_group_is_said_once_when_it_crosses_the_limit_and_once_when_it_has_caught_up() -> None:
    assert said(lags(("g", 60), ("g", 50), ("h", 100)), []) == (["g"], [("group-lags", "g", 110)])
    assert said(lags(("g", 111)), ["g"]) == (["g"], [])
    assert said(lags(("g", 60)), ["g"]) == (["g"], []), "near the limit it would be said again and again"
    assert said(lags(("g", 50)), ["g"]) == ([], [("group-caught-up", "g", 50)])
    assert said(lags(), ["g"]) == ([], [("group-caught-up", "g", 0)]), "it was deleted"
    assert said(lags(trouble="away"), ["g"]) == (["g"], []), "a set that does not answer may have its messages"


def test_the_groups_that_lag_most_are_said_and_no_more_than_sixteen() -> None:
    lagging, found = said(lags(*((f"g{number:02}", 200 + number) for number in range(20))), ["z"])
    assert [name for _, name, _ in found] == ["z", *(f"g{number:02}" for number in range(19, 3, -1))]
    assert len(lagging) == LAGGING_MAX


def test_the_page_has_every_type_and_field_of_the_payload() -> None:
    page = (Path(__file__).parents[2] / "docs/hooks.md").read_text()
    source = Path(module.__file__).read_text()
    types = set(re.findall(r'"((?:master|election|loss|writes|set|certificate|record|group|gap)-[a-z-]+)"', source)) | {
        "test"
    }
    kinds: list[type[msgspec.Struct]] = [Notice, *Told.__subclasses__()]
    fields = {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)}
    assert {name for name in types | fields if f"`{name}`" not in page} == set()
    assert {kind.value for kind in Kind if f"`{kind}`" not in page} == set()
