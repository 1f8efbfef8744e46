"""
Attacks on the eyes of an operator: names and texts with control sequences, on their ways to a terminal.

Here: ways in (what is stored and logged), and the command line before a controller that lies. Not here: requests
without a right (``web``), RocketMQ's names (``rocketmq``).

Rule: a way that is stopped says where; one that is not stopped must end in the escape of the command line.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from rollcall_ha.deploy.local.processes import our_environment, python_module
from rollcall_ha.node.certified import PeerKind
from tests.attacks.claims import speaker, stolen
from tests.attacks.enemy import TIMEOUT_S, answers, context_with, dial, frame, hear
from tests.attacks.scene import Attack, Scene
from tests.attacks.web import ask, elect_path

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202ereversed\u2066\r\nOK  forged"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys, but the ends of lines and tabs of our own tables."""
FORGED = re.compile(r"^OK  forged", re.MULTILINE)
CAME_THROUGH = "owned"
"""What every format leaves of a forged text."""
FORMATS = ("table", "wide", "tsv", "json", "yaml")
APPLY_ID = 3101


def shown_by(scene: Scene, *arguments: str, controllers: str = "") -> str:
    """What the command line prints, on both of its streams."""
    named = ("--controllers", controllers) if controllers else ()
    done = subprocess.run(
        python_module("rollcall_ha.cli.main", *named, *arguments),
        capture_output=True, check=False, timeout=30, env=our_environment(), cwd=scene.fleet.directory,
    )  # fmt: skip
    return (done.stdout + done.stderr).decode()


def commands(scene: Scene) -> tuple[tuple[str, ...], ...]:
    """Every command that shows what controllers say; the last one is refused, with a reason."""
    name = scene.key.name
    return (
        ("status",), ("sets",), ("history", name), ("explain", name), ("events", "--last", "50"),
        ("controllers", "list"), ("tokens", "list"), ("certs", "list"),
        ("elect", name, "--to", "99", "--yes"),
    )  # fmt: skip


TOKEN = {"tokenId": "forged", "digest": "0" * 64, "role": "viewer", "name": EVIL, "expiresAtMs": 1 << 42}


# --- ways in ---------------------------------------------------------------------------------------------------------


def by_rest(scene: Scene) -> str:
    """A reason, a caller's name and a token's name, by an admin."""
    papers = stolen(scene, "admin")
    got = [
        ask(scene, "POST", elect_path(scene), {"reason": EVIL, "expectedEpoch": 1 << 29}, papers=papers)[0],
        ask(scene, "POST", "/v1/tokens", TOKEN, papers=papers)[0],
    ]  # fmt: skip
    return f"status {' and '.join(map(str, got))}; {printed(scene)}"


def by_session(scene: Scene) -> str:
    """An address and a register code of a new replica, by a broker's own session."""
    body = {
        "command": "ApplyBrokerId", "setKey": speaker(scene, "broker-a-1")["setKey"], "registerCode": EVIL,
        "address": f"{EVIL}:1",
    }  # fmt: skip
    with dial(scene.leader_sessions, context_with(stolen(scene, "broker-a-1"))) as link:
        link.sendall(frame(APPLY_ID, json.dumps(body).encode()))
        heard = hear(link)
    words = heard if isinstance(heard, str) else f"code {answers(heard)[0][0]}"
    return f"{words}; {printed(scene)}"


def by_path(scene: Scene) -> str:
    """The name of a set that nobody has, in the path of an order; its refusal names it."""
    path = f"/v1/sets/{quote(EVIL, safe='')}/x/elect"
    status, _ = ask(scene, "POST", path, {"to": 1}, papers=stolen(scene, "admin"))
    return f"status {status}; {printed(scene)}"


def printed(scene: Scene) -> str:
    """Every command of the line and every log, searched."""
    lines = 0
    for arguments in commands(scene):
        text = shown_by(scene, *arguments)
        if found := OBEYED.findall(text) or FORGED.findall(text):
            return f"NOT HARMLESS: {arguments} printed {found[:4]!r}"
        lines += text.count("\n")
    logs = "".join(file.read_text() for file in sorted(scene.fleet.directory.glob("log/*")))
    if found := OBEYED.findall(logs) or FORGED.findall(logs):
        return f"NOT HARMLESS: logs have {found[:4]!r}"
    return f"nothing to obey in {lines} lines of commands and {logs.count(chr(10))} of logs"


# --- a controller that lies ------------------------------------------------------------------------------------------


def lied_to(form: str, scene: Scene) -> str:
    """Every text of every answer has them: a controller's key was stolen, or the fleet is insecure."""
    served = escaped = lines = 0
    with lying_controller(scene) as (address, count):
        for arguments in commands(scene):
            # Verbs that only orders have no formats: these print one text.
            told = () if arguments[0] == "certs" else ("--output", form)
            text = shown_by(scene, *arguments, *told, controllers=address)
            if found := OBEYED.findall(text) or FORGED.findall(text):
                return f"NOT HARMLESS: {arguments} in {form} printed {found[:4]!r}"
            escaped += text.count(CAME_THROUGH)
            lines += text.count("\n")
        served = count()
    if not served or not escaped:
        return f"NOT TRIED: {served} texts were forged, {escaped} came through"
    return f"{served} forged texts, {escaped} shown escaped in {lines} lines, none obeyed"


@contextlib.contextmanager
def lying_controller(scene: Scene) -> Iterator[tuple[str, Any]]:
    """Where it listens, and how many texts it has forged: passes questions on, and forges the words of answers."""
    papers = scene.forger.papers(scene.forger.name(PeerKind.CONTROLLER, "c1"))
    admin = context_with(stolen(scene, "admin"))
    upstream = scene.leader_rest
    forged: list[int] = [0]

    class Liar(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            link = http.client.HTTPSConnection(upstream, timeout=TIMEOUT_S, context=admin)
            try:
                link.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = link.getresponse()
                said, count = forge(answer.read())
            finally:
                link.close()
            forged[0] += count
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"] or "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers.certificate, papers.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}", lambda: forged[0]
        finally:
            server.shutdown()


FREE_TEXT = frozenset(
    {"reason", "address", "haAddress", "requestedBy", "detail", "title", "hint", "remedy", "zone", "version"}
)
"""Texts of which any is a good answer: a forged enumeration or number would be no answer at all."""


def forge(body: bytes) -> tuple[bytes, int]:
    """The answer with all its free texts forged, and how many these are."""
    count = 0

    def walk(value: Any, key: str = "") -> Any:
        nonlocal count
        if isinstance(value, dict):
            return {name: walk(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [walk(one, key) for one in value]
        if isinstance(value, str) and key in FREE_TEXT:
            count += 1
            return EVIL + value
        return value

    try:
        said = walk(json.loads(body))
    except ValueError:
        return body, 0
    return json.dumps(said, ensure_ascii=False).encode(), count


def attacks() -> Iterator[Attack]:
    """Stored, logged, and shown."""
    harmless = "; nothing to obey in "
    yield Attack(name="forged reason and token name, by an admin", port="terminal", run=by_rest,
                 refused_with=(f"status 422 and 422{harmless}",))  # fmt: skip
    yield Attack(name="forged address and register code, by a broker", port="terminal", run=by_session,
                 refused_with=(f"code 1{harmless}",))  # fmt: skip
    yield Attack(name="forged set name in a path, shown in its refusal", port="terminal", run=by_path,
                 refused_with=(f"status 404{harmless}", f"status 422{harmless}"))  # fmt: skip
    for form in FORMATS:
        yield Attack(name=f"a lying controller, shown as {form}", port="terminal", run=partial(lied_to, form),
                     refused_with=("none obeyed",))  # fmt: skip
