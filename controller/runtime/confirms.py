"""
The confirm offsets that members have told, by set and masterEpoch: the leader's soft state.

Here: ``Confirms``. Not here: holding it against an end (``core.evidence``, ``core.intactness``).

Rule 1 (R3): a word is kept when its replica is gone: the dead master alone may have known what was acknowledged last.
Rule 2: of one masterEpoch. Behind an unclean election the confirm of the reign before is that of bytes which no log has
any more, and each honest member would lack them.
Rule 3: it is held against a member's word only if it was heard before that member was last answered: brokers send one
heartbeat at a time, so the next word is younger. No clock is asked. By a confirm that came 400 ms after its last word,
every honest slave of a busy master would lack the bytes of those 400 ms, and each failover wait for a heartbeat. A
replica that was no member yet when it was answered may have been behind when it spoke, and be one since.
Rule 4: every ``NOTE_PERIOD_MS`` those that grew are put into replicated state: a leader that dies takes no more with
it. A set whose confirm stands still costs nothing.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.commands import NoteConfirms
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import Condition, SetView
from rollcall_ha.controller.contract.session import Heartbeat
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import KnownConfirm
from rollcall_ha.controller.core.actions import ProposeCommand
from rollcall_ha.controller.core.views import is_whole
from rollcall_ha.controller.runtime.session_state import NOTHING_CONFIRMED, ReplicaSession

NOTE_PERIOD_MS = 10_000
"""As old replicated state may be, and a heartbeat: a copy that is younger is found by leaders that have heard more."""
CONFIRMS_PER_ENTRY_MAX = 100
"""An entry of 30 KB with the longest names; those of more sets come with the next ticks."""


class Confirms:
    """The highest word of each set. ``Sessions`` tells it of each heartbeat and answer."""

    def __init__(self) -> None:
        self._told: dict[SetKey, tuple[MasterEpoch, LogOffset]] = {}
        # In the order in which they grew, so that each set has its turn. By the second one a round ends: sets that grow
        # while it goes on wait for the next one.
        self._grown: dict[SetKey, None] = {}
        self._round: list[SetKey] = []
        self._next_round_ns = 0

    def clear(self) -> None:
        self._told.clear()
        self._grown.clear()
        self._round.clear()

    def forget(self, key: SetKey) -> None:
        """The set is gone."""
        self._told.pop(key, None)

    def told(self, view: SetView) -> LogOffset | UnsetType:
        """The highest one of the present reign; unset: nobody told one."""
        return in_reign(self._told.get(view.set_key, NOTHING_CONFIRMED), view)

    def answered(self, view: SetView | None, session: ReplicaSession) -> None:
        """This replica is answered now: its next word is younger (rule 3)."""
        is_member = view is not None and session.broker_id in view.sync_state_set
        known = self._told.get(session.set_key, NOTHING_CONFIRMED)
        session.answered_confirm = known if is_member else NOTHING_CONFIRMED

    def heard(self, view: SetView | None, session: ReplicaSession, beat: Heartbeat) -> None:
        """A heartbeat came, and is answered."""
        session.confirmed_before = session.answered_confirm
        confirm = min(beat.positions.confirm_offset, beat.positions.max_offset)
        told = (beat.known_master_epoch, confirm)
        # Java's confirm is another promise. A suspect's is that of bytes which the others may not have.
        if (
            told > self._told.get(beat.set_key, NOTHING_CONFIRMED)
            and view is not None
            and beat.known_master_epoch == view.master_epoch
            and view.condition is not Condition.WAITING_FOR_REPORTS
            and session.kind is not ReplicaKind.ROCKETMQ
            and any(is_whole(view, member) for member in view.members if member.broker_id == beat.broker_id)
        ):
            self._told[beat.set_key] = told
            self._grown[beat.set_key] = None
        self.answered(view, session)

    def tick(self, now_ns: int) -> list[ProposeCommand]:
        """A note of those that grew, once in ``NOTE_PERIOD_MS`` (rule 4); ``CONFIRMS_PER_ENTRY_MAX`` with each tick."""
        if not self._round and now_ns >= self._next_round_ns:
            self._round, self._grown = list(self._grown), {}
            self._next_round_ns = now_ns + NOTE_PERIOD_MS * NS_PER_MS
        keys, self._round = self._round[:CONFIRMS_PER_ENTRY_MAX], self._round[CONFIRMS_PER_ENTRY_MAX:]
        confirms = tuple(
            KnownConfirm(set_key=key, master_epoch=told[0], confirm_offset=told[1])
            for key in keys
            if (told := self._told.get(key)) is not None
        )
        return [ProposeCommand(command=NoteConfirms(confirms=confirms))] if confirms else []

    def not_noted(self, command: NoteConfirms) -> None:
        """Lost, or refused below its feature level: again in the next round, or an idle set stays out."""
        self._grown.update(dict.fromkeys(one.set_key for one in command.confirms))


def in_reign(told: tuple[MasterEpoch, LogOffset], view: SetView) -> LogOffset | UnsetType:
    """The confirm, if it was told in the masterEpoch of ``view``."""
    return told[1] if told[0] == view.master_epoch else UNSET
