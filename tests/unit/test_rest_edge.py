"""The edge of REST against foreign web pages: which request is refused, with which code, and that nothing moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.api.rest.edge import judge
from rollcall_ha.api.rest.requests import BODY_BYTES_MAX
from rollcall_ha.controller.runtime.settings import settings_from
from rollcall_ha.node.config import ConfigError, ControllerSection, FleetFile, FleetSection
from tests.support.runtime_controller import (
    NAMES,
    Controller,
    Group,
    broker_id_body,
    listen,
    make_set,
    problem_of,
    recorded,
    register_body,
    running_group,
)
from tests.support.scenarios import player

ELECT = "/v1/sets/demo/broker-a/elect"
ORDER = b'{"to":2}'
JSON = {"Content-Type": "application/json"}
OWN = frozenset({"localhost", "127.0.0.1", "::1", "ops.example"})


def _run(directory: Path, scenario: Callable[[Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_group(directory, NAMES[:1]) as group:
            await scenario(await _leader(group))

    asyncio.run(main())


played = player(_run)


async def _leader(group: Group) -> Controller:
    leader = await group.elect("c1")
    await make_set(leader)
    return leader


def _epoch(leader: Controller) -> int:
    (found,) = leader.service.published.state.sets.values()
    return found.master_epoch


@pytest.mark.slow
@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/jsonp",
        "",
        None,
    ],
)
@played()
async def test_a_body_that_a_form_of_another_site_can_send_moves_no_master(
    leader: Controller, content_type: str | None
) -> None:
    """``text/plain`` with JSON in it elected: a page needs no leave to send that."""
    before = _epoch(leader)
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await leader.http.post(ELECT, content=ORDER, headers=headers)
    problem = problem_of(answer)
    assert (answer.status_code, problem.code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert "application/json" in problem.hint
    assert _epoch(leader) == before
    refused = 'rollcall_rest_requests_refused_total{reason="media-type"} 1.0'
    assert refused in (await leader.http.get("/metrics")).text


@played()
async def test_json_with_parameters_is_json(leader: Controller) -> None:
    before = _epoch(leader)
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await leader.http.post(ELECT, content=ORDER, headers=headers)).status_code == 200
    assert _epoch(leader) == before + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000.evil.example"},
    ],
)
@played()
async def test_an_order_for_a_page_of_another_site_is_refused(leader: Controller, headers: dict[str, str]) -> None:
    """Also by a neighbour on another port of this machine, and by a sandboxed frame."""
    before = _epoch(leader)
    answer = await leader.http.post(ELECT, content=ORDER, headers=JSON | headers)
    assert (answer.status_code, problem_of(answer).code) == (403, "CROSS_SITE")
    assert _epoch(leader) == before
    assert (await leader.http.delete("/v1/sets", headers=headers)).status_code == 403
    refused = 'rollcall_rest_requests_refused_total{reason="cross-site"} 2.0'
    assert refused in (await leader.http.get("/metrics", headers=headers)).text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "none"},
        {},
    ],
)
@played()
async def test_a_page_of_ours_and_programs_may_order(leader: Controller, headers: dict[str, str]) -> None:
    before = _epoch(leader)
    assert (await leader.http.post(ELECT, content=ORDER, headers=JSON | headers)).status_code == 200
    assert _epoch(leader) == before + 1


@pytest.mark.parametrize("host", ["evil.example", "evil.example:3000", "127.0.0.1.evil.example", "", "127.0.0.1:x"])
@played()
async def test_a_rebound_name_neither_reads_nor_orders(leader: Controller, host: str) -> None:
    """DNS rebinding: the page is of the same origin as the controller; its name in ``Host`` is what gives it away."""
    before = _epoch(leader)
    rebound = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    for path in ("/v1/status", "/v1/events", "/v1/events/stream", "/metrics", "/livez", "/openapi.json"):
        answer = await leader.http.get(path, headers=rebound)
        assert (path, answer.status_code, problem_of(answer).code) == (path, 421, "MISDIRECTED_REQUEST")
    assert (await leader.http.post(ELECT, content=ORDER, headers=JSON | rebound)).status_code == 421
    assert _epoch(leader) == before
    refused = 'rollcall_rest_requests_refused_total{reason="host"} 7.0'
    assert refused in (await leader.http.get("/metrics")).text


@pytest.mark.parametrize(
    ("hosts", "is_ours"),
    [
        (["localhost"], True),
        (["LocalHost:7101"], True),
        (["127.0.0.1:3000"], True),
        (["[::1]:3000"], True),
        (["[::1]"], True),
        (["ops.example:443"], True),
        (["::1"], False),
        (["127.0.0.2"], False),
        (["localhost."], False),
        (["localhost@evil.example"], False),
        (["localhost", "evil.example"], False),
        ([], False),
    ],
)
def test_host_is_one_name_of_ours_with_any_port(hosts: list[str], is_ours: bool) -> None:
    """A tunnel has a port of its own; two names, or none, are nobody's."""
    assert (judge("GET", [(b"host", host.encode()) for host in hosts], OWN) is None) == is_ours


def test_names_of_a_proxy_are_configured_without_port_and_scheme() -> None:
    own = ControllerSection(raft="127.0.0.1:1", broker="127.0.0.1:2", rest="127.0.0.2:3", data="c1")

    def hosts(*names: str) -> frozenset[str]:
        fleet = FleetSection(name="demo", incarnation="0" * 32, rest_names=names)
        return settings_from(FleetFile(version=1, fleet=fleet, controllers={"c1": own}), "c1").rest_hosts

    assert hosts("Ops.Example") == {"localhost", "127.0.0.1", "::1", "127.0.0.2", "ops.example"}
    for name in ("https://ops.example", "ops.example:443", "[::1]", "*", ""):
        with pytest.raises(ConfigError, match=r"fleet\.rest_names has"):
            hosts(name)


@played()
async def test_no_answer_lets_a_page_of_another_site_read_it(leader: Controller) -> None:
    """No CORS header, also not on the question that a browser asks before an order."""
    foreign = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    asked = await leader.http.options(ELECT, headers=foreign | {"Access-Control-Request-Headers": "content-type"})
    read = await leader.http.get("/v1/status", headers=foreign)
    ordered = await leader.http.post(ELECT, content=ORDER, headers=JSON | foreign)
    assert (asked.status_code, read.status_code, ordered.status_code) == (405, 200, 403)
    for answer in (asked, read, ordered):
        assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_no_register_code_leaves_a_controller(tmp_path: Path) -> None:
    """With the code out of ``/v1/events`` and one POST, anybody was the master: every GET route is looked through."""
    code, other = "5ec7e7" * 6, "0the7c0de" * 4

    async def scenario(leader: Controller) -> None:
        given = (register_body(1, "b") | {"registerCode": code, "incarnation": "1" * 32}, 200)
        wrong = (register_body(1, "b") | {"registerCode": other, "incarnation": "2" * 32}, 409)
        asked = (broker_id_body(1, "b") | {"registerCode": code}, 200)
        seen = ""
        for body, status in (asked, given, wrong, asked):
            where = "/v1/broker-ids" if body is asked[0] else "/v1/replicas"
            answer = await leader.http.post(where, json=body)
            assert answer.status_code == status
            seen += answer.text
        await recorded(leader)
        paths = (await leader.http.get("/openapi.json")).json()["paths"]
        reads = [_example(path) for path, methods in paths.items() if "get" in methods] + ["/v1/sets/demo/b"]
        for path in reads:
            if path != "/v1/events/stream":
                seen += (await leader.http.get(path)).text
        records = leader.journal.read(None, limit=500).records
        seen += b"".join(await listen(leader.app, {}, len(records))).decode()
        seen += "".join(file.read_text() for file in sorted((tmp_path / "c1").rglob("events-*")))
        assert "broker-id-granted" in seen
        assert code not in seen
        assert other not in seen

    _run(tmp_path, scenario)


def _example(path: str) -> str:
    return path.replace("{cluster}", "demo").replace("{set}", "broker-a").replace("{epoch}", "1")


@pytest.mark.slow
@played()
async def test_every_operation_refuses_as_the_document_says(leader: Controller) -> None:
    """A route that is added without these refusals, or without their lines in the document, fails here."""
    paths: dict[str, dict[str, Any]] = (await leader.http.get("/openapi.json")).json()["paths"]
    operations = [
        (method.upper(), path, operation["responses"])
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    assert {method for method, _, _ in operations} == {"GET", "POST"}
    for method, path, responses in operations:
        sent: dict[str, dict[str, Any]] = {"421": {"headers": {"Host": "evil.example"}}}
        if method == "POST":
            sent["403"] = {"headers": {"Sec-Fetch-Site": "cross-site"}}
            sent["415"] = {"headers": {"Content-Type": "text/plain"}, "content": b"{}"}
            sent["413"] = {"headers": JSON, "content": b" " * (BODY_BYTES_MAX + 1)}
        for status, request in sent.items():
            answer = await leader.http.request(method, _example(path), **request)
            assert (path, str(answer.status_code)) == (path, status)
            assert problem_of(answer).status == int(status)
            assert list(responses[status]["content"]) == ["application/problem+json"]
    # Reads are refused by role alone, and these by nothing.
    is_open = [path for _, path, responses in operations if "403" not in responses]
    assert is_open == ["/console", "/console/{file}", "/livez", "/readyz", "/leader"]
