"""
Masters that fell silent together with all others: it may be this leader's own network.

Here: the suspicion, how long a master is awaited, and what people are told of it, as functions over sessions. Not here:
who is silent (``sessions``), holding elections back (``core.election_duty``), the words (``contract.problems``).

Rule 1 (R13): a master is missed, and not lost, if it is found silent when no member of its set, or less than half of
the fleet's replicas, was heard lately. A leader that finds one silent in replicated state has not seen why. A replica
that is back for less than a timeout was silent when the master was, and counts as not heard.
Rule 2: a missed master is awaited from the first word of a member that has had bytes from it since, in this
masterEpoch, as long as such words come, and for one heartbeat timeout at most. A master that hangs sends nothing, and
is not awaited; nor is one whose end closed a link behind its last bytes: its process is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.contract.views import MissedMasters
from rollcall_ha.controller.runtime.session_state import ReplicaKey, ReplicaSession


def suspected(
    due: Iterable[ReplicaSession],
    sessions: Mapping[ReplicaKey, ReplicaSession],
    members: Mapping[SetKey, Collection[BrokerId]],
    now_ns: int,
) -> None:
    """Mark those of ``due``, found silent now, that are missed (rule 1), and no others of them."""
    counted = [one for one in sessions.values() if one.is_alive]
    is_fleet = 2 * sum(not _is_heard(one, now_ns) for one in counted) > len(counted)
    for session in due:
        others = (sessions.get((session.set_key, one)) for one in members.get(session.set_key, ()))
        # One that is cut off alone is not missed: a slave is heard, and can serve clients that it cannot.
        is_missed = is_fleet or not any(one is not None and _is_heard(one, now_ns) for one in others)
        session.missed_ns, session.witnessed_ns = now_ns if is_missed else None, None
        witnessed(session, now_ns)


def inherited(sessions: Iterable[ReplicaSession], now_ns: int) -> None:
    """This controller begins to lead: each replica that is silent in replicated state is missed (rule 1)."""
    for session in sessions:
        if not session.is_alive:
            session.missed_ns = now_ns


def witnessed(master: ReplicaSession, now_ns: int) -> None:
    """A member's word of when it had bytes from this one has come, or has come before."""
    if master.missed_ns is not None and master.witnessed_ns is None and master.is_fresh(master.alive_ns, now_ns):
        master.witnessed_ns = now_ns


def is_awaited(master: ReplicaSession, now_ns: int) -> bool:
    """Whether it is to be heard before another one is elected (rule 2)."""
    since_ns = master.witnessed_ns
    is_in_time = since_ns is not None and now_ns - since_ns < master.timeout_ms * NS_PER_MS
    return is_in_time and master.is_fresh(master.alive_ns, now_ns) and not _has_hung_up(master)


def is_missed(master: ReplicaSession, of_set: Iterable[ReplicaSession], now_ns: int) -> bool:
    """Whether nobody is elected in its place now, because it is awaited, or its whole set was found silent (rule 1)."""
    # Heard again before its silence was applied: it is no more silent than any other.
    if master.is_fresh(master.heard_ns, now_ns):
        return False
    # A machine that refuses probes is reached: told as missed, brokers that were killed together would send people to
    # the network. So would those that the last leader found silent, perhaps a year ago.
    is_found = master.missed_ns is not None and master.cause is SilenceCause.TIMEOUT and master.refused_ns is None
    return is_awaited(master, now_ns) or (is_found and not any(one.is_fresh(one.heard_ns, now_ns) for one in of_set))


def told(missed: Collection[ReplicaSession], now_ns: int) -> MissedMasters | None:
    """Count those that ``is_missed``, for people; None: there is none."""
    if not missed:
        return None
    # One that is not awaited has no end, also if it was: nobody of its set is heard.
    ends = [
        one.witnessed_ns + one.timeout_ms * NS_PER_MS
        for one in missed
        if one.witnessed_ns is not None and is_awaited(one, now_ns)
    ]
    return MissedMasters(
        sets=len(missed),
        silent_ms=max(now_ns - one.due_from_ns for one in missed) // NS_PER_MS,
        left_ms=(max(ends) - now_ns) // NS_PER_MS if len(ends) == len(missed) else None,
    )


def _has_hung_up(master: ReplicaSession) -> bool:
    # Killed while it is awaited. Its bytes stay fresh for 1.5 s, by which the failover would be longer.
    ends = [link.since_ns for link in master.links.values() if link.is_end_seen]
    return master.alive_ns is not None and any(since_ns >= master.alive_ns for since_ns in ends)


def returned(session: ReplicaSession, now_ns: int) -> None:
    """A heartbeat has come, perhaps behind a gap; to be told before it counts as the last one."""
    # A leader that began while all were cut off has heard nobody. A slave was heard half a second behind its beginning,
    # and by that slave alone the master, which dialled 80 ms behind the timeout, was the only one that is cut off.
    if session.heard_ns is None or not session.is_fresh(session.heard_ns, now_ns):
        session.back_ns = now_ns


def _is_heard(session: ReplicaSession, now_ns: int) -> bool:
    # All were cut off for 2.9 s, and a slave is heard 100 ms before the master is due: by that heartbeat alone the
    # master would be the only one that is cut off.
    is_back_now = session.back_ns is not None and now_ns - session.back_ns < session.timeout_ms * NS_PER_MS
    return session.is_fresh(session.heard_ns, now_ns) and not is_back_now
