"""
Questions and orders to the masters of sets, at their listen ports: what controllers do not know themselves (adr/0039).

Here: which sets, how many and how long, what each said, orders as RocketMQ's codes. Not here: routes (``consumers``,
``orders``), what a master answers (``broker.consuming``).

Rule 1: nothing waits longer than ``SET_MS_MAX``, and ``LINKS_MAX`` links are open at a time, whoever asks.
Rule 2: a set that does not answer is in the answer with its reason, and the others are told.
Rule 3: an order that was sent and not answered is ``UNKNOWN``, never "not done": its record may be confirmed yet.
Rule 4: what is there is looked at before an order is given. A dry run ends then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.controller.contract import consuming as told
from rollcall_ha.controller.contract.consuming import SETS_ASKED_MAX, Outcome, SetOutcome, SetRead
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.runtime.queries import NotFound
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import TOOL_LIMITS, dial
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials

SET_MS_MAX: Final = 2_000
CONNECT_MS_MAX: Final = 500
LINKS_MAX: Final = 16
_ABSENT: Final = (ClientResult.TOPIC_NOT_EXIST, ClientResult.SUBSCRIPTION_GROUP_NOT_EXIST)
_FAULTS: Final = (OSError, TimeoutError, RemotingError, ConfigError, msgspec.MsgspecError)
_CODES: Final[dict[type, ClientCode]] = {
    told.TopicPage: ClientCode.TELL_TOPICS,
    told.TopicAnswer: ClientCode.TELL_TOPIC,
    told.GroupPage: ClientCode.TELL_GROUPS,
    told.GroupAnswer: ClientCode.TELL_GROUP,
}
# Built at import: two threads that build a type of msgspec at once crash the interpreter.
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {kind: msgspec.json.Decoder(kind) for kind in _CODES}
_decode_config = msgspec.json.Decoder(dict[str, Any]).decode
T = TypeVar("T", bound=told.Joined)
_Request = tuple[ClientCode, Mapping[str, object], bytes]
_Step = tuple[Outcome, str, _Request | None]
"""The outcome of an order in one set, its reason, and the request that is still to be sent."""


class _Refused(Exception):
    """The master refuses, or has no answer."""

    def __init__(self, answer: Frame) -> None:
        super().__init__(answer.remark or f"code {answer.code}")
        self.is_absent = answer.code in _ABSENT


class Masters:
    """The masters of one fleet, as one controller asks them. On the loop."""

    def __init__(self, service: ControllerService, credentials: Credentials | None) -> None:
        """``credentials`` None: an insecure fleet, links are plain."""
        self._service = service
        self._credentials = credentials
        self._turns = asyncio.Semaphore(LINKS_MAX)

    async def ask(self, kind: type[T], begin: str | None, **fields: object) -> T:
        """
        The answers of at most ``SETS_ASKED_MAX`` sets, from ``begin`` on; names up to where every set has told.

        Raises ``NotFound``: one topic or group was asked for, all sets have answered, and none has it.
        """
        reads, next_set = self._masters((), begin)
        found = await asyncio.gather(*(self._ask_one(kind, read, address, fields) for read, address in reads))
        answers = [one for one, _ in found if one is not None]
        read = tuple(one for _, one in found)
        if not answers and not (next_set or begin) and not any(one.trouble for one in read) and "part" not in fields:
            what = "group" if "group" in fields else "topic"
            raise NotFound(what=f"there is no {what} {fields[what]}", hint=f"see them with: rollcall {what}s list")
        # One set has told up to "k" and has more, another up to "z": behind "k" the first may have what comes before.
        end = min((one.next_after for one in answers if one.next_after is not None), default=None)
        rows: dict[str, Any] = {
            each: tuple(row for one in answers for row in getattr(one, each))
            for each in kind.__struct_fields__
            if each not in told.Joined.__struct_fields__
        }
        if end is not None:
            rows = {each: tuple(row for row in all_ if getattr(row, each[:-1]) <= end) for each, all_ in rows.items()}
        return kind(read=read, next_set=next_set, next_after=end, **rows)

    async def _ask_one(
        self, kind: type[T], read: SetRead, address: str, fields: Mapping[str, object]
    ) -> tuple[T | None, SetRead]:
        if read.trouble:
            return None, read
        try:
            async with self._link(read, address) as link:
                answer = await _look(link, kind, fields)
        except _Refused as refused:
            return None, read if refused.is_absent else replace(read, trouble=str(refused))
        except _FAULTS as error:
            return None, replace(read, trouble=_words(read, address, error))
        return answer, replace(read, left_off=sum(one.left_off for one in answer.read))

    async def give(self, asked: told.BrokerOrder, *, is_dry_run: bool) -> told.BrokersAnswer:
        """Give an order to the sets that it names, or say what it would do. Raises ``NotFound``: no such set."""
        reads, next_set = self._masters(asked.sets, asked.from_set)
        given = (self._give_one(asked, read, address, is_dry_run=is_dry_run) for read, address in reads)
        outcomes = [
            SetOutcome(set_key=read.set_key, outcome=outcome, reason=reason)
            for (outcome, reason), (read, _) in zip(await asyncio.gather(*given), reads, strict=True)
        ]
        return told.BrokersAnswer(outcomes=tuple(outcomes), next_set=next_set)

    async def _give_one(
        self, asked: told.BrokerOrder, read: SetRead, address: str, *, is_dry_run: bool
    ) -> tuple[Outcome, str]:
        if read.trouble:
            return Outcome.NOT_REACHED, read.trouble
        is_sent = False
        try:
            async with self._link(read, address) as link:
                outcome, reason, request = await _step(link, asked)
                if request is None or is_dry_run:
                    return outcome, reason
                is_sent = True
                await _request(link, *request)
        except _Refused as refused:
            return Outcome.ABSENT if refused.is_absent else Outcome.REFUSED, str(refused)
        except _FAULTS as error:
            # Rule 3.
            return Outcome.UNKNOWN if is_sent else Outcome.NOT_REACHED, _words(read, address, error)
        return Outcome.DONE, reason

    def _masters(self, named: Sequence[SetKey], begin: str | None) -> tuple[list[tuple[SetRead, str]], str | None]:
        """Masters and addresses of the named sets, or of all, from ``begin`` on; and the first that is left."""
        sets = self._service.published.state.sets
        if absent := set(named) - sets.keys():
            raise NotFound(what=f"set {min(absent)} does not exist", hint="list the sets with: rollcall sets")
        found: list[tuple[SetRead, str]] = []
        for key in sorted(set(named) or sets):
            view = self._service.view_of(key) if str(key) >= (begin or "") else None
            if view is None or view.condition is Condition.CLEANED:
                continue
            if len(found) == SETS_ASKED_MAX:
                return found, str(key)
            address = next((one.description.address for one in view.members if one.broker_id == view.master), "")
            trouble = "" if address else f"it has no master: {view.condition_reason}"
            found.append((SetRead(set_key=key, broker_id=view.master, trouble=trouble), address))
        return found, None

    @asynccontextmanager
    async def _link(self, read: SetRead, address: str) -> AsyncIterator[RemotingConnection]:
        """Raises ``_FAULTS``, within ``SET_MS_MAX`` for all that is done in it."""
        kinds, expected = frozenset({PeerKind.BROKER}), None
        if self._credentials is not None:
            expected = ExpectedPeer(credentials=self._credentials, kinds=kinds, set_key=str(read.set_key))
        async with asyncio.timeout(SET_MS_MAX / 1000), self._turns:
            link = await dial(address, timeout_ms=CONNECT_MS_MAX, limits=TOOL_LIMITS, expected=expected)
            try:
                yield link
            finally:
                link.close("it was asked")


def _words(read: SetRead, address: str, error: BaseException) -> str:
    return f"broker {read.broker_id} at {address}: {str(error) or f'no answer within {SET_MS_MAX} ms'}"


async def _request(
    link: RemotingConnection, code: ClientCode, fields: Mapping[str, object], body: bytes = b""
) -> bytes:
    """The body of the answer. Raises ``_Refused``, ``RemotingError``."""
    texts = {name: str(value) for name, value in fields.items()}
    answer = await link.request(code, ext_fields=texts, body=body, timeout_ms=SET_MS_MAX)
    if answer.code:
        raise _Refused(answer)
    return answer.body


async def _look(link: RemotingConnection, kind: type[T], fields: Mapping[str, object]) -> T:
    """Raises ``_Refused``, ``RemotingError``, ``MsgspecError``."""
    found: T = _DECODERS[kind].decode(await _request(link, _CODES[kind], fields))
    return found


async def _step(link: RemotingConnection, asked: told.BrokerOrder) -> _Step:
    """Rule 4. Raises as ``_look``."""
    match asked:
        case told.CreateTopic() | told.ChangeTopic() | told.DeleteTopic():
            try:
                config = _decode_config(await _request(link, ClientCode.GET_TOPIC_CONFIG, {"topic": asked.topic}))
            except _Refused as refused:
                if not refused.is_absent:
                    raise
                config = {}
            return _topic_step(asked, config)
        case told.ChangeGroup():
            try:
                await _look(link, told.GroupAnswer, {"group": asked.group})
                is_there = True
            except _Refused as refused:
                if not (refused.is_absent and isinstance(asked, told.CreateGroup)):
                    raise
                is_there = False
            # Settings of a group that is not there are told, too: the defaults.
            found = await _request(link, ClientCode.GET_GROUP_CONFIG, {"group": asked.group})
            return _group_step(asked, _decode_config(found), is_there=is_there)
        case told.DeleteGroup():
            fields: dict[str, object] = {"group": asked.group}
            code, more = ClientCode.DELETE_GROUP, {"cleanOffset": str(not asked.keeps_offsets).lower()}
        case told.ResetGroup():
            fields = {"group": asked.group, "topic": asked.topic}
            code, more = ClientCode.INVOKE_BROKER_TO_RESET_OFFSET, {"timestamp": str(asked.to_ms)}
        case _:
            raise ValueError(f"{type(asked).__name__} is no order to a master")
    (group,) = (await _look(link, told.GroupAnswer, fields)).groups
    reason = f"{group.members} members, {group.lag} messages were behind"
    return Outcome.WOULD, reason, (code, fields | more | {"groupName": asked.group}, b"")


def _group_step(asked: told.ChangeGroup, config: dict[str, Any], *, is_there: bool) -> _Step:
    wanted = {
        "retryMaxTimes": asked.retries_max,
        "consumeEnable": asked.may_consume,
        "consumeBroadcastEnable": asked.may_broadcast,
        "consumeMessageOrderly": asked.is_ordered,
    }
    changed = {name: value for name, value in wanted.items() if value is not None}
    was = ", ".join(f"{name} {msgspec.json.encode(config[name]).decode()}" for name in wanted)
    if is_there and isinstance(asked, told.CreateGroup):
        return Outcome.REFUSED, f"it is there: {was}; change it, or name other sets", None
    if is_there and changed.items() <= config.items():
        return Outcome.UNCHANGED, was, None
    # An order says all settings: one without those that stay would take them back to their defaults.
    return (
        Outcome.WOULD,
        f"before: {was}" if is_there else "",
        (ClientCode.UPDATE_AND_CREATE_GROUP, {}, msgspec.json.encode(config | changed)),
    )


def _topic_step(asked: told.CreateTopic | told.ChangeTopic | told.DeleteTopic, config: Mapping[str, Any]) -> _Step:
    is_new = isinstance(asked, told.CreateTopic)
    if not config and not is_new:
        return Outcome.ABSENT, f"there is no topic {asked.topic}", None
    was = f"{config['readQueueNums']} queues, {told.permission_of(config['perm'])}" if config else ""
    if config and is_new:
        return Outcome.REFUSED, f"it is there: {was}; change it, or name other sets", None
    if isinstance(asked, told.DeleteTopic):
        return Outcome.WOULD, f"before: {was}", (ClientCode.DELETE_TOPIC, {"topic": asked.topic}, b"")
    perm = None if asked.permission is None else 2 * list(told.Permission).index(asked.permission)
    wanted = {"readQueueNums": asked.queues, "writeQueueNums": asked.queues, "perm": perm}
    changed = {name: value for name, value in wanted.items() if value is not None}
    if changed.items() <= config.items():
        return Outcome.UNCHANGED, was, None
    kept = {name: config[name] for name in ("topicSysFlag", "order", *wanted) if name in config}
    fields = {name: str(value).lower() for name, value in (kept | changed).items()}
    before = was and f"before: {was}"
    return Outcome.WOULD, before, (ClientCode.UPDATE_AND_CREATE_TOPIC, fields | {"topic": asked.topic}, b"")
