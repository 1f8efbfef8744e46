"""
What a decision is, and what refuses a command.

Here: ``Decision`` with the constructors that every deciding module uses, and ``Refusal``, which ends the deciding where
it is raised. Not here: any rule; ``decide`` catches the refusal and puts it on record.
"""

from __future__ import annotations

from collections.abc import Callable

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import AnyEvent, CommandRefused, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import AlterVerdict, AnyReply, Done, Elected, Refused, SetView
from rollcall_ha.controller.contract.values import Frozen, RegisteredAs, made_from
from rollcall_ha.controller.contract.verdicts import Verdict
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState


class Decision(Frozen):
    """
    An answer and the facts that make it true. No events: nothing changes.

    An answer that shows the set is a function of its view: ``apply`` calls it with the view after the events,
    ``preview`` with the present one.
    """

    answer: AnyReply | Callable[[SetView], AnyReply]
    events: tuple[AnyEvent, ...] = ()

    def reply_with(self, view: Callable[[], SetView]) -> AnyReply:
        """The answer; ``view`` is called only if the answer shows the set."""
        return self.answer(view()) if callable(self.answer) else self.answer


def done(*events: AnyEvent) -> Decision:
    """Yes, by these facts; without any it is so already, and nothing is recorded."""
    return Decision(answer=Done(), events=events)


def elected(event: MasterElected) -> Decision:
    """Elect as ``event`` says."""
    return Decision(answer=lambda view: Elected(verdict=event.verdict, view=view), events=(event,))


class Refusal(Exception):
    """
    The command is refused: nothing changes. ``reason`` names both values, ``hint`` the remedy.

    Raised at any depth below ``decide``, which returns ``decision`` of it.
    """

    def __init__(
        self,
        code: RefusalCode,
        reason: str,
        hint: str,
        *,
        requested: object = None,
        current: object = None,
        verdict: Verdict | None = None,
        alter: AlterVerdict | None = None,
        registered: RegisteredAs | None = None,
    ) -> None:
        """The last three are for the caller of an election, an alter and a registration."""
        super().__init__(reason)
        self.refused = Refused(
            code=code,
            reason=reason,
            hint=hint,
            requested=None if requested is None else str(requested),
            current=None if current is None else str(current),
            verdict=verdict,
            alter=alter,
            registered=registered,
        )

    def decision(self, operation: Operation, *further: AnyEvent) -> Decision:
        """
        The refusal of ``operation``, with its event and what else it brings about.

        On record (R24): otherwise a broker that was fenced for an hour would leave no trace of why.
        """
        refused = self.refused
        event = made_from(refused, CommandRefused, command=type(operation.command).__name__)
        return Decision(answer=refused, events=(event, *further))


def no_room(what: str, count: int, most: int, hint: str) -> Refusal:
    """One more of ``what`` than is kept of them."""
    reason = f"{count} {what} are in force, at most {most} are kept"
    return Refusal(RefusalCode.INVALID_REQUEST, reason, hint, requested=count + 1, current=most)


def find_set(fleet: FleetState, key: SetKey) -> SetState:
    """The set that a command is about. Raises ``Refusal``: it never was, or was cleaned."""
    set_state = fleet.sets.get(key)
    if set_state is None or set_state.is_tombstone:
        raise Refusal(
            RefusalCode.SET_NOT_FOUND if set_state is None else RefusalCode.TOMBSTONED,
            f"set {key} {'does not exist' if set_state is None else 'was cleaned'}",
            "list the sets with: rollcall sets; a broker that registers begins a new one",
        )
    return set_state


def find_replica(set_state: SetState, broker_id: BrokerId) -> ReplicaState:
    """The replica of this id. Raises ``Refusal``: the set has none."""
    replica = set_state.replica(broker_id)
    if replica is None:
        raise Refusal(
            RefusalCode.UNKNOWN_REPLICA,
            f"replica {broker_id} of {set_state.set_key} does not exist",
            "see its replicas with: rollcall status",
        )
    return replica
