"""
The members of the group, and the steps by which they change: R30, adr/0020.

Here: values, their bytes, and which change may follow. Pure. Not here: which members a log has (``journal``), what they
mean for votes and commits (``node``, ``repairs``).

Rule 1: a change adds or removes one voter, or changes learners only. Then a majority of the voters before and one of
those after share a member.
Rule 2: who is to be a voter is a learner first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec

from rollcall_ha.controller.contract.ids import ControllerName

CONFIGURATION = b"\x02"
"""Type byte of an entry that holds members."""
MEMBERS_MAX = 7
"""Voters to run with; one more is taken, so that one of seven can be replaced."""
CONFIGURATION_BYTES_MAX = 16 * 1024

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class ChangeRefused(ValueError):
    """A change that may not follow; the message says why."""


class Seat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One member and where it is: host:port of its Raft port, and of the ports that others are told."""

    name: _Text
    raft: _Text
    broker: str = ""
    rest: str = ""


class Membership(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All members, in the order of their names."""

    voters: tuple[Seat, ...]
    learners: tuple[Seat, ...] = ()
    """They take entries and count for nothing."""

    @property
    def seats(self) -> tuple[Seat, ...]:
        return (*self.voters, *self.learners)

    def is_voter(self, name: str) -> bool:
        return any(seat.name == name for seat in self.voters)

    def is_learner(self, name: str) -> bool:
        return any(seat.name == name for seat in self.learners)


Change = Callable[[Membership], Membership]
"""From the members in force to those that shall follow; raises ``ChangeRefused``."""

_decoder = msgspec.json.Decoder(Membership)


def founded(members: Mapping[ControllerName, str]) -> Membership:
    """The membership of a group that never changed; ``members``: name -> host:port of the Raft port."""
    return Membership(voters=tuple(Seat(name=name, raft=members[name]) for name in sorted(members)))


def encode(members: Membership) -> bytes:
    """The command of an entry."""
    # Entries are ASCII (rule 1 of ``node``): a name of another alphabet is escaped.
    return CONFIGURATION + json.dumps(msgspec.to_builtins(members), ensure_ascii=True).encode("ascii")


def decode(command: bytes) -> Membership:
    """Inverse of ``encode``. Raises ``ValueError``: it is none, or one that no leader makes."""
    if command[:1] != CONFIGURATION or len(command) > CONFIGURATION_BYTES_MAX:
        raise ValueError(f"{len(command)} bytes that begin with {command[:1]!r} are no members")
    members = _decoder.decode(command[1:])
    names = [seat.name for seat in members.seats]
    if not members.voters or len(set(names)) != len(names) or len(names) > MEMBERS_MAX + 1:
        raise ValueError(f"{names} are not the members of a group")
    return members


def with_learner(members: Membership, seat: Seat) -> Membership:
    """``seat`` takes entries from now on. Raises ``ChangeRefused``."""
    if members.is_voter(seat.name) or members.is_learner(seat.name):
        raise ChangeRefused(f"{seat.name} is a member already")
    if members.learners:
        raise ChangeRefused(f"{members.learners[0].name} is being added: one change at a time")
    if len(members.voters) > MEMBERS_MAX:
        raise ChangeRefused(f"there are {len(members.voters)} members, at most {MEMBERS_MAX} are allowed")
    return Membership(voters=members.voters, learners=_sorted((*members.learners, seat)))


def promoted(members: Membership, name: str) -> Membership:
    """The learner ``name`` votes from now on. Raises ``ChangeRefused``."""
    seat = next((one for one in members.learners if one.name == name), None)
    if seat is None:
        raise ChangeRefused(f"{name} is no learner: it is added first")
    rest = tuple(one for one in members.learners if one.name != name)
    return Membership(voters=_sorted((*members.voters, seat)), learners=rest)


def without(members: Membership, name: str) -> Membership:
    """``name`` is no member from now on. Raises ``ChangeRefused``."""
    if members.is_learner(name):
        return Membership(voters=members.voters, learners=tuple(one for one in members.learners if one.name != name))
    if not members.is_voter(name):
        raise ChangeRefused(f"{name} is no member; there are {', '.join(seat.name for seat in members.seats)}")
    if len(members.voters) == 1:
        raise ChangeRefused(f"{name} is the only voter")
    return Membership(voters=tuple(one for one in members.voters if one.name != name), learners=members.learners)


def is_step(before: Membership, after: Membership) -> bool:
    """Rule 1 and rule 2."""
    old, new = {one.name for one in before.voters}, {one.name for one in after.voters}
    came = new - old
    return len(old ^ new) <= 1 and all(before.is_learner(name) for name in came)


def _sorted(seats: Iterable[Seat]) -> tuple[Seat, ...]:
    return tuple(sorted(seats, key=lambda seat: seat.name))
