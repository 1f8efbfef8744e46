"""
The orders of the leader's machines to their shell, as values.

Here: the actions of ``sessions``, ``election_duty`` and ``milestones``. Not here: doing them (``service``; the
simulation does them too).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.commands import AnyCommand
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, ReplicaKind, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.values import Evidence, Frozen


class ProposeCommand(Frozen):
    """
    Submit ``command`` with ``evidence`` in the leader's own name.

    Its outcome comes back by ``LeaderDuties.handle_proposed(action, reply_or_None, now_ns)``, exactly once.
    """

    command: AnyCommand
    evidence: Evidence | None = None


class SendProbe(Frozen):
    """
    Ask the listen port ``address`` which incarnation lives there (R13).

    Its outcome comes back by ``LeaderDuties.handle_probe``, exactly once, within ``probe_timeout_ms``.
    """

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    address: str
    kind: ReplicaKind = ReplicaKind.NATIVE
    """A RocketMQ broker knows no incarnation: any answer says that its process lives, and nothing more."""
    after_ms: int = 0


Action = ProposeCommand | SendProbe
