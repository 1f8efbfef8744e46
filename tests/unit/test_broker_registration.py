"""Registration: what a try is made against, and what becomes of it when that has moved."""

from __future__ import annotations

from pathlib import Path

from broker.core.durable import LIVES_KEPT, Identity, Lives, ProcessIdentity
from broker.core.registration import (
    MOVED_TRIES_MAX,
    AskToRegister,
    Blocked,
    Opened,
    Registration,
    RegistrationAction,
    ReplicaFacts,
)
from broker.identity import remember
from broker.marks import ReplicaFiles
from controller.contract.codes import RefusalCode
from controller.contract.commands import RegisteredAs, RegisterReplica
from controller.contract.ids import BrokerId, Incarnation, RegisterCode, SessionOrdinal
from controller.contract.replies import Refused, Registered
from tests.support.core_builders import NOTHING, THREE, Fleet

FLEET = Fleet().serving()
IDENTITY = Identity(
    cluster=FLEET.key.cluster, broker_name=FLEET.key.name, register_code=RegisterCode("code-2"), broker_id=BrokerId(2)
)


def registration(*lives: str) -> Registration:
    """Of replica 2, in its life ``me``, on a directory that has lived as ``lives``."""
    facts = ReplicaFacts(
        set_key=FLEET.key,
        process=ProcessIdentity(
            incarnation=Incarnation("me"),
            boot_id="boot-1",
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
    assert isinstance(action, AskToRegister)
    return action.command


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


def test_a_further_session_replaces_the_session_before() -> None:
    """A duplicate of an earlier one is refused (S33)."""
    machine = registration("a")
    machine.connected(NOTHING, None)
    reply = FLEET.want(FLEET.do(FLEET.registration(2, incarnation="me")), Registered)
    assert isinstance(machine.answered(reply)[0], Opened)
    machine.disconnected()

    assert asked(machine.connected(NOTHING, None)).replaces == as_of("me", reply.session_ordinal)


def test_a_start_is_on_the_disk_before_it_is_used(tmp_path: Path) -> None:
    """A copy of the directory that is put back later does not know the lives that came after it (R3)."""
    files = ReplicaFiles(tmp_path)
    first = remember(files, FLEET.key).process
    second = remember(files, FLEET.key).process

    assert first.previous_incarnations == ()
    assert second.previous_incarnations == (first.incarnation,)
    assert files.lives.load() == Lives(incarnations=(first.incarnation, second.incarnation))


def test_the_list_of_lives_is_bounded() -> None:
    """The newest stay."""
    lives = Lives()
    for number in range(LIVES_KEPT + 2):
        lives = lives.begun(Incarnation(str(number)))

    assert lives.incarnations == tuple(str(number) for number in range(2, LIVES_KEPT + 2))
