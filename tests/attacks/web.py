"""
Attacks on REST: callers without the right, web pages in a real browser, half requests, and names on a terminal.

Here: what comes over HTTP. Not here: bad certificates (``doors``), sessions and HA links (``claims``).
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
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

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


def _elect_path(scene: Scene) -> str:
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
            python_module("rollcall_ha.api.cli.main", "tokens", "issue", "--role", role, "--name", "mallory", "--out", str(file)),
            capture_output=True, text=True, check=False, timeout=30, env=our_environment(), cwd=scene.fleet.directory,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"tokens issue ended with {done.returncode}: {done.stderr.strip()}")
        return file.read_text().strip()


def changing_routes(scene: Scene) -> list[tuple[str, str]]:
    """Method and path of everything that changes something, by the document that the controller itself gives."""
    status, body = ask(scene, "GET", "/openapi.json", papers=_admin(scene))
    if status != HTTP_OK:
        raise RuntimeError(f"/openapi.json answered {status}")
    found = [
        (method.upper(), path.replace("{cluster}", scene.key.cluster).replace("{set}", scene.key.name))
        for path, operations in json.loads(body)["paths"].items()
        for method in operations
        if method not in ("get", "head", "options")
    ]
    return [(method, re.sub(r"\{[^}]+\}", "x", path)) for method, path in found]


def viewer_everywhere(scene: Scene) -> str:
    """A viewer's token on every changing route."""
    bearer = {"Authorization": f"Bearer {token_of(scene, 'viewer')}"}
    routes = changing_routes(scene)
    if not routes:
        raise RuntimeError("no changing route was found: nothing was tried")
    got = {f"{method} {path}": ask(scene, method, path, {}, headers=bearer)[0] for method, path in routes}
    wrong = {route: status for route, status in got.items() if status != http.HTTPStatus.FORBIDDEN}
    return f"status 403 on {len(got)} routes" if not wrong else f"NOT REFUSED {wrong}"


def nobody_everywhere(scene: Scene) -> str:
    """No certificate and no token, on every route but the probes."""
    _, body = ask(scene, "GET", "/openapi.json", papers=_admin(scene))
    got: dict[str, int] = {}
    for path, operations in json.loads(body)["paths"].items():
        for method in operations:
            if path not in ("/livez", "/readyz"):
                full = re.sub(r"\{[^}]+\}", "x", path)
                got[f"{method.upper()} {full}"] = ask(scene, method.upper(), full, {} if method == "post" else None)[0]
    wrong = {route: status for route, status in got.items() if status != http.HTTPStatus.UNAUTHORIZED}
    return f"status 401 on {len(got)} routes" if got and not wrong else f"NOT REFUSED {wrong}"


def broker_operation(code: int, papers: str, scene: Scene) -> str:
    """A broker's operation in the master's name, by REST, with somebody else's certificate."""
    body = MESSAGES[code](scene, scene.fleet.master(scene.key))
    return _words(*ask(scene, "POST", f"/v1/{PATHS[code]}", body, papers=stolen(scene, papers)))


def made_up_token(scene: Scene) -> str:
    return _words(*ask(scene, "GET", "/v1/sets", headers={"Authorization": "Bearer " + "A" * 43}))


def stranger_says_it_is_relayed(scene: Scene) -> str:
    """Headers that a controller might believe of another one."""
    said = {"X-Rollcall-Principal": "admin:alice", "X-Requested-By": "admin:alice", "X-Forwarded-For": "127.0.0.1"}
    return _words(*ask(scene, "POST", _elect_path(scene), {"designated": 2}, headers=said))


# --- web pages -------------------------------------------------------------------------------------------------------


def text_plain(scene: Scene) -> str:
    """What a page may send without asking, by a caller whose browser has an admin's certificate."""
    told = {"Content-Type": "text/plain", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    return _words(*ask(scene, "POST", _elect_path(scene), {"designated": 2}, papers=_admin(scene), headers=told))


def foreign_host(scene: Scene) -> str:
    return _words(*ask(scene, "GET", "/v1/sets", papers=_admin(scene), headers={"Host": "evil.example"}))


PAGE = """<!doctype html><body><iframe name="sink"></iframe>
<form id="f" method="post" enctype="text/plain" target="sink" action="%(rest)s%(elect)s">
<input name='{"designated":2,"reason":"' value='"}'></form><script>
(async () => {
  const found = {};
  const tries = {
    plain: {method: "POST", mode: "no-cors", body: '{"designated":2}'},
    json: {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"designated":2}'},
    read: {method: "GET"},
  };
  for (const [name, options] of Object.entries(tries))
    try { const a = await fetch("%(rest)s%(elect)s", options); found[name] = a.type + " " + a.status; }
    catch (error) { found[name] = "blocked"; }
  try { const a = await fetch("https://rebind.example:%(port)s/v1/sets"); found.rebound = a.type + " " + a.status; }
  catch (error) { found.rebound = "blocked"; }
  document.getElementById("f").submit();
  await new Promise(done => setTimeout(done, 1500));
  document.body.setAttribute("data-found", JSON.stringify(found));
})();
</script>"""


def in_a_browser(scene: Scene) -> str:
    """Chromium opens a page of another site, which orders, reads, posts a form, and asks a name that was rebound."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise NotHere("no Chromium on the PATH: apt-get install chromium")
    before = scene.counters.read()
    port = scene.leader_rest.rpartition(":")[2]
    page = PAGE % {"rest": f"https://127.0.0.1:{port}", "elect": _elect_path(scene), "port": port}

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTP_OK)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil) as site, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={folder}", "--ignore-certificate-errors", "--virtual-time-budget=15000",
             "--host-resolver-rules=MAP evil.example 127.0.0.1,MAP rebind.example 127.0.0.1",
             "--dump-dom", f"http://evil.example:{site.server_port}/"],
            capture_output=True, text=True, check=False, timeout=BROWSER_LIMIT_S,
        )  # fmt: skip
        site.shutdown()
    match = re.search(r'data-found="([^"]*)"', done.stdout)
    if match is None:
        raise RuntimeError(f"the page did not run: {done.stderr[-400:]}")
    found = json.loads(unescape(match[1]))
    after = scene.counters.read()
    counted = {
        reason: sum(after[key] - before[key] for key in after if "requests_refused" in key and f'"{reason}"' in key)
        for reason in ("cross-site", "host")
    }
    is_refused = found["json"] == found["read"] == "blocked" and found["plain"] == "opaque 0"
    is_counted = counted["cross-site"] >= 1 and counted["host"] >= 1
    verdict = "refused" if is_refused and is_counted else "NOT REFUSED"
    return f"{verdict}: {json.dumps(found)}, counted {counted}"


# --- slow and many ---------------------------------------------------------------------------------------------------


def half_requests(scene: Scene) -> str:
    """2,000 links with half a request, held; the status is asked all the time."""
    address = scene.leader_rest
    context = context_with(scene.forger.papers(scene.forger.name(PeerKind.VIEWER, "mallory")))
    answered: list[int] = []
    is_over = threading.Event()

    def asking() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answered.append(ask(scene, "GET", "/v1/status", papers=_admin(scene))[0])

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    with contextlib.ExitStack() as held:
        opened = _open_many(held, address, context, b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        time.sleep(HOLD_S)  # half requests are held for longer than they may take
    is_over.set()
    thread.join(timeout=10)
    bad = [status for status in answered if status != HTTP_OK]
    return f"{opened} half requests; status {'200' if answered and not bad else bad[:5]} on {len(answered)} others"


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


# --- terminals -------------------------------------------------------------------------------------------------------


def on_a_terminal(scene: Scene) -> str:
    """A reason and a name with control sequences, by somebody who may order; then every table that shows them."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202ereversed\r\nOK  forged"
    status, _ = ask(
        scene, "POST", _elect_path(scene), {"reason": evil, "dryRun": False, "expectEpoch": 1 << 29},
        papers=_admin(scene), headers={"X-Requested-By": "mallory"},
    )  # fmt: skip
    lines = 0
    for arguments in (
        ("events", "--last", "50"),
        ("history", scene.key.name),
        ("explain", scene.key.name),
        ("status",),
    ):
        shown = subprocess.run(
            python_module("rollcall_ha.api.cli.main", *arguments),
            capture_output=True, text=True, check=False, timeout=30, env=our_environment(), cwd=scene.fleet.directory,
        )  # fmt: skip
        bad = [letter for letter in shown.stdout + shown.stderr if letter in "\x1b\x07\r\u202e"]
        if bad:
            return f"CONTROL CHARACTERS in {arguments}: {bad[:4]!r}"
        lines += shown.stdout.count("\n")
    return f"order answered {status}; no control character in {lines} lines" if lines else "NOTHING was shown"


def attacks() -> Iterator[Attack]:
    """All of REST."""
    yield Attack(
        name="nobody on every route",
        port="rest",
        run=nobody_everywhere,
        refused_with=("status 401 on",),
        counted="refused",
    )
    yield Attack(name="a viewer's token on every changing route", port="rest", run=viewer_everywhere,
                 refused_with=("status 403 on",), counted="refused")  # fmt: skip
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
    yield Attack(name="a page of another site in Chromium", port="rest", run=in_a_browser, refused_with=("refused: ",),
                 is_long=True)  # fmt: skip
    yield Attack(name=f"{LINKS} half requests", port="rest", run=half_requests, refused_with=("status 200 on",),
                 counted='port="rest"', is_long=True)  # fmt: skip
    for port in ("sessions", "listen", "ha", "raft"):
        yield Attack(name=f"{LINKS} links with half a handshake", port=port, run=partial(idle_links, port),
                     refused_with=("; serving",), is_long=True)  # fmt: skip
    yield Attack(name="forged names and reasons on a terminal", port="terminal", run=on_a_terminal,
                 refused_with=("no control character",))  # fmt: skip
