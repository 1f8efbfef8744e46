"""
The work of ``rollcall produce`` and ``rollcall consume``.

Here: which brokers are asked and with which certificate, lines to messages and back. Not here: arguments
(``messages``), sending and reading (``broker.client``).

Rule 1: what is printed is finished, and what could not be printed is not: a reader that goes loses nothing.
Rule 2: what is printed to a terminal is shown, never obeyed; into a pipe or a file go the bytes as they are.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import string
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from rollcall_ha.broker.client.consumer import Consumer, ConsumerError, Start
from rollcall_ha.broker.client.messages import Message
from rollcall_ha.broker.client.producer import BODY_BYTES_MAX, Producer, SendFailedError
from rollcall_ha.broker.client.sets import find_sets, is_ours
from rollcall_ha.broker.protocol.codes import SendOutcome
from rollcall_ha.broker.protocol.consumers import Subscription
from rollcall_ha.broker.protocol.topics import DEFAULT_TOPIC
from rollcall_ha.cli import context
from rollcall_ha.cli.options import BrokerOptions, ReadOptions, SendOptions
from rollcall_ha.cli.output import CommandExit, complain, fail, wrong_use
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError, split_address
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.terminal import harmless
from rollcall_ha.node.tls import Credentials, TlsFiles, TlsFilesError

SENDERS: Final = 256
"""Lines without an answer."""
READ_BYTES: Final = 64 * 1024
IDLE_MS: Final = 200
"""Without a message for so long, ``--no-wait`` asks whether there are more."""
FIELDS: Final = ("body", "topic", "queue", "offset", "tag", "key", "id", "time")
NEW_TOPIC_QUEUES: Final = 4
"""Of a topic that has the route of ``DEFAULT_TOPIC`` still."""


def places(where: BrokerOptions) -> tuple[tuple[str, ...], Credentials | None]:
    """Addresses to ask, and whose certificate is shown; None: plain links. Raises ``typer.Exit``."""
    if where.brokers and where.name_servers:
        raise fail("rollcall: --brokers and --name-servers exclude each other", CommandExit.WRONG_USE)
    with wrong_use(ConfigError):
        for one in _split(where.name_servers or where.brokers):
            split_address(one)
    if where.name_servers:
        return _split(where.name_servers), None
    found = _split(where.brokers)
    if not found:
        with context.client() as asking:
            page = asking.sets(consistency="local")
        # One of each set knows the others: its master, or else whoever lives.
        living = ([one for one in status.replicas if one.is_alive] for status in page.sets)
        found = tuple(max(replicas, key=lambda one: one.is_master).address for replicas in living if replicas)
        if not found:
            raise fail("rollcall: the fleet has no living broker; rollcall status says why", CommandExit.UNREACHABLE)
    identity = context.identity()
    if identity.authority is None:
        return found, None
    if identity.certificate is None or identity.key is None:
        told = "rollcall: brokers want a certificate; name one by --identity (rollcall certs issue makes it)"
        raise fail(told, CommandExit.NOT_PERMITTED)
    files = TlsFiles(authority=identity.authority, certificate=identity.certificate, key=identity.key)
    with wrong_use(TlsFilesError):
        return found, Credentials(files, fleet="", name=None)


def _split(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.replace(";", ",").split(",") if one.strip())


# --- produce ---------------------------------------------------------------------------------------------------------


def produce(topic: str, properties: dict[str, str], options: SendOptions, where: BrokerOptions) -> None:
    """Raises ``typer.Exit`` unless every line was acknowledged."""
    seeds, credentials = places(where)
    with wrong_use(OSError):
        source = sys.stdin.fileno() if options.file is None else os.open(options.file, os.O_RDONLY)
    sending = _Sending(topic, properties, options)
    _run(sending.run(source, seeds, credentials))
    counts = ", ".join(f"{count} {what}" for what, count in sending.counts.items() if count or what == "acknowledged")
    complain(f"{topic}: {counts}")
    if sending.failure:
        raise fail(f"rollcall: line {sending.failed_line}: {sending.failure}", sending.exit_code)


class _Sending:
    """One ``produce``."""

    def __init__(self, topic: str, properties: dict[str, str], options: SendOptions) -> None:
        self.counts = {"acknowledged": 0, "not in the log": 0, "perhaps in the log": 0}
        self.failure = ""
        self.failed_line = 0
        self.exit_code = CommandExit.REFUSED
        self._topic, self._properties = topic, properties
        self._queue, self._is_verbose = options.queue, options.verbose
        self._producers: list[Producer] = []
        self._number = 0

    async def run(self, source: int, seeds: tuple[str, ...], credentials: Credentials | None) -> None:
        lines = _Lines(source)
        async with AsyncExitStack() as stack:
            for producer in await _producers(self._topic, seeds, credentials):
                self._producers.append(await stack.enter_async_context(producer))
            lines.start()
            await asyncio.gather(*(self._send_all(lines) for _ in range(SENDERS)))
        if lines.trouble and not self.failure:
            self.failure, self.failed_line = f"cannot be read: {lines.trouble}", self._number + 1

    async def _send_all(self, lines: _Lines) -> None:
        while not self.failure and (line := await lines.next()) is not None:
            self._number = number = self._number + 1
            producer = self._producers[number % len(self._producers)]
            try:
                result = await producer.send(self._topic, line, queue_id=self._queue, properties=self._properties)
            except (SendFailedError, ValueError) as error:
                is_unknown = isinstance(error, SendFailedError) and error.outcome is SendOutcome.UNKNOWN
                self._note(number, str(error), is_unknown=is_unknown)
                return
            except asyncio.CancelledError:
                self._note(number, "interrupted before its acknowledgement", is_unknown=True)
                raise
            self.counts["acknowledged"] += 1
            if self._is_verbose:
                offset = "-" if result.queue_offset is None else result.queue_offset
                sys.stdout.write(f"{result.message_id or '-'} {result.queue_id} {offset}\n")

    def _note(self, number: int, reason: str, *, is_unknown: bool) -> None:
        self.counts["perhaps in the log" if is_unknown else "not in the log"] += 1
        if not self.failure:
            self.failure, self.failed_line = reason, number
        if is_unknown:
            self.exit_code = CommandExit.OUTCOME_UNKNOWN


async def _producers(topic: str, seeds: tuple[str, ...], credentials: Credentials | None) -> list[Producer]:
    """One for each set. Raises ``typer.Exit``: no seed knows one (4)."""
    kinds = frozenset({PeerKind.BROKER})
    expected = None if credentials is None else ExpectedPeer(credentials=credentials, kinds=kinds)
    asked = topic
    found, troubles, _ = await find_sets(seeds, [topic], expected)
    if not found and troubles:
        asked = DEFAULT_TOPIC
        found, more, _ = await find_sets(seeds, [asked], expected)
        troubles += more
    if not found:
        raise fail(f"rollcall: no broker for {topic}: {'; '.join(dict.fromkeys(troubles))}", CommandExit.UNREACHABLE)
    made = []
    for name, one in sorted(found.items()):
        count = one.queue_counts[asked] if asked == topic else min(NEW_TOPIC_QUEUES, one.queue_counts[asked])
        if await is_ours(one, expected):
            made.append(Producer(one.addresses, queue_count=count, credentials=credentials))
        else:
            made.append(Producer(seeds, queue_count=count, topic=asked, set_name=name))
    return made


class _Lines:
    """Lines of a descriptor, read on a thread: a terminal or a pipe may say nothing for hours."""

    def __init__(self, source: int) -> None:
        self.trouble = ""
        """Why they ended before their end."""
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_empty = threading.Event()
        self._is_empty.set()

    def start(self) -> None:
        # Not the loop's own threads: at the end it would wait for one that waits for a line.
        threading.Thread(target=self._run, name="lines", daemon=True).start()

    async def next(self) -> bytes | None:
        """None: there are no more."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)  # for all others who ask
        elif self._lines.empty():
            self._is_empty.set()
        return line

    def _run(self) -> None:
        rest = b""
        try:
            # A line without an end would fill the memory: too long, it is refused where it stands.
            while len(rest) <= BODY_BYTES_MAX and (data := os.read(self._source, READ_BYTES)):
                *whole, rest = (rest + data).split(b"\n")
                if whole:
                    self._give(whole)
        except OSError as error:
            rest, self.trouble = b"", str(error)
        self._give([rest, None] if rest else [None])

    def _give(self, lines: Sequence[bytes | None]) -> None:
        """When those before them are taken: one read is ahead."""
        self._is_empty.wait()
        self._is_empty.clear()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take, lines)

    def _take(self, lines: Sequence[bytes | None]) -> None:
        for line in lines:
            self._lines.put_nowait(line)


# --- consume ---------------------------------------------------------------------------------------------------------


def check_form(form: str) -> None:
    """Raises ``ValueError``."""
    for _, name, spec, _ in string.Formatter().parse(form):
        if name is not None and (name not in FIELDS or "{" in (spec or "")):
            raise ValueError(f"--format has {{{name}{spec and f':{spec}'}}}; it may have: {', '.join(FIELDS)}")
    # Of what no text or number can be written as, the first message would be the end.
    form.format(**(dict.fromkeys(FIELDS, "") | {"offset": 0}))


def decode_start(text: str, option: str = "--from") -> Start | int:
    """``first``, ``last``, or a time in ISO 8601, of UTC if it names no zone. Raises ``ValueError``."""
    if text in list(Start):
        return Start(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{option} {text!r} is not first, last, or a time such as 2026-11-27T12:00:00Z") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def consume(topic: str, group: str, start: Start | int, options: ReadOptions, where: BrokerOptions) -> None:
    """Raises ``typer.Exit``: refused (1), not all is committed (5)."""
    seeds, credentials = places(where)
    wanted = Subscription(options.sql, kind="SQL92") if options.sql else options.tags or "*"
    with wrong_use(ValueError):
        consumer = Consumer(seeds, group=group, topics={topic: wanted}, start=start, credentials=credentials)
    try:
        _run(_print_all(consumer, options))
    except ConsumerError as error:
        raise fail(f"rollcall: {error}", CommandExit.REFUSED) from None
    is_committed = consumer.uncommitted == 0
    told = "" if is_committed else f"; {consumer.uncommitted} queues are not committed: they are given again"
    complain(f"{topic}: {consumer.messages} messages for {group}{told}")
    if not is_committed:
        raise fail(
            "rollcall: no answer to the last commit; rollcall status says how brokers are", CommandExit.OUTCOME_UNKNOWN
        )


async def _print_all(consumer: Consumer, options: ReadOptions) -> None:
    is_terminal = sys.stdout.isatty()
    async with consumer:
        async for messages in _batches(consumer, options):
            for message in messages:
                text = _json(message) if options.is_json else _text(message, options.form)
                if is_terminal:
                    sys.stdout.write(harmless(text.decode("utf-8", "backslashreplace")) + "\n")
                else:
                    sys.stdout.buffer.write(text + b"\n")
            sys.stdout.flush()
            consumer.done()


async def _batches(consumer: Consumer, options: ReadOptions) -> AsyncIterator[list[Message]]:
    left = options.count
    while True:
        messages = await consumer.poll(min(256, left) if options.count else 256, IDLE_MS)
        if messages:
            left -= len(messages)
            yield messages
        if (options.count and not left) or (not messages and not options.follow and await consumer.behind() == 0):
            return


def _fields(message: Message) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queue": f"{message.queue.broker_name}:{message.queue.queue_id}",
        "offset": message.queue_offset,
        "tag": message.tag,
        "key": " ".join(message.keys),
        "id": message.message_id,
        "time": datetime.fromtimestamp(message.stored_at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
    }


def _text(message: Message, form: str) -> bytes:
    body = message.body.decode("utf-8", "surrogateescape")
    return form.format(body=body, **_fields(message)).encode("utf-8", "surrogateescape")


def _json(message: Message) -> bytes:
    """``body``, or ``bodyBase64`` if it is no text."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode()}
    return msgspec.json.encode(_fields(message) | {"properties": message.properties} | body)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Ctrl-C and SIGTERM let it end in order; the latter is told by the exit code, as of a shell."""

    async def ended() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await work

    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(ended())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
