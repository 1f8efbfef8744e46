"""
What an attack happens on, what it is, and what came of it: values that all attacks share.

Here: types. Not here: attacks (``doors``, ``claims``, ``web``, ``rocketmq``, ``terminals``), the order in which they are run (``__main__``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.deploy.local.fleet import Fleet
from tests.attacks.enemy import Counters, Forger
from tests.attacks.peer import RocketmqMaster


class NotHere(Exception):
    """This machine cannot do that attack; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A fleet of real processes under load, and an enemy that reaches every port."""

    fleet: Fleet
    key: SetKey
    forger: Forger
    counters: Counters
    peer: RocketmqMaster | None = None
    """The honest RocketMQ broker, where there is one."""

    @property
    def leader_rest(self) -> str:
        return self.fleet.file.controllers[self.fleet.leader()].rest

    @property
    def leader_sessions(self) -> str:
        return self.fleet.file.controllers[self.fleet.leader()].broker

    @property
    def master_ha(self) -> str:
        return self.fleet.file.broker(self.fleet.master(self.key)).ha


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One row of the table."""

    name: str
    port: str
    """raft, sessions, rest, listen, ha, health, rocketmq or terminal."""
    run: Callable[[Scene], str]
    """Does it, and returns in words what came back."""
    refused_with: tuple[str, ...]
    """One of these must be in the words."""
    counted: str = ""
    """Part of the name with labels of a counter that must have moved; empty: nothing counts it (a TLS alert of ours
    comes before there is anything to count)."""
    is_open: bool = False
    """The protocol lets it in (docs/threats.md, what stays open); ``refused_with`` says how far it goes."""
