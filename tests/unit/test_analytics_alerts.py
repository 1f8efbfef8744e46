"""An alert of the stream is a notice as hooks tell events: one receiver takes both, by one sender and rule of signatures."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from rollcall_ha.analytics.checks.alerts import COLUMNS, KINDS, notice_of
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.hooks import __main__ as program
from rollcall_ha.hooks.notices import SCHEMA_VERSION, Kind, Notice, trial_notice
from rollcall_ha.hooks.settings import HookSection, load
from rollcall_ha.hooks.store import Store
from rollcall_ha.hooks.webhook import Webhook
from tests.support.hook_files import command, write_hooks

NOW_S = 1_767_225_600
FOUND = dict(zip(COLUMNS, ("no-master", "prod", "f1", "broker-a", 1_000, 11_000, 1), strict=True))


def test_every_alert_is_a_notice_of_hooks() -> None:
    """Field by field, with a kind that a hook can choose; of no event."""
    fields = msgspec.json.decode(msgspec.json.encode(trial_notice("pager", "1", now_ms=0))).keys()
    for alert in KINDS:
        line = msgspec.json.encode(notice_of(FOUND | {"alert": alert}, now_ms=12_000))
        assert msgspec.json.decode(line).keys() == fields
        read = msgspec.json.decode(line, type=Notice)
        assert (read.schema, read.type, read.kind) == (SCHEMA_VERSION, alert, Kind(KINDS[alert]))
        assert (read.fleet_incarnation, str(read.set_key), read.stamped_at_ms) == ("f1", "prod/broker-a", 12_000)
        assert read.event is None
        assert msgspec.json.decode(line)["data"] == {"sinceMs": 1_000, "lastsMs": 11_000, "count": 1}


def test_the_same_alert_has_the_same_id_at_any_moment() -> None:
    """A stream that is started again tells what lasts: its receiver knows it. Another set, another beginning: another."""
    first = notice_of(FOUND, now_ms=12_000)["id"]
    assert notice_of(FOUND | {"lasts_ms": 61_000}, now_ms=62_000)["id"] == first
    others = [
        FOUND | change for change in ({"broker_set": "b"}, {"since_ms": 2_000}, {"alert": "flapping"}, {"fleet": "g"})
    ]
    assert len({first, *(notice_of(one, now_ms=12_000)["id"] for one in others)}) == 1 + len(others)


def test_it_goes_out_with_the_signature_of_hooks() -> None:
    """A receiver of webhooks checks it as any notice: over id, time and body."""
    secret, heard = b"s" * 32, list[httpx.Request]()

    def receive(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(204)

    async def send(notice: Any) -> bool:
        hook = HookSection(name="pager", kinds=(Kind.ELECTIONS,), url="http://127.0.0.1:1/")
        transport = httpx.MockTransport(receive)
        webhook = Webhook(hook, [secret], context=None, now_s=lambda: NOW_S, transport=transport)
        try:
            return (await webhook.deliver(notice["id"], notice["type"], msgspec.json.encode(notice))).is_delivered
        finally:
            await webhook.close()

    notice = notice_of(FOUND, now_ms=12_000)
    assert asyncio.run(send(notice))
    (request,) = heard
    version, signature = request.headers["webhook-signature"].split(",")
    signed = b".".join((notice["id"].encode(), str(NOW_S).encode(), request.content))
    assert version == "v1"
    assert b64decode(signature) == hmac.new(secret, signed, hashlib.sha256).digest()
    assert msgspec.json.decode(request.content, type=Notice).set_key == SetKey(cluster="prod", name="broker-a")  # type: ignore[arg-type]


def test_hooks_take_alerts_among_their_deliveries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that want the kind; what was taken before a line that is no alert waits, and the line is named."""
    file = write_hooks(tmp_path, command("pager", "/bin/true"))
    folder = load(file).path("hooks-data")
    folder.mkdir()
    notices = [notice_of(FOUND | {"alert": alert}, now_ms=12_000) for alert in ("no-master", "one-member-in-sync")]
    lines = [msgspec.json.encode(notice) for notice in notices]
    test = msgspec.json.encode(trial_notice("pager", "1", now_ms=0))

    def take(*given: bytes) -> int:
        pipe = io.TextIOWrapper(io.BytesIO(b"\n".join(given)))
        monkeypatch.setattr("sys.stdin", pipe)
        return program.main(["take", "--file", str(file)])

    store = Store.open(folder)
    try:
        assert take(*lines) == 0
        assert "2 notices taken, 1 deliveries wait" in capsys.readouterr().out
        assert take(lines[0], test) == 2
        assert "line 2 is no alert" in capsys.readouterr().err
        assert take(lines[0].replace(b'"schema":1', b'"schema":2')) == 2
        assert "schema 2, this program takes 1" in capsys.readouterr().err
        found = store.waiting_after(0)
        assert [(one.hook, one.lane, one.id) for one in found] == [("pager", "prod/broker-a", notices[0]["id"])] * 2
        assert store.body(found[0].seq) == lines[0]
    finally:
        store.close()


def test_hooks_take_no_more_alerts_than_may_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a receiver that is away for a day each alert of each batch would lie on the disk."""
    file = write_hooks(tmp_path, command("pager", "/bin/true"))
    file.write_text(file.read_text().replace("[[hooks]]", "[limits]\nwaiting_max = 10\n[[hooks]]", 1))
    folder = load(file).path("hooks-data")
    folder.mkdir()
    line = msgspec.json.encode(notice_of(FOUND, now_ms=12_000))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n".join([line] * 12))))
    store = Store.open(folder)
    try:
        assert program.main(["take", "--file", str(file)]) == 1
        assert len(store.waiting_after(0)) == 10
    finally:
        store.close()
    assert "10 deliveries wait, of at most 10 (limits.waiting_max): line 11 and" in capsys.readouterr().err
