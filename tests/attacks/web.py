"""
Attacks on REST: callers without the right, web pages in a real browser, half requests.

Here: what comes over HTTP. Not here: bad certificates (``doors``), sessions and HA links (``claims``), names on a terminal (``terminals``).
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

from rollcall_ha.api.rest.roles import ROLES
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.deploy.local.processes import our_environment, python_module
from rollcall_ha.node.certified import PeerKind
from tests.attacks.claims import ALTER, GOODBYE, HEARTBEAT, MESSAGES, PATHS, REGISTER, stolen
from tests.attacks.enemy import TIMEOUT_S, Papers, context_with, dial
from tests.attacks.scene import Attack, NotHere, Scene

LINKS = 2_000
HOLD_S = 7.0
"""Longer than a half request may take (5 s)."""
BROWSER_LIMIT_S = 60
HTTP_OK = 200


def ask(
    scene: Scene,
    method: str,
    path: str,
    body: object = None,
    *,
    papers: Papers | None = None,
    headers: dict[str, str] | None = None,
    raw: bytes | None = None,
) -> tuple[int, bytes]:
    """Status and body of one request to the leading controller."""
    link = http.client.HTTPSConnection(scene.leader_rest, timeout=TIMEOUT_S, context=context_with(papers))
    content = raw if raw is not None else (None if body is None else json.dumps(body).encode())
    try:
        link.request(method, path, content, {"Content-Type": "application/json"} | (headers or {}))
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def _admin(scene: Scene) -> Papers:
    return stolen(scene, "admin")


def elect_path(scene: Scene) -> str:
    return f"/v1/sets/{scene.key.cluster}/{scene.key.name}/elect"


def _words(status: int, body: bytes) -> str:
    try:
        return f"status {status} {json.loads(body).get('code', '')}".rstrip()
    except ValueError:
        return f"status {status}"


# --- rights ----------------------------------------------------------------------------------------------------------


def token_of(scene: Scene, role: str) -> str:
    """A new token, by the command line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "token"
        done = subprocess.run(
            python_module("rollcall_ha.cli.main", "tokens", "issue", "--role", role, "--name", "mallory", "--out", str(file)),
            capture_output=True, text=True, check=False, timeout=30, env=our_environment(), cwd=scene.fleet.directory,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"tokens issue ended with {done.returncode}: {done.stderr.strip()}")
        return file.read_text().strip()


def routes(scene: Scene, operations: Iterable[str]) -> list[tuple[str, str]]:
    """Method and path of each operation, by the document that the controller itself gives."""
    status, body = ask(scene, "GET", "/openapi.json", papers=_admin(scene))
    if status != HTTP_OK:
        raise RuntimeError(f"/openapi.json answered {status}")
    # The one route that the document leaves out.
    found = {"getOpenApi": ("GET", "/openapi.json")}
    for path, methods in json.loads(body)["paths"].items():
        full = path.replace("{cluster}", scene.key.cluster).replace("{set}", scene.key.name)
        for method, operation in methods.items():
            found[operation["operationId"]] = (method.upper(), re.sub(r"\{[^}]+\}", "x", full))
    # One that is not found fails the attack: left out, it would count as refused.
    return [found[operation] for operation in operations]


def not_for(role: Role) -> list[str]:
    """Operations of the one table that ``role`` may not call."""
    return [operation for operation, roles in ROLES.items() if role not in roles]


def refused_everywhere(scene: Scene, operations: Iterable[str], wanted: int, headers: dict[str, str]) -> str:
    got = {
        f"{method} {path}": ask(scene, method, path, {} if method == "POST" else None, headers=headers)[0]
        for method, path in routes(scene, operations)
    }
    wrong = {route: status for route, status in got.items() if status != wanted}
    return f"status {wanted} on {len(got)} routes" if got and not wrong else f"NOT REFUSED {wrong}"


def role_everywhere(role: Role, scene: Scene) -> str:
    """A token of ``role`` on every route that its role has no right to."""
    bearer = {"Authorization": f"Bearer {token_of(scene, role)}"}
    return refused_everywhere(scene, not_for(role), http.HTTPStatus.FORBIDDEN, bearer)


def nobody_everywhere(scene: Scene) -> str:
    """No certificate and no token, on every route that is not open to everybody."""
    return refused_everywhere(scene, ROLES, http.HTTPStatus.UNAUTHORIZED, {})


def broker_operation(code: int, papers: str, scene: Scene) -> str:
    """A broker's operation in the master's name, by REST, with somebody else's certificate."""
    body = MESSAGES[code](scene, scene.fleet.master(scene.key))
    return _words(*ask(scene, "POST", f"/v1/{PATHS[code]}", body, papers=stolen(scene, papers)))


def made_up_token(scene: Scene) -> str:
    return _words(*ask(scene, "GET", "/v1/sets", headers={"Authorization": "Bearer " + "A" * 43}))


def stranger_says_it_is_relayed(scene: Scene) -> str:
    """Headers that a controller might believe of another one."""
    said = {"X-Rollcall-Principal": "admin:alice", "X-Requested-By": "admin:alice", "X-Forwarded-For": "127.0.0.1"}
    return _words(*ask(scene, "POST", elect_path(scene), {"to": 2}, headers=said))


# --- web pages -------------------------------------------------------------------------------------------------------


def text_plain(scene: Scene) -> str:
    """What a page may send without asking, by a caller whose browser has an admin's certificate."""
    told = {"Content-Type": "text/plain", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    return _words(*ask(scene, "POST", elect_path(scene), {"to": 2}, papers=_admin(scene), headers=told))


def foreign_host(scene: Scene) -> str:
    return _words(*ask(scene, "GET", "/v1/sets", papers=_admin(scene), headers={"Host": "evil.example"}))


PAGE = """<!doctype html><body><iframe name="sink"></iframe>
<form id="f" method="post" enctype="text/plain" target="sink" action="%(target)s">
<input name='{"to":2,"reason":"' value='"}'></form><script>
(async () => {
  const json = {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"to":2}'};
  const tries = {
    form: async () => { document.getElementById("f").submit(); await new Promise(done => setTimeout(done, 1500)); },
    plain: () => fetch("%(target)s", {method: "POST", mode: "no-cors", body: '{"to":2}'}),
    json: () => fetch("%(target)s", json),
    read: () => fetch("%(target)s"),
    "rebound read": () => again(() => fetch("/v1/sets")),
    "rebound order": () => again(() => fetch("%(path)s", json)),
  };
  // The name has two addresses in turn: what the browser still holds of the first one ends with an error.
  async function again(ask) {
    for (let left = 20; left > 0; left--)
      try { return await ask(); } catch (error) { await new Promise(done => setTimeout(done, 200)); }
    throw "blocked";
  }
  let found;
  try { const a = await tries["%(what)s"](); found = a ? a.type + " " + a.status : "sent"; }
  catch (error) { found = "blocked"; }
  document.body.setAttribute("data-found", found);
})();
</script>"""
REBINDING_HOST = "127.0.0.3"
"""The address behind the name of the enemy's page: its own site for one link, the controller for all after it."""


class Page(http.server.BaseHTTPRequestHandler):
    """The enemy's site: one page, under every path that is none of a controller."""

    page = b""
    was_served: threading.Event

    def do_GET(self) -> None:
        # A link that was opened before the name was rebound: the browser asks anew, and then reaches the controller.
        if not self.path.startswith("/v1/"):
            self.send_response(HTTP_OK)
            self.send_header("Content-Type", "text/html")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(self.page)
            self.was_served.set()

    def do_POST(self) -> None:
        """The same: such a link ends without an answer."""

    def log_message(self, *_: Any) -> None:
        pass


def in_a_browser(what: str, scene: Scene) -> str:
    """Chromium opens a page of another site, which does ``what`` (a key of the page's ``tries``)."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise NotHere("no Chromium on the PATH: apt-get install chromium")
    port = int(scene.leader_rest.rpartition(":")[2])
    path = elect_path(scene)
    page = PAGE % {"target": f"https://127.0.0.1:{port}{path}", "path": path, "what": what}
    was_served = threading.Event()
    evil = type("Evil", (Page,), {"page": page.encode(), "was_served": was_served})
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), evil))
        stack.callback(site.shutdown)
        address = f"http://evil.example:{site.server_port}/"
        if what.startswith("rebound"):
            papers = scene.forger.papers(scene.forger.name(PeerKind.CONTROLLER, "evil"), is_foreign=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(papers.certificate, papers.key)
            site.socket = context.wrap_socket(site.socket, server_side=True)
            stack.enter_context(rebinding(port, site.server_port, was_served))
            address = f"https://evil.example:{port}/"
        threading.Thread(target=site.serve_forever, daemon=True).start()
        shown = _opened(browser, address, REBINDING_HOST if what.startswith("rebound") else "127.0.0.1")
    match = re.search(r'data-found="([^"]*)"', shown)
    if match is None:
        raise RuntimeError(f"the page did not run: {shown[-400:]}")
    return f"the page saw: {unescape(match[1])}"


def _opened(browser: str, address: str, host: str) -> str:
    """The page when its script is through, or the browser's complaint."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={folder}", "--ignore-certificate-errors", "--virtual-time-budget=15000",
             f"--host-resolver-rules=MAP evil.example {host}", "--dump-dom", address],
            capture_output=True, text=True, check=False, timeout=BROWSER_LIMIT_S,
        )  # fmt: skip
    return done.stdout or done.stderr


@contextlib.contextmanager
def rebinding(port: int, site_port: int, was_served: threading.Event) -> Iterator[None]:
    """
    DNS rebinding as a browser sees it: one name and port, first the enemy's site, then the controller.

    Not by a second answer of a name server, which Chromium asks again after a minute only: the one address leads to
    the site until the page was served, and from then on to the controller. Host, Origin and the site of the page are the same.
    """
    is_over = threading.Event()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                link, _ = listener.accept()
                link.settimeout(None)
                there = socket.create_connection(("127.0.0.1", port if was_served.is_set() else site_port))
                for ends in ((link, there), (there, link)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    with socket.create_server((REBINDING_HOST, port)) as listener:
        listener.settimeout(0.2)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(timeout=5)


# --- slow and many ---------------------------------------------------------------------------------------------------


def slow_headers(scene: Scene) -> str:
    """A second request that never becomes whole, a byte every half second."""
    papers = scene.forger.papers(scene.forger.name(PeerKind.VIEWER, "mallory"))
    began = time.monotonic()
    with dial(scene.leader_rest, context_with(papers)) as link:
        link.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        link.recv(65_536)
        link.settimeout(0.5)
        for byte in b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n":
            with contextlib.suppress(TimeoutError):
                try:
                    link.sendall(bytes([byte]))
                    if not link.recv(1):  # waits for the half second
                        break
                except ssl.SSLError as error:
                    if isinstance(error, TimeoutError):
                        raise
                    break
                except ConnectionError:
                    break
        else:
            return "NOT CLOSED"
    return f"closed after {time.monotonic() - began:.1f} s"


def half_requests(scene: Scene) -> str:
    """2,000 links with half a request, held; the status is asked all the time."""
    address = scene.leader_rest
    context = context_with(scene.forger.papers(scene.forger.name(PeerKind.VIEWER, "mallory")))
    answered: list[str] = []
    is_over = threading.Event()

    def asking() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answered.append(_words(*ask(scene, "GET", "/v1/status", papers=_admin(scene))))

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    with contextlib.ExitStack() as held:
        opened = _open_many(held, address, context, b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        time.sleep(HOLD_S)  # half requests are held for longer than they may take
    is_over.set()
    thread.join(timeout=10)
    counts = Counter(answered)
    told = ", ".join(f"{words} on {count}" for words, count in counts.items())
    return f"{opened} half requests; {'' if set(counts) == {'status 200'} else 'NOT SERVED: '}{told} others"


def idle_links(port: str, scene: Scene) -> str:
    """2,000 links that say nothing after the first byte of a handshake."""
    addresses = {
        "sessions": scene.leader_sessions,
        "ha": scene.master_ha,
        "listen": scene.fleet.file.broker(scene.fleet.master(scene.key)).listen,
        "raft": scene.fleet.file.controllers[scene.fleet.leader()].raft,
    }
    with contextlib.ExitStack() as held:
        opened = _open_many(held, addresses[port], None, b"\x16\x03\x01")
        time.sleep(HOLD_S / 2)  # held, while the load goes on
        status = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view.condition
    return f"{opened} links; {status}"


def _open_many(held: contextlib.ExitStack, address: str, context: ssl.SSLContext | None, first: bytes) -> int:
    opened = 0
    for _ in range(LINKS):
        with contextlib.suppress(OSError):
            link: socket.socket = held.enter_context(dial(address, context))
            link.sendall(first)
            opened += 1
    return opened


# --- all ------------------------------------------------------------------------------------------------------------


def attacks() -> Iterator[Attack]:
    """All of REST."""
    yield Attack(
        name="nobody on every route",
        port="rest",
        run=nobody_everywhere,
        refused_with=("status 401 on",),
        counted="refused",
    )
    for role in (Role.VIEWER, Role.OPERATOR):
        yield Attack(name=f"{'an' if role is Role.OPERATOR else 'a'} {role}'s token on every route of others", port="rest",
                     run=partial(role_everywhere, role), refused_with=("status 403 on",), counted="refused")  # fmt: skip
    yield Attack(
        name="a token that was made up", port="rest", run=made_up_token, refused_with=("status 401",), counted="refused"
    )
    yield Attack(name="headers that only a controller may send", port="rest", run=stranger_says_it_is_relayed,
                 refused_with=("status 401",), counted="refused")  # fmt: skip
    for code, what in ((REGISTER, "takes over the master's identity"), (HEARTBEAT, "beats for the master"),
                       (ALTER, "shrinks the SyncStateSet"), (GOODBYE, "says the master's goodbye")):  # fmt: skip
        yield Attack(name=f"one POST {what}, certificate of another set", port="rest",
                     run=partial(broker_operation, code, "broker-b-1"), refused_with=("status 403",), counted="refused")  # fmt: skip
        yield Attack(name=f"one POST {what}, an admin's certificate", port="rest",
                     run=partial(broker_operation, code, "admin"), refused_with=("status 403",), counted="refused")  # fmt: skip
    yield Attack(name="text/plain of another site, with an admin's certificate", port="rest", run=text_plain,
                 refused_with=("status 403", "status 415"), counted="refused")  # fmt: skip
    yield Attack(name="a foreign Host, with an admin's certificate", port="rest", run=foreign_host,
                 refused_with=("status 421",), counted='reason="host"')  # fmt: skip
    for what, name, saw, reason in (
        ("form", "a form of another site", "sent", "cross-site"),
        ("plain", "text/plain of another site", "opaque 0", "cross-site"),
        ("json", "an order in JSON of another site", "blocked", ""),  # its browser asks first, and is not let
        ("read", "a page of another site reads", "blocked", ""),
        ("rebound read", "a rebound name reads", "basic 421", "host"),
        ("rebound order", "a rebound name orders in JSON", "basic 421", "host"),
    ):
        yield Attack(name=f"Chromium: {name}", port="rest", run=partial(in_a_browser, what),
                     refused_with=(f"the page saw: {saw}",),
                     counted=f'rollcall_rest_requests_refused_total{{reason="{reason}"}}' if reason else "")  # fmt: skip
    yield Attack(name="slow headers: a byte every half second", port="rest", run=slow_headers,
                 refused_with=("closed after",), counted='port="rest",reason="slow-frame"')  # fmt: skip
    yield Attack(name=f"{LINKS} half requests", port="rest", run=half_requests, refused_with=("; status 200 on",),
                 counted='port="rest"')  # fmt: skip
    for port in ("sessions", "listen", "ha", "raft"):
        label = {"sessions": "broker"}.get(port, port)
        yield Attack(name=f"{LINKS} links with half a handshake", port=port, run=partial(idle_links, port),
                     refused_with=("; serving",), counted=f'rollcall_links_closed_total{{port="{label}"')  # fmt: skip
