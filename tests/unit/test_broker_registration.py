"""Registration: what a try is made against, and what becomes of it when that has moved."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollcall_ha.broker.core.durable import STARTS_KEPT, Identity, ProcessIdentity, ProcessStarts
from rollcall_ha.broker.core.registration import (
    MOVED_TRIES_MAX,
    Blocked,
    Ended,
    Opened,
    PersistIdentity,
    Registration,
    RegistrationAction,
    ReplicaFacts,
)
from rollcall_ha.broker.identity import remember
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplyBrokerId, RegisterReplica
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, RegisterCode, SessionOrdinal
from rollcall_ha.controller.contract.replies import Refused, Registered
from rollcall_ha.controller.contract.values import Positions, RegisteredAs, StoredView
from tests.support.core_builders import NOTHING, THREE, Fleet, positions, stored

FLEET = Fleet().serving()
IDENTITY = Identity(
    cluster=FLEET.key.cluster, broker_name=FLEET.key.name, register_code=RegisterCode("code-2"), broker_id=BrokerId(2)
)


def registration(*lives: str, boot: str = "boot-1") -> Registration:
    """Of replica 2, in its life ``me`` on ``boot``, on a directory that has lived as ``lives``."""
    facts = ReplicaFacts(
        set_key=FLEET.key,
        process=ProcessIdentity(
            incarnation=Incarnation("me"),
            boot_id=boot,
            store_id="store-2",
            previous_incarnations=tuple(map(Incarnation, lives)),
        ),
        description=FLEET.registration(2).description,
        configuration=THREE,
        clean_mark=None,
        new_register_code=RegisterCode("unused"),
    )
    return Registration(facts, IDENTITY)


def asked(actions: list[RegistrationAction]) -> RegisterReplica:
    (action,) = actions
    assert isinstance(action, RegisterReplica)
    return action


def moved(registered: RegisteredAs | None) -> Refused:
    return Refused(code=RefusalCode.EVIDENCE_MOVED, reason="", hint="", registered=registered)


def as_of(incarnation: str, ordinal: int) -> RegisteredAs:
    return RegisteredAs(incarnation=Incarnation(incarnation), session_ordinal=SessionOrdinal(ordinal))


def test_the_first_try_replaces_the_last_life_of_the_directory() -> None:
    """The usual restart costs one entry."""
    first = asked(registration("a", "b").connected(NOTHING, None))

    assert first.replaces == as_of("b", 0)
    assert first.previous_incarnations == ("a", "b")
    assert asked(registration().connected(NOTHING, None)).replaces is None


def test_a_refused_try_is_made_again_against_what_is_registered() -> None:
    """At once, without a pause: an answer was lost, or the last life never registered."""
    machine = registration("a", "b")
    first = asked(machine.connected(NOTHING, None))

    again = asked(machine.answered(moved(as_of("a", 7))))

    assert again.replaces == as_of("a", 7)
    assert again.positions == first.positions
    assert asked(machine.answered(moved(None))).replaces is None


def test_two_processes_under_one_identity_do_not_chase_each_other() -> None:
    """After some tries in a row comes a pause; after it, the count begins anew."""
    machine = registration("a")
    machine.connected(NOTHING, None)
    for number in range(1, MOVED_TRIES_MAX):
        asked(machine.answered(moved(as_of("other", number))))

    assert isinstance(machine.answered(moved(as_of("other", 9)))[0], Blocked)
    assert asked(machine.connected(NOTHING, None)).replaces == as_of("other", 9)


def test_s12_a_process_that_has_ended_asks_on_and_as_itself_alone() -> None:
    """Forgotten behind 16 newer ones it is told what to register against, and would fence the living process."""
    machine = registration("a")
    first = asked(machine.connected(NOTHING, None))
    ended = Refused(code=RefusalCode.FENCED_INCARNATION, reason="", hint="")
    assert machine.answered(ended) == [Ended(refusal=ended)]

    assert asked(machine.connected(NOTHING, None)).replaces == first.replaces
    assert isinstance(machine.answered(moved(as_of("other", 9)))[0], Blocked)
    assert asked(machine.connected(NOTHING, None)).replaces == first.replaces


def test_a_further_session_replaces_the_session_before() -> None:
    """A duplicate of an earlier one is refused (S33)."""
    machine = registration("a")
    machine.connected(NOTHING, None)
    reply = FLEET.want(FLEET.do(FLEET.registration(2, incarnation="me")), Registered)
    assert isinstance(machine.answered(reply)[0], Opened)
    machine.disconnected()

    assert asked(machine.connected(NOTHING, None)).replaces == as_of("me", reply.session_ordinal)


def test_r3_each_life_names_the_boot_that_it_runs_on() -> None:
    """
    A life on boot 1, the power goes, two lives on boot 2: the last one names boot 2.

    Named boot 1, as its directory was registered before the power went, it would be judged "same boot".
    """
    boots = [
        asked(registration(*lives, boot=boot).connected(NOTHING, None)).boot_id
        for lives, boot in (((), "boot-1"), (("a",), "boot-2"), (("a", "b"), "boot-2"))
    ]

    assert boots == ["boot-1", "boot-2", "boot-2"]


def test_a_start_is_on_the_disk_before_it_is_used(tmp_path: Path) -> None:
    """A copy of the directory that is put back later does not know the lives that came after it (R3)."""
    files = ReplicaFiles(tmp_path)
    first = remember(files, FLEET.key).process
    second = remember(files, FLEET.key).process

    assert first.previous_incarnations == ()
    assert second.previous_incarnations == (first.incarnation,)
    assert files.starts.load() == ProcessStarts(incarnations=(first.incarnation, second.incarnation))


def test_the_list_of_lives_is_bounded() -> None:
    """The newest stay."""
    starts = ProcessStarts()
    for number in range(STARTS_KEPT + 2):
        starts = starts.with_start(Incarnation(str(number)))

    assert starts.incarnations == tuple(str(number) for number in range(2, STARTS_KEPT + 2))


class Power(Exception):
    """It goes."""


class Directory:
    """What a broker's disk holds, over its lives. ``Power`` strikes at the step that a test chooses."""

    def __init__(self, code: str, dies_at: int | None = None) -> None:
        self.identity: Identity | None = None
        self.steps_left = dies_at
        self._code = code
        self._lives = 0

    def _step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Power

    def live(self, fleet: Fleet) -> BrokerId:
        """One life, from its start to its session; each step is done, or done and not heard of, or not done."""
        self._lives += 1
        facts = ReplicaFacts(
            set_key=fleet.key,
            process=ProcessIdentity(
                incarnation=Incarnation(f"{self._code}.{self._lives}"), boot_id="boot-1", store_id=self._code
            ),
            description=fleet.registration(1).description,
            configuration=THREE,
            clean_mark=None,
            new_register_code=RegisterCode(f"{self._code}-drawn-{self._lives}"),
        )
        machine = Registration(facts, self.identity)
        waiting = machine.connected(NOTHING, None)
        while waiting:
            action = waiting.pop(0)
            self._step()
            if isinstance(action, PersistIdentity):
                self.identity = action.identity
                self._step()
                waiting += machine.persisted(action.identity, NOTHING, None)
            elif isinstance(action, ApplyBrokerId | RegisterReplica):
                reply = fleet.do(action)
                self._step()
                waiting += machine.answered(reply)
            else:
                assert isinstance(action, Opened), action
        assert machine.broker_id is not None
        return machine.broker_id


@pytest.mark.parametrize("dies_at", range(10))
def test_s62_a_crash_at_any_step_leaks_no_id_and_shares_none(dies_at: int) -> None:
    """S62: before, between and behind each durable write and each answer; the same directory gets the same id."""
    fleet = Fleet()
    first = Directory("a", dies_at)
    with suppress(Power):
        first.live(fleet)
    first.steps_left = None
    other = Directory("b").live(fleet)
    again = first.live(fleet)

    assert {other, again} == {1, 2}
    assert first.live(fleet) == again
    assert fleet.set.next_id == 3


@pytest.mark.parametrize(
    "code", [RefusalCode.BROKER_ID_INVALID, RefusalCode.NEED_TO_BE_REGISTERED, RefusalCode.TOMBSTONED]
)
def test_r7_an_empty_replica_whose_id_is_anothers_waited_for_a_person_to_empty_it(code: RefusalCode) -> None:
    machine = registration("a")
    asked(machine.connected(NOTHING, None))

    (dropped,) = machine.answered(Refused(code=code, reason="", hint=""))

    assert dropped == PersistIdentity(identity=replace(IDENTITY, broker_id=None))
    (question,) = machine.persisted(dropped.identity, NOTHING, None)
    assert isinstance(question, ApplyBrokerId)
    assert question.register_code == IDENTITY.register_code


@pytest.mark.parametrize(
    ("holds", "view"), [(positions(1, epoch=1), None), (NOTHING, stored(3, 1, 1, 2)), (NOTHING, stored(0, 0, 1, 2))]
)
def test_r7_a_replica_that_has_a_record_or_knew_a_set_keeps_its_id_until_a_person_has_looked(
    holds: Positions, view: StoredView | None
) -> None:
    machine = registration("a")
    asked(machine.connected(holds, view))

    (answer,) = machine.answered(Refused(code=RefusalCode.BROKER_ID_INVALID, reason="", hint=""))

    assert isinstance(answer, Blocked)
