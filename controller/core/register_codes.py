"""
Register codes: how a broker proves that an id was given to it.

Here: what is kept of a code, and whether a shown code is the kept one. Not here: ids (``ids``), the rest of a
registration (``registration``).

Rule 1: state and events keep the SHA-256 of a code. Both are read by whoever may read the record, and whoever has the
code can register as its broker: with it and one request, a reader of events took over the mastership of a set.
Rule 2: a kept digest is not a code: shown as one, it proves nothing (but rule 3).
Rule 3: a RocketMQ broker shows its code when it asks for the id, and none when it registers. The gateway shows what is
kept instead; that is taken for a RocketMQ broker, and only where no broker of ours has ever registered under the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rollcall_ha.controller.contract.commands import RegisterReplica
from rollcall_ha.controller.contract.ids import BrokerId, RegisterCode, ReplicaKind
from rollcall_ha.controller.core.state import ReplicaState

DIGEST_PREFIX = "sha256:"


def kept_code(shown: RegisterCode) -> RegisterCode:
    """What state and events have of ``shown``."""
    return RegisterCode(DIGEST_PREFIX + hashlib.sha256(shown.encode()).hexdigest())


def owner_of(replicas: Iterable[ReplicaState], shown: RegisterCode) -> BrokerId | None:
    """The id that was given to the broker with this code."""
    kept = kept_code(shown)
    return next((replica.broker_id for replica in replicas if replica.register_code == kept), None)


def is_proven(replica: ReplicaState, command: RegisterReplica) -> bool:
    """Whether ``command`` comes from the broker that has the id of ``replica``."""
    if replica.register_code == kept_code(command.register_code):
        return True
    # Rule 3. Taken for one of ours, what every reader of events has would be the proof again.
    is_theirs = not replica.is_registered or replica.kind is ReplicaKind.ROCKETMQ
    return (
        is_theirs
        and command.description.kind is ReplicaKind.ROCKETMQ
        and command.register_code == replica.register_code
    )
