"""
Processes that ask at this controller's ports and are refused: the last refusal of each, for people.

Here: ``Refusals``. Not here: why one is refused (``controller.core``, ``node.certified``), what the ports do about it,
keeping those of controllers (``replication.raft.transport``).
Rule 1: nothing is decided by it. It is this controller's memory, and begins empty with each process.
Rule 2: at most ``REFUSED_MAX`` are kept, the newest; one that was not heard for ``REFUSED_MS_MAX`` is not told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import host_of
from rollcall_ha.controller.contract.views import RefusedBroker, RefusedController
from rollcall_ha.controller.replication.ports import RefusedPeer
from rollcall_ha.node.remoting.links import CloseCause

REFUSED_MAX = 256
"""All are looked through for each set that is shown."""
REFUSED_PER_SET_MAX = 16
REASON_CHARS_MAX = 300
"""A reason may hold text that the peer has sent."""
REFUSED_MS_MAX = 60_000
"""A refused process asks again each second, or each few seconds."""
CERTIFICATE_HINT = "compare the clocks of both machines, or give it new files: rollcall certs renew"
_RELEASE_HINT = "run the same release on all controllers, each under its own name of the fleet file"


class Refusals:
    """By the set and id that were named, or by the host where nothing was read; times on one monotonic clock."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[SetKey | None, BrokerId | str], tuple[int, RefusedBroker]] = OrderedDict()
        self.peers: Callable[[], tuple[RefusedPeer, ...]] = tuple
        """The other controllers that were refused, the newest last."""

    def note(self, key: SetKey | None, refused: RefusedBroker, now_ns: int) -> None:
        """``key``: a set that exists. None: TLS has refused it before it could name one."""
        who = (key, refused.broker_id or refused.host)
        self._seen[who] = now_ns, replace(refused, reason=_printable(refused.reason))
        self._seen.move_to_end(who)
        if len(self._seen) > REFUSED_MAX:
            self._seen.popitem(last=False)

    def taken(self, key: SetKey, broker_id: BrokerId, host: str) -> None:
        """It has got its id, or has registered: no refusal of it is told any more."""
        for who in ((key, broker_id), (key, host), (None, host)):
            self._seen.pop(who, None)

    def heard(self, key: SetKey, broker_id: BrokerId, host: str) -> None:
        """Its word from this host counts: a refusal of another host, beside it, is told on."""
        _, refused = self._seen.get((key, broker_id), (0, None))
        if refused is not None and refused.host == host:
            del self._seen[key, broker_id]

    def of(self, view: SetView, now_ns: int) -> tuple[RefusedBroker, ...]:
        """Those of this set, and those without a name from hosts where a member is gone, the newest first."""
        if not self._seen:
            return ()
        hosts = {host_of(member.description.address) for member in view.members if not member.is_alive}
        found = (
            replace(refused, age_ms=age_ms)
            for (key, _), (seen_ns, refused) in reversed(self._seen.items())
            if (age_ms := max(0, now_ns - seen_ns) // NS_PER_MS) <= REFUSED_MS_MAX
            and (key == view.set_key or (key is None and refused.host in hosts))
        )
        return tuple(islice(found, REFUSED_PER_SET_MAX))

    def of_controllers(self, now_ns: int) -> tuple[RefusedController, ...]:
        """Controllers that were refused a link within ``REFUSED_MS_MAX``, each once, the newest first."""
        found = [one for one in reversed(self.peers()) if now_ns - one.at_ns <= REFUSED_MS_MAX * NS_PER_MS]
        # Controllers dial each other: it is refused by its host where it asks, and by its name where it is asked.
        named = {one.host for one in found if one.name}
        return tuple(
            RefusedController(
                name=one.name,
                host=one.host,
                code=one.code,
                reason=_printable(one.reason),
                hint=_RELEASE_HINT if one.code == CloseCause.FRAME else CERTIFICATE_HINT,
                age_ms=max(0, now_ns - one.at_ns) // NS_PER_MS,
            )
            for one in found
            if one.name or one.host not in named
        )


def _printable(reason: str) -> str:
    cut = reason[:REASON_CHARS_MAX]
    return cut if cut.isprintable() else ascii(cut)
