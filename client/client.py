"""
A typed client of the controllers' REST interface that finds the leader by itself.

Here: which controller to ask, what to do with its answer, how often to try again. Not here: the errors of calls
(``client.errors``), what answers mean (``controller.contract.views``), how they look (``cli``), the routes
(``api.rest``). Synchronous; threads may share one client.

Rule 1: every mutating call carries a request id, drawn here unless given. The controllers execute one id once, so a
call without an answer is repeated with the same id.
Rule 2: only a definite answer is a result. A call that may have been executed ends in ``OutcomeUnknown``.
Rule 3: every wait has a limit: one attempt ``ATTEMPT_MS_MAX``, one call ``limit_ms``.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict, TypeVar, Unpack, overload
from urllib.parse import urlsplit

import httpx
import msgspec

from rollcall_ha.client.addresses import base_url, hinted, resolved
from rollcall_ha.client.errors import BadAnswer, ClientError, NoLeader, OutcomeUnknown, RefusedError, Unreachable
from rollcall_ha.client.identity import Identity, NotTrusted, trouble_of
from rollcall_ha.controller.contract.codes import REQUEST_ID_HEADER, REQUESTED_BY_HEADER
from rollcall_ha.controller.contract.commands import ApplyBrokerId, OrderSwitchover
from rollcall_ha.controller.contract.consuming import BrokerOrder, BrokersAnswer, Joined
from rollcall_ha.controller.contract.ids import MasterEpoch, RequestId, SetKey
from rollcall_ha.controller.contract.orders import ORDERS, order_of, set_path
from rollcall_ha.controller.contract.replies import Answer, AnsweredBy, Elected, IdGranted, SwitchoverAnswer
from rollcall_ha.controller.contract.values import EventRef, Frozen
from rollcall_ha.controller.contract.views import (
    PAGE_SETS_MAX,
    CertificatesAnswer,
    ControllersAnswer,
    ControllerStatus,
    ElectionPreview,
    EventPage,
    Explanation,
    FleetStatus,
    HistoryPage,
    MaintenancesAnswer,
    OrderPreview,
    Problem,
    SetAnswer,
    SetPage,
    SettingsAnswer,
    TokensAnswer,
)

T = TypeVar("T")
Page = TypeVar("Page", FleetStatus, SetPage)
Told = TypeVar("Told", bound=Joined)

LIMIT_MS = 5_000
"""How long a call looks for a leader before it gives up."""
ATTEMPT_MS_MAX = 3_000
CONNECT_MS_MAX = 500
ROUND_PAUSE_MS = 100
"""The mean; each pause is half of it to one and a half."""

# Built here, under the import lock: msgspec builds what it knows of a type at its first use, and two threads that do so
# at once end the process with a segmentation fault (msgspec 0.22.0).
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in {
        *(kind for order in ORDERS for kind in (order.gives, order.previews)),
        CertificatesAnswer,
        ControllersAnswer,
        EventPage,
        Explanation,
        FleetStatus,
        HistoryPage,
        IdGranted,
        MaintenancesAnswer,
        Problem,
        SetAnswer,
        SetPage,
        SettingsAnswer,
        TokensAnswer,
        *Joined.__subclasses__(),
    }
}
# Only codes that say "nothing was executed here". OVERLOADED says so too, and is not among them: three controllers'
# worth of retries by each client is what an overloaded leader needs least.
_TRY_ELSEWHERE = frozenset({"NO_LEADER", "NOT_LEADER", "NOT_READY"})
_NO_ANSWER = "NO_ANSWER"
_OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
_UNAUTHENTICATED = "UNAUTHENTICATED"


class Reached(Frozen):
    """One controller of a survey; ``status`` None: it did not answer, and ``trouble`` says why, with its address."""

    address: str
    status: FleetStatus | None
    trouble: str = ""
    asked_at_ms: int = 0
    """UTC of this machine when the question was sent."""
    answered_at_ms: int = 0
    """The same when its answer was there."""


class _Call(Frozen):
    """One request, the same for every controller that it is tried on."""

    method: str
    path: str
    params: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    request_id: RequestId | None = None
    wait_ms: int = 0
    """How long the server was asked to hold the answer."""
    limit_ms: int | None = None
    """How long this call may look for a leader, and each attempt may take; None: as the client's do."""


class _Findings(msgspec.Struct):
    """What the attempts of one call have come to."""

    answered: bool = False
    may_have_run: bool = False
    troubles: dict[str, str] = msgspec.field(default_factory=dict)
    untrusted: set[str] = msgspec.field(default_factory=set)
    """Where TLS failed for a reason that asking again does not change."""
    unknown_to: Problem | None = None
    """The last answer that says: nobody known asks."""

    def error(self, call: _Call) -> ClientError:
        """The one error that says most about them."""
        what = "; ".join(f"{base}: {trouble}" for base, trouble in self.troubles.items())
        # First: an election whose answer was lost on c1 may be committed although c2 said "no leader" afterwards. Told
        # that nothing happened, the operator might move the master elsewhere, and depose the one that is just serving.
        if self.may_have_run and call.request_id is not None:
            return OutcomeUnknown(call.request_id, what)
        if self.unknown_to is not None:
            return RefusedError(self.unknown_to)
        if self.answered:
            return NoLeader(what)
        if self.untrusted:
            return NotTrusted(what)
        return Unreachable(what or "no controller address is known")


class EventQuery(TypedDict, total=False):
    """Which events, and how long to wait for one; by default 200 of any set and caller, without a wait."""

    start: EventRef | None
    key: SetKey | None
    limit: int
    wait_ms: int
    is_newest: bool
    by: str | None
    """Only those that this caller (name, or role:name) asked for."""


class Client:
    """Asks the controllers of one fleet. Close it, or use it in a ``with`` statement."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        requested_by: str = "",
        identity: Identity | None = None,
        token: str = "",
        limit_ms: int = LIMIT_MS,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
        draw: Callable[[], float] = random.random,
        utc_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """
        Know where the controllers are; nothing is sent yet.

        Args:
            addresses: ``host:port``, ``https://host:port`` or ``http://host:port`` of each controller's REST port;
                others raise ``ValueError``. Of a name with several addresses each is asked.
            requested_by: Name of the caller; it becomes part of the record of every mutating call of an insecure fleet.
            identity: Whom to trust and what to show; None or without an authority: ``host:port`` is asked without TLS.
                Its files are read here; raises ``identity.IdentityError``.
            token: A bearer token, in place of that of ``identity``.
            limit_ms: How long one call may look for a leader.
            transport: Takes the place of the network in tests.
            clock: Monotonic seconds.
            pause: Waits the given seconds between two rounds.
            draw: A number from 0 to 1, for the length of the pause.
            utc_ms: The clock of this machine.
        """
        identity = identity or Identity()
        context = identity.context()
        self._scheme = "http" if context is None else "https"
        self._given = tuple(base_url(address, self._scheme) for address in addresses)
        self._names: dict[str, str] = {}
        """The host name behind a base that is one of its addresses."""
        self._token = token or identity.token()
        self._leader: str | None = None
        self._limit_ms = limit_ms
        self._clock = clock
        self._pause = pause or threading.Event().wait
        self._draw = draw
        self._utc_ms = utc_ms
        headers = {REQUESTED_BY_HEADER: requested_by} if requested_by else {}
        # No environment: with HTTP_PROXY set, elections would travel through a proxy that may send them twice. No
        # redirects by httpx: it would follow one to any host, and hide which controller leads.
        verify = True if context is None else context
        self._http = httpx.Client(
            transport=transport, headers=headers, follow_redirects=False, trust_env=False, verify=verify
        )
        self._bases = self._given if transport is not None else tuple(self._addresses_of_names())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- reads -------------------------------------------------------------------------------------------------------

    def survey(self) -> tuple[Reached, ...]:
        """
        Ask every known controller about itself, all at once, without looking for a leader. Never raises.

        The answers hold no sets: ``status_from`` fetches them from the one that the caller believes.
        """
        if not self._bases:
            return ()
        # All at once: one after the other, two hanging controllers would hold the page for 6 s.
        with ThreadPoolExecutor(max_workers=len(self._bases)) as pool:
            return tuple(pool.map(self._look_at, self._bases))

    def members_by(self, address: str) -> tuple[ControllerStatus, ...]:
        """All controllers, as one of them has just heard of them over their own links. Raises ``ClientError``."""
        call = _Call(method="GET", path="/v1/controllers")
        return self._decode(self._once(base_url(address, self._scheme), call), ControllersAnswer).controllers

    def status_from(self, address: str) -> FleetStatus:
        """Everything that one controller knows, by its own state, stale or not. Raises ``ClientError``."""
        base = base_url(address, self._scheme)

        def page(after: str | None) -> FleetStatus:
            call = _Call(method="GET", path="/v1/status", params=_page_params("local", after))
            return self._decode(self._once(base, call), FleetStatus)

        return _all_pages(page)

    def newest_event_by(self, address: str) -> EventPage:
        """The end of the journal of one controller. Raises ``ClientError``."""
        call = _Call(method="GET", path="/v1/events", params={"limit": "1", "newest": "true"})
        return self._decode(self._once(base_url(address, self._scheme), call), EventPage)

    def text_from(self, address: str, path: str, params: dict[str, str], *, wait_ms: int = 0) -> bytes:
        """One controller's own answer to a read, held for up to ``wait_ms``. Raises ``ClientError``."""
        call = _Call(
            method="GET", path=path, params=params | ({"waitMs": str(wait_ms)} if wait_ms else {}), wait_ms=wait_ms
        )
        return self._once(base_url(address, self._scheme), call)

    def status(self) -> FleetStatus:
        """The leader's linearizable view of the fleet with all sets. Raises ``ClientError``."""
        return _all_pages(lambda after: self._read("/v1/status", FleetStatus, _page_params("linearizable", after)))

    def sets(self, *, consistency: str = "linearizable", limit_ms: int | None = None) -> SetPage:
        """All sets, page after page, each within ``limit_ms`` instead of the client's. Raises ``ClientError``."""

        def page(after: str | None) -> SetPage:
            return self._read("/v1/sets", SetPage, _page_params(consistency, after), limit_ms=limit_ms)

        return _all_pages(page)

    def set(self, key: SetKey, *, consistency: str = "linearizable", limit_ms: int | None = None) -> SetAnswer:
        """One set, within ``limit_ms`` instead of the client's. Raises ``ClientError``."""
        return self._read(set_path(key), SetAnswer, {"consistency": consistency}, limit_ms=limit_ms)

    def members(self) -> ControllerStatus:
        """The leader, with the controllers by its log. Raises ``ClientError``."""
        return self._read("/v1/status", FleetStatus, {"limit": "1"}).controller

    def settings(self) -> SettingsAnswer:
        """Those in force, and the versions before. Raises ``ClientError``."""
        return self._read("/v1/settings", SettingsAnswer)

    def maintenances(self) -> MaintenancesAnswer:
        """Those in force, oldest first. Raises ``ClientError``."""
        return self._read("/v1/maintenance", MaintenancesAnswer)

    def certificates(self, *, consistency: str = "linearizable") -> CertificatesAnswer:
        """The revoked certificates. Raises ``ClientError``."""
        return self._read("/v1/certificates", CertificatesAnswer, {"consistency": consistency})

    def tokens(self) -> TokensAnswer:
        """Every token that is kept, without its digest. Raises ``ClientError``."""
        return self._read("/v1/tokens", TokensAnswer)

    def consuming(self, kind: type[Told], what: str, **params: str) -> Told:
        """``topics`` or ``groups`` of all sets, or one of them (``topics/NAME``). Raises ``ClientError``."""
        path = f"/v1/{what}"
        found = last = self._read(path, kind, params)
        rows = [each for each in kind.__struct_fields__ if each not in Joined.__struct_fields__]
        while last.next_after is not None or last.next_set is not None:
            after, read = last.next_after, found.read
            params = params | ({"fromSet": last.next_set or "", "after": ""} if after is None else {"after": after})
            last = self._read(path, kind, params)
            joined: dict[str, Any] = {each: (*getattr(found, each), *getattr(last, each)) for each in rows}
            found = msgspec.structs.replace(found, **joined, read=read if after else (*read, *last.read))
        return msgspec.structs.replace(found, next_after=None, next_set=None)

    def history(self, key: SetKey, *, limit: int = 50, before: MasterEpoch | None = None) -> HistoryPage:
        """The last ``limit`` reigns, newest first. Raises ``ClientError``."""
        params = {"limit": str(limit)} | ({"before": str(before)} if before is not None else {})
        return self._read(f"{set_path(key)}/history", HistoryPage, params)

    def explain(self, key: SetKey, epoch: MasterEpoch) -> Explanation:
        """The decision record of one epoch. Raises ``ClientError``."""
        return self._read(f"{set_path(key)}/epochs/{epoch}", Explanation)

    def events(self, **query: Unpack[EventQuery]) -> EventPage:
        """
        Events from ``start`` on, or the newest ones; without any, the answer is held up to ``wait_ms``.

        A page without any is the end only if its ``next_from`` is None. Raises ``ClientError``.
        """
        return self._decode(self.events_text(**query), EventPage)

    def events_text(self, **query: Unpack[EventQuery]) -> bytes:
        """``events`` as they were sent, with fields that only a newer controller knows. Raises ``ClientError``."""
        start, key, by, wait_ms = query.get("start"), query.get("key"), query.get("by"), query.get("wait_ms", 0)
        params = {"limit": str(query.get("limit", 200)), "waitMs": str(wait_ms)}
        if start is not None:
            params["from"] = str(start)
        if key is not None:
            params["set"] = str(key)
        if query.get("is_newest"):
            params["newest"] = "true"
        if by is not None:
            params["by"] = by
        return self._ask(_Call(method="GET", path="/v1/events", params=params, wait_ms=wait_ms))

    # --- orders ------------------------------------------------------------------------------------------------------

    def order(self, asked: AnsweredBy[Answer], *, request_id: RequestId | None = None) -> Answer:
        """
        Give one of the orders of ``contract.orders``: a command, or the request that the leader makes one of.

        A switchover returns at its end, which may be that the old master serves again; while leaders change it may
        still go on: ``row.end`` is None. Raises ``ClientError``; the refusal of an election has the verdict on every
        replica.
        """
        row, identity = order_of(asked), request_id or new_request_id()
        path, body, until = row.path_of(asked), row.body_of(asked), self._clock()
        if isinstance(asked, OrderSwitchover):
            # Each leader that it meets gives it its deadline anew; three are what this call waits for.
            until += (3 * asked.deadline_ms + LIMIT_MS) / 1000
        while True:
            answer: Answer = self._post(path, body, row.gives, identity)
            if not isinstance(answer, SwitchoverAnswer) or answer.row.end is not None or self._clock() >= until:
                return answer

    @overload
    def preview(self, asked: AnsweredBy[Elected]) -> ElectionPreview: ...

    @overload
    def preview(self, asked: BrokerOrder) -> BrokersAnswer: ...

    @overload
    def preview(self, asked: AnsweredBy[Any]) -> OrderPreview: ...

    def preview(self, asked: AnsweredBy[Any]) -> ElectionPreview | BrokersAnswer | OrderPreview:
        """
        What ``order`` would do; changes nothing.

        Raises ``ClientError``; what would be refused raises ``RefusedError``, as the real order would.
        """
        row = order_of(asked)
        # The call has no request id of its own: a dry run does nothing, so nothing about it can be unknown.
        body = row.body_of(asked) | {"dryRun": True, "requestId": new_request_id()}
        call = _Call(method="POST", path=row.path_of(asked), body=msgspec.json.encode(body))
        return self._decode(self._ask(call), row.previews)

    def apply_broker_id(self, command: ApplyBrokerId) -> IdGranted:
        """Bind a broker id to a register code for ever: the same code gets the same id. Raises ``ClientError``."""
        return self._post("/v1/broker-ids", msgspec.to_builtins(command), IdGranted, new_request_id())

    # --- how ----------------------------------------------------------------------------------------------------

    def _read(
        self, path: str, kind: type[T], params: dict[str, str] | None = None, *, limit_ms: int | None = None
    ) -> T:
        return self._decode(self._ask(_Call(method="GET", path=path, params=params or {}, limit_ms=limit_ms)), kind)

    def _post(self, path: str, body: dict[str, Any], kind: type[T], request_id: RequestId) -> T:
        # One id for all attempts, and in the body: the second attempt is the same bytes. With a fresh id for each, the
        # order would be judged twice: after a lost answer its caller hears "2 is master already", a refusal of an order
        # that was done.
        content = msgspec.json.encode({**body, "requestId": request_id})
        call = _Call(method="POST", path=path, body=content, request_id=request_id)
        return self._decode(self._ask(call), kind, request_id=request_id)

    def _look_at(self, base: str) -> Reached:
        call = _Call(method="GET", path="/v1/status", params={"consistency": "local", "limit": "1"})
        asked_at_ms = self._utc_ms()
        try:
            status = self._decode(self._once(base, call), FleetStatus)
            return Reached(address=base, status=status, asked_at_ms=asked_at_ms, answered_at_ms=self._utc_ms())
        except ClientError as error:
            # These have no line "What to do": a caller by plain HTTP would hear of TLS, and not what to give.
            told = f"{error}; {error.problem.hint}" if isinstance(error, RefusedError) else str(error)
            return Reached(address=base, status=None, trouble=told if told.startswith(base) else f"{base}: {told}")

    def _once(self, base: str, call: _Call) -> bytes:
        """Ask one controller, once."""
        findings = _Findings()
        content, _ = self._attempt(base, call, findings)
        if content is None:
            raise findings.error(call)
        return content

    def _ask(self, call: _Call) -> bytes:
        """Try the leader of the last call, then all others, each with the leader that it names, until time is up."""
        findings = _Findings()
        limit_ms = self._limit_ms if call.limit_ms is None else call.limit_ms
        deadline = self._clock() + limit_ms / 1000
        while True:
            for base in self._round():
                content, hint = self._attempt(base, call, findings)
                if content is None and hint is not None and hint != base:
                    # One hop, not more: right after a failover c1 names c2 and c2 still names c1, for ever.
                    base, (content, _) = hint, self._attempt(hint, call, findings)  # noqa: PLW2901 - followed once a round
                if content is not None:
                    self._leader = base
                    return content
            # Forgotten after a fruitless round: a leader that hangs would cost the next call 3 s before it looks
            # further.
            self._leader = None
            # Asked after a whole round, not before: with a short limit each controller is still tried once. And a
            # caller whom nobody knows, or who trusts nobody, is the same in the next round.
            if self._clock() >= deadline or findings.unknown_to or findings.untrusted.issuperset(self._bases):
                raise findings.error(call)
            # Jitter: with a fixed pause, all clients that lost one leader ask the next one in step, round after round.
            self._pause(ROUND_PAUSE_MS / 1000 * (0.5 + self._draw()))

    def _addresses_of_names(self) -> Iterator[str]:
        """What was given; a name of several addresses as each of them. Blocks while names are resolved."""
        for base in self._given:
            parts = urlsplit(base)
            found = resolved(parts.hostname or "", parts.port or 0)
            if len(found) < 2:
                yield base
                continue
            for host in found:
                one = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"
                self._names[one] = parts.hostname or ""
                yield one

    def _round(self) -> Iterator[str]:
        if self._leader is not None:
            yield self._leader
        yield from (base for base in self._bases if base != self._leader)

    def _attempt(self, base: str, call: _Call, findings: _Findings) -> tuple[bytes | None, str | None]:
        """
        One try on one controller: the body of a success, or the leader that it names, or neither.

        Raises ``RefusedError`` and ``BadAnswer``, which no other controller would answer differently.
        """
        # The time for which the server may hold the answer comes on top: else each long poll would end as lost.
        attempt_ms = ATTEMPT_MS_MAX if call.limit_ms is None else min(ATTEMPT_MS_MAX, call.limit_ms)
        timeout = httpx.Timeout((attempt_ms + call.wait_ms) / 1000, connect=min(CONNECT_MS_MAX, attempt_ms) / 1000)
        headers = {"Content-Type": "application/json"} if call.body is not None else {}
        if call.request_id is not None:
            headers[REQUEST_ID_HEADER] = call.request_id
        # Rule 2 of ``identity``: a hint may lead to a plain port.
        if self._token and base.startswith("https:"):
            headers["Authorization"] = f"Bearer {self._token}"
        extensions: dict[str, Any] = {}
        if (name := self._names.get(base)) is not None:
            # The address is dialled, and the name is proved: without it, each address would need to be in certificates.
            headers["Host"], extensions["sni_hostname"] = f"{name}:{urlsplit(base).port}", name
        try:
            response = self._http.request(
                call.method,
                base + call.path,
                params=call.params,
                content=call.body,
                headers=headers,
                timeout=timeout,
                extensions=extensions,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # No connection, so no byte has left: this attempt alone does not make the outcome unknown. With it, each
            # election during an outage would end in "unknown" instead of "unreachable", and nobody could rely on
            # either.
            told = trouble_of(error)
            if told is not None:
                findings.untrusted.add(base)
            # The library's own words are "_ssl.c:989: The handshake operation timed out".
            silent = f"no connection within {CONNECT_MS_MAX} ms: it hangs, or its host is down or out of reach"
            is_silent = isinstance(error, httpx.ConnectTimeout)
            findings.troubles[base] = told or (silent if is_silent else str(error) or type(error).__name__)
            return None, None
        except httpx.HTTPError as error:
            # TLS 1.3 tells a client that its certificate is not taken behind its own handshake, where its request may
            # be under way already; nobody has read that.
            if (told := trouble_of(error)) is not None:
                findings.untrusted.add(base)
                findings.troubles[base] = told
                return None, None
            # Bytes may have left: a controller that got them may still commit them after we have given up.
            findings.may_have_run = True
            findings.troubles[base] = f"no answer ({type(error).__name__})"
            return None, None
        if response.is_success:
            return response.content, None
        if response.is_redirect:
            findings.answered = True
            # A follower's 307 proposes nothing, so the same order may go to the leader that it names.
            findings.troubles[base] = "not the leader"
            return None, hinted(response.headers.get("location"))
        return self._judge(base, response, findings)

    def _judge(self, base: str, response: httpx.Response, findings: _Findings) -> tuple[None, str | None]:
        try:
            problem: Problem = _DECODERS[Problem].decode(response.content)
        except msgspec.MsgspecError:
            told = f"answered {response.status_code} without a problem document"
            if response.is_server_error:
                # A proxy's 502, or a fault of the server: what stands behind it may have the order, and commit it.
                # Told "bad answer", a script takes the election for one that was not held.
                findings.answered = findings.may_have_run = True
                findings.troubles[base] = told
                return None, None
            # Not ours: some other server has the port. Its 404 must not pass for "there is no such set".
            raise BadAnswer(f"{base} {told}") from None
        findings.troubles[base] = problem.detail
        if problem.code == _NO_ANSWER:
            # A read that a follower passed on, for a second at most: asked itself, a busy leader has longer. The
            # follower names it, and not its address.
            return None, None
        findings.answered = True
        if problem.code == _OUTCOME_UNKNOWN:
            # The leader proposed it and lost its majority: it may be in the log of the next one. The same id asks
            # there.
            findings.may_have_run = True
            return None, None
        if problem.code == _UNAUTHENTICATED:
            # A token of a second ago is not known yet to a controller that is behind.
            findings.unknown_to = problem
            return None, None
        if problem.code in _TRY_ELSEWHERE:
            return None, hinted(problem.leader)
        # Definite, also after a lost answer: an order that was executed is answered by its id with the stored reply,
        # and is not judged again against the state that it made itself.
        raise RefusedError(problem)

    def _decode(self, content: bytes, kind: type[T], *, request_id: RequestId | None = None) -> T:
        try:
            decoded: T = _DECODERS[kind].decode(content)
        except msgspec.MsgspecError as error:
            told = f"the answer is not a {kind.__name__}: {error}"
            # Of an order: "200" and the page of a proxy does not say whether it was executed.
            raise (BadAnswer(told) if request_id is None else OutcomeUnknown(request_id, told)) from error
        return decoded


def new_request_id() -> RequestId:
    """A fresh id of 32 hex digits."""
    return RequestId(secrets.token_hex(16))


def _all_pages(page: Callable[[str | None], Page]) -> Page:
    """The first page with the sets of all pages: the first is the oldest, so its freshness holds for all."""
    first: Page = page(None)
    sets = [*first.sets]
    after = first.next_after
    while after is not None:
        following = page(after)
        sets.extend(following.sets)
        after = following.next_after
    return msgspec.structs.replace(first, sets=tuple(sets), next_after=None)


def _page_params(consistency: str, after: str | None) -> dict[str, str]:
    """The question for a page of sets; ``after`` None: for the first one."""
    return {"consistency": consistency, "limit": str(PAGE_SETS_MAX)} | ({"after": after} if after else {})
