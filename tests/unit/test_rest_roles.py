"""Who may do what by REST: the table against routes, document and every kind of caller; what goes on record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.routing import Route

from rollcall_ha.api.rest.guard import LINES_PER_SECOND, Denied, RefusalLog
from rollcall_ha.api.rest.limits import CALLERS_MAX, UNPROVED, Bucket, Limits, Rates, take
from rollcall_ha.api.rest.relay import Asked, decode_answered, encode
from rollcall_ha.api.rest.roles import OPEN, ROLES, allowed, security_of
from rollcall_ha.api.rest.schemas import operation_id
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.core.tokens import digest_of
from rollcall_ha.node.certified import PeerCertificate, PeerKind
from tests.support.rest_callers import PEOPLE, caller, certificate
from tests.support.runtime_controller import (
    NAMES,
    Controller,
    Group,
    broker_id_body,
    heartbeat_body,
    recorded,
    register_body,
    running_group,
    until,
)

SECRET = "t0ken-of-a-test"
DAY_MS = 86_400_000
Scenario = Callable[[Group, Controller], Awaitable[None]]


def _run(directory: Path, scenario: Scenario, *, names: int = 1) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), running_group(directory, NAMES[:names], is_insecure=False) as group:
            await scenario(group, await group.elect("c1"))

    asyncio.run(main())


async def _ask(
    controller: Controller, shown: PeerCertificate | None, method: str, path: str, body: Any = None, **how: Any
) -> httpx.Response:
    async with caller(controller, shown, **how) as http:
        return await http.request(method, path, json=body)


async def _issue(leader: Controller, role: str, *, token: str = SECRET, days: float = 1, **more: Any) -> httpx.Response:
    body = {
        "tokenId": f"id-{role}",
        "digest": digest_of(token),
        "role": role,
        "name": "robot",
        "expiresAtMs": int(time.time() * 1000 + days * DAY_MS),
    }
    return await _ask(leader, certificate(PeerKind.ADMIN), "POST", "/v1/tokens", body | more)


async def _document(leader: Controller) -> dict[str, Any]:
    found: dict[str, Any] = (await _ask(leader, certificate(PeerKind.VIEWER), "GET", "/openapi.json")).json()
    return found


def _operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """By operation id: method, a path that it has, and what the document says."""
    filled = {"{cluster}": "demo", "{set}": "broker-a", "{epoch}": "1", "{id}": "nobody", "{file}": "console.css"}
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            target = path
            for name, value in filled.items():
                target = target.replace(name, value)
            found[operation["operationId"]] = (method.upper(), target, operation)
    return found


def test_table_routes_and_document_are_of_the_same_operations(tmp_path: Path) -> None:
    """A route that nobody put into the table is nobody's; a row without a route is a typing error."""

    async def scenario(_: Group, leader: Controller) -> None:
        document = await _document(leader)
        operations = _operations(document)
        # The document describes everything but itself.
        assert {*operations, "getOpenApi"} == {*ROLES, *OPEN}
        assert all(isinstance(route, Route) for route in leader.app.routes), "the guard sees routes alone"
        routes = {operation_id(route) for route in leader.app.routes}
        assert routes == {*ROLES, *OPEN}
        assert {name: said["security"] for name, (_, _, said) in operations.items()} == {
            name: security_of(name) for name in operations
        }
        assert all(scheme in document["components"]["securitySchemes"] for scheme in ("certificate", "token"))
        guarded = [said["responses"] for name, (_, _, said) in operations.items() if name not in OPEN]
        assert all({"401", "403", "429"} <= said.keys() for said in guarded)

    _run(tmp_path, scenario)


@pytest.mark.slow
def test_every_operation_is_for_its_roles_and_nobody_else(tmp_path: Path) -> None:
    """By certificate and by token, for each kind of caller: with the role it is judged, without it is refused."""

    async def scenario(_: Group, leader: Controller) -> None:
        for role in ("viewer", "operator", "admin"):
            assert (await _issue(leader, role, token=f"{SECRET}-{role}")).status_code == 200
        broker: dict[str, Any] = {"setKey": {"cluster": "demo", "name": "broker-a"}}
        assert (await _issue(leader, "broker", token=f"{SECRET}-broker", **broker)).status_code == 200
        for name, (method, path, _said) in _operations(await _document(leader)).items():
            if name in ("streamEvents", *OPEN):
                continue
            body: dict[str, Any] | None = {} if method == "POST" else None
            nobody = await _ask(leader, None, method, path, body)
            assert (name, nobody.status_code, nobody.json()["code"]) == (name, 401, "UNAUTHENTICATED")
            assert nobody.headers["www-authenticate"].startswith("Bearer")
            client = await _ask(leader, certificate(PeerKind.CLIENT), method, path, body)
            assert (name, client.status_code) == (name, 403)
            for kind in (*PEOPLE, PeerKind.BROKER):
                by_certificate = await _ask(leader, certificate(kind), method, path, body)
                by_token = await _ask(leader, None, method, path, body, token=f"{SECRET}-{kind}")
                for answer in (by_certificate, by_token):
                    is_let_in = answer.status_code not in (401, 403)
                    assert (name, kind, is_let_in) == (name, kind, Role(kind) in allowed(name)), answer.text
                    if not is_let_in:
                        problem = answer.json()
                        assert (problem["requested"], problem["current"]) == (" or ".join(allowed(name)), kind)
        assert (await _ask(leader, None, "GET", "/livez")).status_code == 200
        assert leader.service.published.state.sets == {}

    _run(tmp_path, scenario)


def test_an_operation_that_is_not_in_the_table_is_refused_to_an_admin(tmp_path: Path) -> None:
    """Also one that a router brings, which FastAPI keeps out of sight."""

    async def scenario(_: Group, leader: Controller) -> None:
        ran = []

        async def forgotten() -> Response:
            ran.append(1)
            return Response("done")

        leader.app.add_api_route("/forgotten", forgotten, methods=["POST"], operation_id="forgotten")
        router = APIRouter()
        router.add_api_route("/behind", forgotten, methods=["GET"], operation_id="behind")
        leader.app.include_router(router)
        for method, path in (("POST", "/forgotten"), ("GET", "/behind")):
            answer = await _ask(leader, certificate(PeerKind.ADMIN), method, path)
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
        assert ran == []
        assert (await _ask(leader, None, "GET", "/nothing")).status_code == 404

    _run(tmp_path, scenario)


@pytest.mark.slow
def test_a_token_ends_with_its_time_and_its_revocation_and_its_digest_is_never_shown(tmp_path: Path) -> None:
    """The secret is not known to the controllers; the list shows everything else."""

    async def scenario(_: Group, leader: Controller) -> None:
        await _issue(leader, "operator")
        await _issue(leader, "viewer", token="short", days=1 / 86_400)
        listed = await _ask(leader, certificate(PeerKind.ADMIN), "GET", "/v1/tokens")
        assert [one["tokenId"] for one in listed.json()["tokens"]] == ["id-operator", "id-viewer"]
        assert digest_of(SECRET) not in listed.text
        assert (await _ask(leader, None, "GET", "/v1/status", token=SECRET)).status_code == 200
        for wrong in ("Bearer", "Basic eDp5", "Bearer  ", "Bearer guess"):
            answer = await _ask(leader, None, "GET", "/v1/status", headers={"Authorization": wrong})
            assert (wrong, answer.status_code) == (wrong, 401)
        # With a token the certificate counts for nothing: a proxy's would else be everybody's.
        proxied = await _ask(leader, certificate(PeerKind.ADMIN), "GET", "/v1/tokens", token=SECRET)
        assert proxied.status_code == 403
        await until(lambda: leader.service.published.state.tokens["id-viewer"].expires_at_ms < time.time() * 1000)
        expired = await _ask(leader, None, "GET", "/v1/status", token="short")
        assert (expired.status_code, "expired" in expired.json()["detail"]) == (401, True)
        revoked = await _ask(leader, certificate(PeerKind.ADMIN), "POST", "/v1/tokens/id-operator/revoke", {})
        assert revoked.status_code == 200
        after = await _ask(leader, None, "GET", "/v1/status", token=SECRET)
        assert (after.status_code, "is revoked" in after.json()["detail"]) == (401, True)

    _run(tmp_path, scenario)


def test_a_revoked_and_an_expired_certificate_are_nobodys(tmp_path: Path) -> None:
    """At the next request, before the sweep that closes the link."""

    async def scenario(_: Group, leader: Controller) -> None:
        alice = certificate(PeerKind.ADMIN, "alice", serial="a1")
        body = {"serial": "a1", "name": str(alice.name), "expiresAtMs": alice.expires_at_ms, "reason": "lost"}
        admin = certificate(PeerKind.ADMIN)
        assert (await _ask(leader, alice, "POST", "/v1/certificates/revoke", body)).status_code == 200
        refused = await _ask(leader, alice, "GET", "/v1/status")
        assert (refused.status_code, "is revoked" in refused.json()["detail"]) == (401, True)
        listed = (await _ask(leader, admin, "GET", "/v1/certificates")).json()["revoked"]
        assert [(one["serial"], one["revokedBy"]) for one in listed] == [("a1", "admin:alice")]
        late = await _ask(leader, certificate(PeerKind.ADMIN, days=-1), "GET", "/v1/status")
        assert late.status_code == 401
        told = await _ask(leader, None, "GET", "/v1/status", complaint="certificate 7 is of another fleet")
        assert (told.status_code, told.json()["detail"]) == (401, "certificate 7 is of another fleet")

    _run(tmp_path, scenario)


def test_the_record_names_the_caller_that_a_follower_has_proved(tmp_path: Path) -> None:
    """Name, proof, serial and address, chained with the rest; what a caller writes into headers is not among them."""

    async def scenario(group: Group, leader: Controller) -> None:
        follower = group["c2"]
        alice = certificate(PeerKind.ADMIN, "alice", serial="a11ce")
        forged = {
            "X-Requested-By": "admin:mallory",
            "X-Rollcall-Principal": '{"name":"mallory","role":"admin"}',
            "X-Rollcall-Relayed-By": "c1",
        }
        body = {"serial": "b0b", "expiresAtMs": 1, "name": "bob"}
        await until(lambda: follower.service.authority().leader == "c1")
        answer = await _ask(follower, alice, "POST", "/v1/certificates/revoke", body, headers=forged)
        assert (answer.status_code, answer.headers.get("x-rollcall-leader")) == (200, "c1"), answer.text
        await recorded(leader)
        page = await _ask(leader, alice, "GET", "/v1/events?newest=true&limit=100")
        (record,) = [one for one in page.json()["events"] if one["event"]["kind"] == "certificate-revoked"]
        assert record["requestedBy"] == "admin:alice"
        shown = {name: record["principal"][name] for name in ("name", "role", "provedBy", "serial", "address")}
        assert shown == {
            "name": "alice",
            "role": "admin",
            "provedBy": "certificate",
            "serial": "a11ce",
            "address": "192.0.2.7:4711",
        }
        operator = certificate(PeerKind.OPERATOR)
        for controller in (follower, leader):
            refused = await _ask(controller, operator, "POST", "/v1/certificates/revoke", body, headers=forged)
            assert refused.status_code == 403

    _run(tmp_path, scenario, names=3)


def test_what_a_controller_passes_on_without_a_caller_may_only_be_read(tmp_path: Path) -> None:
    """What a controller asks for itself is of no proved caller: it would be the way around every role."""

    async def scenario(group: Group, leader: Controller) -> None:
        def asked(method: str, target: str, content: bytes = b"") -> bytes:
            headers = (("host", "localhost"), ("content-type", "application/json"))
            return encode(Asked(method=method, target=target, headers=headers, content=content))

        await until(lambda: group["c2"].service.authority().leader == "c1")
        statuses = {}
        for method, target, content in (
            ("GET", "/v1/status?consistency=local", b""),
            ("POST", "/v1/sets/demo/x/elect", b"{}"),
            ("POST", "/v1/broker-ids", msgspec.json.encode(broker_id_body(1))),
        ):
            outcome = await group["c2"].calls.call(leader.name, asked(method, target, content))
            statuses[target] = decode_answered(outcome.response).status
        assert statuses == {"/v1/status?consistency=local": 200, "/v1/sets/demo/x/elect": 403, "/v1/broker-ids": 403}

    _run(tmp_path, scenario, names=3)


def test_a_broker_speaks_for_its_own_set_and_its_own_replica(tmp_path: Path) -> None:
    """A stolen broker certificate is that broker's harm, not the fleet's."""

    async def scenario(_: Group, leader: Controller) -> None:
        first, second = (certificate(PeerKind.BROKER, f"broker-a-{number}") for number in (1, 2))
        other = certificate(PeerKind.BROKER, "broker-b-1", set_key="demo/broker-b")
        for shown, number in ((first, 1), (second, 2)):
            for path, body in (
                ("/v1/broker-ids", broker_id_body(number)),
                ("/v1/replicas", register_body(number)),
                ("/v1/heartbeat", heartbeat_body(number)),
            ):
                answer = await _ask(leader, shown, "POST", path, body)
                assert answer.status_code == 200, answer.text
        goodbye = {
            "command": "SayGoodbye",
            "setKey": {"cluster": "demo", "name": "broker-a"},
            "brokerId": 1,
            "incarnation": f"{1:032x}",
            "sessionOrdinal": 1,
            "cleanMark": {"endOffset": 0, "lastEpoch": -1, "lastCrc": 0, "crcStart": 0, "nonce": "n"},
        }
        for path, body in (
            ("/v1/broker-ids", broker_id_body(1)),
            ("/v1/replicas", register_body(1)),
            ("/v1/heartbeat", heartbeat_body(1)),
            ("/v1/goodbye", goodbye),
        ):
            for shown in (second, other):
                answer = await _ask(leader, shown, "POST", path, body)
                assert (path, answer.status_code) == (path, 403), answer.text

    _run(tmp_path, scenario)


@pytest.mark.slow
def test_no_secret_is_in_any_answer(tmp_path: Path) -> None:
    """Register codes, digests of codes and of tokens: every GET route, read by an admin."""

    async def scenario(_: Group, leader: Controller) -> None:
        broker = certificate(PeerKind.BROKER, "broker-a-1")
        secret_code = "register-code-that-is-a-secret"
        registered = register_body(1, expected=1) | {"registerCode": secret_code}
        for path, body in (
            ("/v1/broker-ids", broker_id_body(1) | {"registerCode": secret_code}),
            ("/v1/replicas", registered),
            ("/v1/heartbeat", heartbeat_body(1)),
        ):
            assert (await _ask(leader, broker, "POST", path, body)).status_code == 200
        await _issue(leader, "viewer")
        state = leader.service.published.state
        await until(lambda: any(found.master for found in leader.service.published.state.sets.values()))
        await recorded(leader)
        (replica,) = next(iter(state.sets.values())).replicas
        digests = {replica.register_code.rpartition(":")[2], digest_of(SECRET)}
        spared = {"listEvents": digests, "getBackup": digests - {digest_of(SECRET)}}
        answers = {}
        for name, (method, path, _said) in _operations(await _document(leader)).items():
            if method == "GET" and name != "streamEvents":
                answers[name] = await _ask(leader, certificate(PeerKind.ADMIN), "GET", path)
        assert {answer.status_code for answer in answers.values()} == {200}
        leaks = {
            name: found
            for name, answer in answers.items()
            # Events keep the digests, and are chained as they are: nobody gets from a digest to 256 random bits. A backup
            # has those of codes, without which no broker could register at restored controllers.
            for found in {secret_code, SECRET, *digests} - spared.get(name, set())
            if found in answer.text
        }
        assert leaks == {}

    _run(tmp_path, scenario)


# --- how often -----------------------------------------------------------------------------------------------------------


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    """And never fills above the burst, nor by a clock that goes back."""
    rates = Rates(requests_per_second=10, burst=3, in_flight_max=9)
    bucket: Bucket | None = None
    waits = []
    for now_s in (0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 100.0, 100.0, 100.0, 100.0, 90.0):
        bucket, wait_s = take(bucket, now_s, rates)
        waits.append(round(wait_s, 3))
    assert waits == [0, 0, 0, 0.1, 0.05, 0, 0, 0, 0, 0.1, 0.1]


def test_what_is_in_flight_is_limited_and_forgotten_callers_are_few() -> None:
    """Each caller has its own; a caller that is let go has its place again."""
    limits = Limits(lambda: 0.0)
    rates = Rates(requests_per_second=1, burst=100_000, in_flight_max=2)
    assert [limits.enter("a", rates) for _ in range(3)] == [0, 0, 1]
    assert limits.enter("b", rates) == 0
    limits.leave("a")
    assert limits.enter("a", rates) == 0
    for number in range(CALLERS_MAX + 5):
        limits.enter(f"n{number}", rates)
        limits.leave(f"n{number}")
    assert len(limits._buckets) == CALLERS_MAX
    assert len(limits._in_flight) == 2


def test_who_guesses_is_told_to_wait_and_others_are_not(tmp_path: Path) -> None:
    """429 with a time, counted; the same address with a certificate goes on."""

    async def scenario(_: Group, leader: Controller) -> None:
        codes = []
        async with caller(leader, token="guess") as http:
            while 429 not in codes:
                answer = await http.get("/v1/status")
                codes.append(answer.status_code)
        assert len(codes) > UNPROVED.burst
        assert set(codes[:-1]) == {401}
        assert int(answer.headers["retry-after"]) >= 1
        assert (await _ask(leader, certificate(PeerKind.VIEWER), "GET", "/v1/status")).status_code == 200
        told = (await _ask(leader, certificate(PeerKind.VIEWER), "GET", "/metrics")).text
        assert f'rollcall_rest_refused_total{{reason="nobody"}} {float(len(codes) - 1)}' in told

    _run(tmp_path, scenario)


class _Lines:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def warning(self, event: str, **found: Any) -> None:
        self.lines.append({"event": event, **found})


def test_refusals_cannot_fill_the_disk() -> None:
    """A limit of lines in each second; the next line says how many were left out."""
    lines, registry, now = _Lines(), CollectorRegistry(), [0.0]
    log = RefusalLog(lines, registry, lambda: now[0])  # type: ignore[arg-type]

    def refuse(count: int) -> None:
        for _ in range(count):
            log.note(Denied.NOBODY, who="", address="192.0.2.7:1", operation="electMaster", detail="nobody")

    refuse(LINES_PER_SECOND + 40)
    now[0] = 1.0
    refuse(1)
    assert len(lines.lines) == LINES_PER_SECOND + 1
    assert [line["left_out"] for line in lines.lines[-2:]] == [0, 40]
    assert registry.get_sample_value("rollcall_rest_refused_total", {"reason": "nobody"}) == LINES_PER_SECOND + 41


@pytest.mark.parametrize("operation", sorted(ROLES))
def test_roles_of_people_include_each_other(operation: str) -> None:
    """An operator that may not read what it has ordered would be given an admin's certificate."""
    roles = allowed(operation)
    people = [role for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN) if role in roles]
    assert people in ([], [Role.ADMIN], [Role.OPERATOR, Role.ADMIN], [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
    assert (Role.BROKER in roles) is not bool(people)
