"""
The answer to a load balancer that asks which replica takes sends, or is fresh enough to read from. Pure.

Here: /master, /replica and /in-sync, by facts of one moment. Not here: HTTP (``broker.health``), the facts
(``broker.status``), /leader of controllers (``api.rest.app``), ready or not (``broker.status.is_ready_in``).

Rule 1: 200 says what this replica can do now. A master that is fenced, drains, or cannot acknowledge is none: sends
that a balancer brings there would wait, while the next one may serve already.
Rule 2: what is not known is 503. A slave without its master's link does not know how far it is behind, and one without
a session does not know whether it is still a member.
"""

from __future__ import annotations

from http import HTTPStatus

from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SyncStateSet
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import Frozen

PATHS = ("/master", "/replica", "/in-sync")
LAG_DIGITS_MAX = 18
SHOWN_CHARACTERS_MAX = 40


class ReplicaFacts(Frozen):
    """One replica at the moment of asking. None = not known."""

    state: BrokerState
    reason: str
    """The role's own words."""
    master_epoch: MasterEpoch
    takes_sends: bool
    """Its gate is open: entered, and not about to hand over."""
    is_min_in_sync: bool
    stopped: str
    """Why this master acknowledges no write; empty = it does."""
    has_full_disk: bool
    lag_bytes: int | None
    """How far it is behind the master's last known end; None = no link to it."""
    heard_age_us: int | None
    """How long ago the last byte of the followed master came."""
    heard_age_ms_max: int
    """A healthy master is heard within this."""
    has_session: bool
    """A leading controller answers."""
    broker_id: BrokerId | None
    sync_state_set: SyncStateSet
    """The members by the newest view."""


class Answer(Frozen):
    """``text`` is one short line for people."""

    status: HTTPStatus
    text: str


def judge(path: str, query: str, facts: ReplicaFacts | None) -> Answer:
    """The answer to one of ``PATHS``; ``facts`` None: the log is still being read."""
    lag_bytes_max, fault = _lag_asked(query) if path == "/replica" else (None, "")
    if fault:
        return Answer(status=HTTPStatus.BAD_REQUEST, text=fault)
    if facts is None:
        return _no("recovering: reading the log")
    if path == "/master":
        return _master(facts)
    if path == "/replica":
        return _replica(facts, lag_bytes_max)
    return _in_sync(facts)


def _lag_asked(query: str) -> tuple[int | None, str]:
    """(the most bytes of lag that the caller takes, None = any; why the question cannot be answered)."""
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        # Left out, "?lag_bytes=0" would be answered 200 by a replica that is 10 GB behind.
        if name != "lag":
            return None, f"{name[:SHOWN_CHARACTERS_MAX]!a} is no argument of /replica; ask /replica?lag=BYTES"
        if not (value.isascii() and value.isdigit() and len(value) <= LAG_DIGITS_MAX):
            shown = ascii(value[:SHOWN_CHARACTERS_MAX])
            return None, f"lag is {shown}; give whole bytes: /replica?lag=1048576"
        return int(value), ""
    return None, ""


def _master(facts: ReplicaFacts) -> Answer:
    if facts.state is not BrokerState.MASTER:
        return _no(f"{facts.state}: {facts.reason}")
    # Its role says master until another one is elected: sends that come now wait for that one.
    if not facts.takes_sends:
        return _no("master, and hands over: it takes no sends")
    if facts.stopped:
        return _no(f"master, and writes are stopped: {facts.stopped}")
    if not facts.is_min_in_sync:
        return _no("master, and refuses sends: fewer members are in sync than min_in_sync")
    return Answer(status=HTTPStatus.OK, text=f"master of epoch {facts.master_epoch}")


def _replica(facts: ReplicaFacts, lag_bytes_max: int | None) -> Answer:
    # A learner may begin at its master's last segment: a reader would miss what is before.
    if facts.state is not BrokerState.SLAVE:
        return _no(f"{facts.state}: {facts.reason}")
    if why := _why_out_of_touch(facts):
        return _no(why)
    assert facts.lag_bytes is not None, "it is in touch"
    if lag_bytes_max is not None and facts.lag_bytes > lag_bytes_max:
        return _no(f"slave, {facts.lag_bytes} bytes behind; asked for at most {lag_bytes_max}")
    return Answer(status=HTTPStatus.OK, text=f"slave, {facts.lag_bytes} bytes behind")


def _in_sync(facts: ReplicaFacts) -> Answer:
    if facts.state is BrokerState.MASTER:
        return _master(facts)
    if facts.state is not BrokerState.SLAVE:
        return _no(f"{facts.state}: {facts.reason}")
    # Removed while it heard of nobody, it would go on calling itself a member.
    if not facts.has_session:
        return _no("slave without a session: no controller says whether it is still in sync")
    if why := _why_out_of_touch(facts):
        return _no(why)
    if facts.broker_id is None or facts.broker_id not in facts.sync_state_set:
        return _no("slave, not in the SyncStateSet")
    return Answer(status=HTTPStatus.OK, text=f"slave, in sync in epoch {facts.master_epoch}")


def _why_out_of_touch(facts: ReplicaFacts) -> str:
    """Why its lag is not known; empty = it is."""
    if facts.has_full_disk:
        return "slave, and its log cannot grow: its disk is full"
    if facts.lag_bytes is None or facts.heard_age_us is None:
        return "slave without a link to its master"
    # The link of a master that hangs stays open: its last known end is from before.
    if facts.heard_age_us > facts.heard_age_ms_max * 1_000:
        return f"slave, and its master was last heard {facts.heard_age_us // 1_000} ms ago"
    return ""


def _no(text: str) -> Answer:
    return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
