"""
Directed cases of controllers that were put back from an older copy (R7), for the mutants of ``mutations_sets``: see
``directed``.

Each goes on from what the controllers know to what is lost: the election, or the id, of which the rule keeps them.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import NoteConfirms
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import Elected, Registered
from rollcall_ha.controller.contract.values import KnownConfirm, Positions
from tests.sim.violation import must
from tests.support.core_builders import Fleet, ids, positions, stored
from tests.support.core_fleets import TWO

A, B, C = 1, 2, 3


def _report(fleet: Fleet, member: int, life: int, holds: Positions, epoch: int, *members: int) -> None:
    """``member`` starts for the ``life``th time and tells what it holds, with its view of ``epoch``."""
    view = stored(epoch, 9, *members, fleet=fleet.state.fleet_incarnation)
    fleet.do(fleet.registration(member, incarnation=f"i{member}.{life}", holds=holds, view=view))


def _volume_behind_a_report(epoch: int) -> None:
    """A alone acks 900 bytes in ``epoch``, reports them, and comes back with a volume of 500; nobody has more."""
    fleet = Fleet().serving()
    _report(fleet, A, 2, positions(900, epoch=epoch, confirm=900), epoch, A)
    for other in (B, C):
        _report(fleet, other, 2, positions(300, epoch=epoch, confirm=300), epoch, A)
    _report(fleet, A, 3, positions(500, epoch=epoch, confirm=500), epoch, A)
    won = fleet.elect()
    must(not isinstance(won, Elected), f"R7: {A} is elected with 500 bytes, 900 of epoch {epoch} were acked")


def volume_behind_a_report() -> None:
    """In the reign that the controllers know."""
    _volume_behind_a_report(1)


def volume_behind_a_report_of_a_lost_reign() -> None:
    """In epoch 4, of which the controllers know by the reports alone."""
    _volume_behind_a_report(4)


def branch_between_a_confirm_and_its_teller() -> None:
    """
    A and C confirmed 900 bytes of epoch 1 in epoch 4. B joined them, and its volume was put back to epoch 3: that began
    at 700, and nobody followed its master. A and C have left since.
    """
    fleet = Fleet().serving()
    holds = positions(1_000, epoch=4, confirm=900, confirm_epochs=(1,))
    for member in (A, C):
        _report(fleet, member, 2, holds, 5, B)
    _report(fleet, B, 2, positions(950, epoch=3, confirm=700, confirm_epochs=(1,)), 5, B)
    fleet.elect()
    must(fleet.set.master != B, f"R7: {B} is elected with 700 bytes of epoch 1, 900 of them were acked")


def volume_before_its_report() -> None:
    """B comes first, with a volume of 500 bytes; A is elected with all 900, and dies: nobody is elected with 500."""
    fleet = Fleet().serving()
    for member, end in ((B, 500), (C, 500), (A, 900)):
        _report(fleet, member, 2, positions(end, epoch=4, confirm=end), 4, A, B, C)
    fleet.elect()
    must(fleet.set.master == A, f"R7: {fleet.set.master} is elected, {A} holds the most")
    fleet.silence(A)
    won = fleet.elect(evidence=fleet.evidence({B: positions(500, epoch=4), C: positions(500, epoch=4)}))
    must(not isinstance(won, Elected), f"R7: {fleet.set.master} was A's survivor with 500 bytes, 900 were acked")


def volume_with_a_tail() -> None:
    """A's volume is from when it was cut off with 950 bytes; epoch 2 began at 700, and A, B and C have acked 900 since."""
    fleet = Fleet().serving()
    fleet.elect(to=B)
    fleet.enter(700)
    told = KnownConfirm(set_key=fleet.key, master_epoch=MasterEpoch(2), confirm_offset=LogOffset(900))
    fleet.do(NoteConfirms(confirms=(told,)))
    fleet.do(fleet.registration(A, incarnation="i1.2", holds=positions(950, epoch=1, confirm=700)))
    fleet.silence(B)
    fleet.elect(evidence=fleet.evidence(unheard=(C,)))
    must(fleet.set.master != A, "R3: A is elected for its 950 bytes, of which 250 are those of an epoch that was cut")


def grant_of_a_lost_entry() -> None:
    """C was given its id in an entry that the controllers have lost; the set has gone on."""
    fleet = Fleet().serving(replicas=(A, B), configuration=TWO)
    view = stored(1, 1, A, B, fleet=fleet.state.fleet_incarnation)
    reply = fleet.do(fleet.registration(C, view=view))
    must(isinstance(reply, Registered), "R7: C is sent away for a fresh id, and waits for a person")
    must(fleet.set.sync_state_set == ids(A, B), "R7: C is a member by an id that nobody remembers")
    fleet.grant("code-new")
    must(fleet.set.replicas[-1].broker_id == 4, "C6: the id of C is given a second time")


def newcomer_under_a_members_id() -> None:
    """The first machine at wiped controllers is an empty one; A, a member, comes last."""
    fleet = Fleet()
    fleet.grant("code-new")
    fleet.do(fleet.registration(A, code="code-new", incarnation="new"))
    fleet.do(fleet.registration(B, holds=positions(500, epoch=4), view=stored(4, 7, A, B)))
    fleet.do(fleet.registration(A, code="code-new", incarnation="new"))
    must(not isinstance(fleet.elect(), Elected), "R7: the newcomer's word stands for A, which holds more than B")
    member = fleet.registration(A, holds=positions(900, epoch=4), view=stored(4, 7, A, B), lives=())
    reply = fleet.do(replace(member, replaces=None))
    must(isinstance(reply, Registered), "R7: A is kept out of its set by a newcomer that was given its id")
    elected = fleet.elect()
    must(isinstance(elected, Elected) and elected.verdict.winner == A, "R7: the longest member is not elected")


def member_since_the_copy() -> None:
    """A and B are members by the copy of the controllers; C, known to it, may have been left alone since."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(C, incarnation="C.2", holds=positions(400, epoch=1), boot="boot-2"))
    for member in (A, B):
        holds = positions(500, epoch=4)
        fleet.do(fleet.registration(member, incarnation=f"{member}.2", holds=holds, view=stored(4, 20, A, B)))
    must(not isinstance(fleet.elect(), Elected), "R7: elected without C, which alone may know the newest set")


RECOVERY_CASES: dict[str, Callable[[], None]] = {
    "volume-behind-a-report": volume_behind_a_report,
    "volume-behind-a-report-of-a-lost-reign": volume_behind_a_report_of_a_lost_reign,
    "branch-between-a-confirm-and-its-teller": branch_between_a_confirm_and_its_teller,
    "volume-before-its-report": volume_before_its_report,
    "volume-with-a-tail": volume_with_a_tail,
    "grant-of-a-lost-entry": grant_of_a_lost_entry,
    "newcomer-under-a-members-id": newcomer_under_a_members_id,
    "member-since-the-copy": member_since_the_copy,
}
"""By name, as ``directed.CASES``."""
