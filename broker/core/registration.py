"""
How a replica gets its id and a session, crash-safely (S62, S63). Sans-IO, pure.

Here: ``Registration``. Not here: which controller to ask (``broker.core.session``), files (``broker.identity``).
Rule 1: the register code is durable before an id is asked for, and kept on every unknown outcome: a repeat with the
same code gets the same id, none leaks (W26).
Rule 2: the id is durable before it is used.
Rule 3: a session belongs to (replica, incarnation, ordinal); a new connection registers the same incarnation again.
Rule 4: a registration reports the log as it is at that moment, and the clean mark as it was found at the start: R3
judges both.
Rule 5 (R1, R14): a registration names the (incarnation, ordinal) that it replaces, so that a late duplicate of it
changes nothing. The first one takes it from the directory; a refusal names the registered one, and is answered at once
by another try.
Rule 6 (R7): a replica without a record that never saw a master drops an id that is refused as another's or nobody's,
and asks for one anew, with the same code.

=============  ==================================  ================
state          asks for                            next
=============  ==================================  ================
no-code        PersistIdentity (with a new code)   no-id
no-id          ApplyBrokerId                       has-id
has-id         PersistIdentity (with the id)       identified
identified     RegisterReplica, per connection     registered, no-id
registered     nothing                             identified
blocked        one of the two commands, slowly     has-id, registered
=============  ==================================  ================
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rollcall_ha.broker.core.durable import Identity, ProcessIdentity
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplyBrokerId, RegisterReplica
from rollcall_ha.controller.contract.ids import BrokerId, RegisterCode, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, IdGranted, Refused, Registered
from rollcall_ha.controller.contract.values import (
    CleanMark,
    Frozen,
    Positions,
    RegisteredAs,
    ReplicaDescription,
    SetConfiguration,
    StoredView,
)

MOVED_TRIES_MAX = 3
"""Registrations in a row whose evidence had moved before a pause is made: two processes may share one identity."""


_NOT_ITS_ID = (RefusalCode.BROKER_ID_INVALID, RefusalCode.NEED_TO_BE_REGISTERED, RefusalCode.TOMBSTONED)


class RegistrationState(StrEnum):
    """Rows of the table above."""

    NO_CODE = "no-code"
    NO_ID = "no-id"
    HAS_ID = "has-id"
    IDENTIFIED = "identified"
    REGISTERED = "registered"
    BLOCKED = "blocked"


class PersistIdentity(Frozen):
    """Store the identity durably; answer with ``persisted``."""

    identity: Identity


class Opened(Frozen):
    """The session is open: this incarnation is registered."""

    registered: Registered


class Blocked(Frozen):
    """The controllers refuse this replica as it is; asked again after a pause, in case an operator acts."""

    refusal: Refused


class Ended(Frozen):
    """
    A newer incarnation of this replica is registered: this process must not go on (S12).

    Asked again after a pause. ``refusal.registered``: that one is gone, and a new start of this process may replace it.
    """

    refusal: Refused


RegistrationAction = PersistIdentity | ApplyBrokerId | RegisterReplica | Opened | Blocked | Ended
"""A command is asked on the connection to the leader; its reply goes to ``Registration.answered``."""


class ReplicaFacts(Frozen):
    """The configuration of an operator, and the identity of this start of the process."""

    set_key: SetKey
    process: ProcessIdentity
    description: ReplicaDescription
    configuration: SetConfiguration
    clean_mark: CleanMark | None
    """As found at start."""
    new_register_code: RegisterCode
    """Drawn by the shell; used only if the directory has none yet."""


class Registration:
    """One replica's way to a session, for the life of one process."""

    def __init__(self, facts: ReplicaFacts, identity: Identity | None) -> None:
        """``identity``: as found on disk."""
        self._facts = facts
        self._identity = identity
        self._is_connected = False
        self._replaces = _previous_start(facts.process)
        self._asked: RegisterReplica | None = None
        self._moved_tries = 0
        self._has_ended = False
        self.state = self._resting_state()

    @property
    def broker_id(self) -> BrokerId | None:
        """The permanent id, once it is durable."""
        if self.state in (RegistrationState.NO_CODE, RegistrationState.NO_ID, RegistrationState.HAS_ID):
            return None
        return self._identity.broker_id if self._identity is not None else None

    def connected(self, positions: Positions, stored: StoredView | None) -> list[RegistrationAction]:
        """The leader can be asked. Call again, with fresh positions, to retry on the same connection."""
        self._is_connected = True
        self._moved_tries = 0
        self.state = self._resting_state()
        return self._ask(positions, stored)

    def disconnected(self) -> None:
        """The connection is gone, and with it the session; an unanswered question has an unknown outcome."""
        self._is_connected = False
        # HAS_ID waits for the disk, not for the connection: the granted id must not be used, nor asked for again,
        # before it is stored.
        if self.state is not RegistrationState.HAS_ID:
            self.state = self._resting_state()

    def persisted(
        self, identity: Identity, positions: Positions, stored: StoredView | None
    ) -> list[RegistrationAction]:
        self._identity = identity
        self.state = self._resting_state()
        return self._ask(positions, stored) if self._is_connected else []

    def answered(self, reply: AnyReply) -> list[RegistrationAction]:
        """The leader's answer to the last question."""
        if isinstance(reply, Refused):
            # Once ended it asks as itself alone. When the controllers have forgotten this incarnation, behind 16 newer
            # ones, it would else be registered, and fence the living process (S12).
            if reply.code is RefusalCode.EVIDENCE_MOVED and self._asked is not None and not self._has_ended:
                # Another session of ours was registered after we took the evidence: a retry of a lost answer, most
                # often. Asked without a limit, two processes on copies of one directory would end each other's session
                # for ever.
                self._replaces = reply.registered
                self._moved_tries += 1
                if self._moved_tries < MOVED_TRIES_MAX:
                    return [self._register(self._asked)]
            if self._identity is not None and self._is_without_id(reply):
                self.state = RegistrationState.HAS_ID
                return [PersistIdentity(identity=msgspec.structs.replace(self._identity, broker_id=None))]
            self.state = RegistrationState.BLOCKED
            if reply.code is RefusalCode.FENCED_INCARNATION:
                self._has_ended = True
                return [Ended(refusal=reply)]
            return [Blocked(refusal=reply)]
        if isinstance(reply, IdGranted) and self.state is RegistrationState.NO_ID:
            assert self._identity is not None, "an id is asked for with a stored code"
            # Used before it is on the disk, a crash would leave a log that was acked under an id which its directory
            # does not name (S62).
            self.state = RegistrationState.HAS_ID
            return [PersistIdentity(identity=msgspec.structs.replace(self._identity, broker_id=reply.broker_id))]
        if isinstance(reply, Registered) and self.state is RegistrationState.IDENTIFIED:
            self.state = RegistrationState.REGISTERED
            self._replaces = RegisteredAs(
                incarnation=self._facts.process.incarnation, session_ordinal=reply.session_ordinal
            )
            return [Opened(registered=reply)]
        return []

    def _is_without_id(self, refusal: Refused) -> bool:
        """Whether the id is another's, or nobody's, and nothing here tells that it could have been this replica's."""
        asked = self._asked
        if asked is None or self.state is not RegistrationState.IDENTIFIED or refusal.code not in _NOT_ITS_ID:
            return False
        # With one record it may be the member whom others await by this id: a person has to look (R7, C6). With none it
        # would wait for a person who moves an empty directory away.
        is_unled = asked.stored is None or (asked.stored.master_epoch <= 0 and not asked.stored.sync_state_set)
        return asked.positions.max_offset == 0 and is_unled

    def _resting_state(self) -> RegistrationState:
        if self._identity is None:
            return RegistrationState.NO_CODE
        return RegistrationState.NO_ID if self._identity.broker_id is None else RegistrationState.IDENTIFIED

    def _ask(self, positions: Positions, stored: StoredView | None) -> list[RegistrationAction]:
        facts = self._facts
        if self._identity is None:
            # The code first, and on disk: asked with a code that a crash forgets, each start would get another id, and
            # the set would fill up with members that never come back.
            new = Identity(
                cluster=facts.set_key.cluster,
                broker_name=facts.set_key.name,
                register_code=facts.new_register_code,
            )
            return [PersistIdentity(identity=new)]
        code = self._identity.register_code
        if self._identity.broker_id is None:
            address = facts.description.address
            return [ApplyBrokerId(set_key=facts.set_key, register_code=code, address=address)]
        command = RegisterReplica(
            set_key=facts.set_key,
            broker_id=self._identity.broker_id,
            register_code=code,
            incarnation=facts.process.incarnation,
            boot_id=facts.process.boot_id,
            store_id=facts.process.store_id,
            description=facts.description,
            configuration=facts.configuration,
            positions=positions,
            clean_mark=facts.clean_mark,
            stored=stored,
            previous_incarnations=facts.process.previous_incarnations,
        )
        return [self._register(command)]

    def _register(self, command: RegisterReplica) -> RegisterReplica:
        self._asked = msgspec.structs.replace(command, replaces=self._replaces)
        return self._asked


def _previous_start(process: ProcessIdentity) -> RegisteredAs | None:
    """The registration of the start before this one, if it got that far; else a refusal names another one (rule 5)."""
    if not process.previous_incarnations:
        return None
    return RegisteredAs(incarnation=process.previous_incarnations[-1], session_ordinal=SessionOrdinal(0))
