"""
Parameters of a link: its two replicas, their reign, its limits.

Here: values only. Not here: the machines (``master_link``, ``slave_link``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, FlushMode, Incarnation, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.model import NO_EPOCH


class ReplicaIdentity(Frozen):
    """The own name on every link of this process."""

    set_key: SetKey
    fleet_incarnation: FleetIncarnation
    broker_id: BrokerId
    incarnation: Incarnation


class LinkReign(Frozen):
    """The epoch in which a master serves its links."""

    master_epoch: MasterEpoch
    incarnations: Mapping[BrokerId, Incarnation]
    """The replicas that are registered, by the newest view: nobody else is served."""
    unclean_epoch: MasterEpoch = NO_EPOCH
    """The newest epoch that began with an unclean election, as far as this master knows (R26)."""
    owners: Mapping[BrokerId, str] = msgspec.field(default_factory=dict)
    """Names in the certificates that ids are bound to; of an id that is missing every broker of the set may speak."""


class FollowTarget(Frozen):
    """The master to follow and its reign, by the word of the controllers."""

    host: str
    port: int
    master: BrokerId
    master_incarnation: Incarnation
    """Empty = not known."""
    master_epoch: MasterEpoch
    is_learner: bool = False
    begins_at_last_segment: bool = False
    """With an empty log, of a learner only: a member holds what the set has acknowledged, from 0 on (R23)."""
    flush: FlushMode = FlushMode.ASYNC


class LinkSettings(msgspec.Struct, kw_only=True):
    """
    Limits and times of links; the times in milliseconds of one monotonic clock.

    Its owner may change the first three while links run: each link reads them whenever it looks.
    """

    heartbeat_interval_ms: int
    """Longest silence of a healthy sender."""
    idle_timeout_ms: int
    """A peer that was silent for so long is gone."""
    handshake_timeout_ms: int
    """From the connection to the answered handshake; also how long a master to be keeps an early slave waiting."""
    cutting_timeout_ms: int = 60_000
    """A slave may be silent for so long while it cuts its log."""
    confirm_delay_ms: int = 20
    """An idle master tells a moved confirm offset after this; with data it goes at once."""
    transfer_bytes_max: int = 1024 * 1024
    """Body of one transfer: also the most that a link sends or receives in one turn of the loop."""
