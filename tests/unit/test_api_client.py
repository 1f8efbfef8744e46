"""The REST client: whom it asks, what it takes for an answer, and which errors are left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from rollcall_ha.client.addresses import base_url
from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import BadAnswer, NoLeader, OutcomeUnknown, RefusedError, Unreachable
from rollcall_ha.controller.contract.commands import CleanReplicas, ElectMaster
from rollcall_ha.controller.contract.ids import BrokerId, RequestId
from rollcall_ha.controller.contract.orders import RaiseLevel
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.views import SetAnswer
from tests.support.fake_controllers import (
    KEY,
    NAMES,
    SET_PATH,
    FakeControllers,
    answer,
    base,
    fleet_status,
    freshness,
    problem,
    set_page,
    set_status,
    verdict,
)


def client_of(fake: FakeControllers) -> tuple[Client, list[float]]:
    """A client whose clock moves by a second with every pause."""
    now = [0.0]

    def pause(_: float) -> None:
        now[0] += 1.0

    made = Client(
        [f"{name}:9870" for name in NAMES],
        requested_by="alice",
        transport=fake.transport(),
        clock=lambda: now[0],
        pause=pause,
    )
    return made, now


def redirect_to(name: str) -> httpx.Response:
    return httpx.Response(307, headers={"Location": base(name) + SET_PATH})


def test_follows_the_leader_that_a_follower_names() -> None:
    """A 307 is followed, and the next call begins with the leader."""
    set_answer = SetAnswer(freshness=freshness(), set=set_status())
    fake = FakeControllers({("c1", "GET", SET_PATH): lambda _: redirect_to("c2"), ("c2", "GET", SET_PATH): set_answer})
    client, _ = client_of(fake)

    assert client.set(KEY) == set_answer
    assert client.set(KEY) == set_answer
    assert [name for name, _ in fake.requests] == ["c1", "c2", "c2"]


def test_follows_the_hint_of_a_503() -> None:
    """NO_LEADER with a named leader is a hint like a redirect."""
    set_answer = SetAnswer(freshness=freshness(), set=set_status())
    hint = problem(503, "NOT_LEADER", leader=base("c3"))
    fake = FakeControllers({("c1", "GET", SET_PATH): hint, ("c3", "GET", SET_PATH): set_answer})
    client, _ = client_of(fake)

    assert client.set(KEY) == set_answer


def test_a_hint_that_is_no_address_is_none() -> None:
    """The others are asked; what some peer made of its leader's address ends nothing."""
    set_answer = SetAnswer(freshness=freshness(), set=set_status())
    odd = httpx.Response(307, headers={"Location": "http://[::1/x"})
    script = {
        ("c1", "GET", SET_PATH): lambda _: odd,
        ("c2", "GET", SET_PATH): problem(503, "NO_LEADER", leader="h:x"),
        ("c3", "GET", SET_PATH): set_answer,
    }
    client, _ = client_of(FakeControllers(script))

    assert client.set(KEY) == set_answer


def test_nobody_there_is_unreachable_with_every_address() -> None:
    """The message names each controller that was tried."""
    client, now = client_of(FakeControllers({}))

    with pytest.raises(Unreachable) as caught:
        client.sets()

    assert all(base(name) in str(caught.value) for name in NAMES)
    assert now[0] >= 5.0


def test_controllers_without_a_leader_are_not_unreachable() -> None:
    """No leader is another exit code than nobody there."""
    no_leader = problem(503, "NO_LEADER")
    client, _ = client_of(FakeControllers({(name, "GET", "/v1/sets"): no_leader for name in NAMES}))

    with pytest.raises(NoLeader):
        client.sets()


def test_a_read_that_a_busy_leader_did_not_answer_a_follower_is_asked_of_the_leader() -> None:
    """A follower waits a second for it; the dry run of an import ended there, refused."""
    late = problem(503, "NO_ANSWER", leader="c2")
    fake = FakeControllers({("c1", "GET", "/v1/sets"): late, ("c2", "GET", "/v1/sets"): set_page()})
    try:
        assert client_of(fake)[0].sets() == set_page()
    except RefusedError as error:
        pytest.fail(str(error))
    assert [name for name, _ in fake.requests] == ["c1", "c2"]

    client, _ = client_of(FakeControllers({(name, "GET", "/v1/sets"): late for name in NAMES}))
    with pytest.raises(Unreachable):
        client.sets()


def test_refusal_is_definite_and_asked_only_once() -> None:
    """A 409 of the leader is not tried on the others."""
    refused = problem(409, "NOT_ELIGIBLE", requested="1", current="2")
    fake = FakeControllers({("c1", "POST", f"{SET_PATH}/elect"): refused})
    client, _ = client_of(fake)

    with pytest.raises(RefusedError) as caught:
        client.order(ElectMaster(set_key=KEY, to=BrokerId(1)))

    assert caught.value.problem == refused
    assert len(fake.requests) == 1


def test_lost_answer_is_asked_again_with_the_same_request_id() -> None:
    """A call that may have been executed is repeated under its own id, never under a new one."""
    elected = Elected(verdict=verdict(), view=set_status().view)
    tries = []

    def lose_the_first(request: httpx.Request) -> httpx.Response:
        tries.append(msgspec.json.decode(request.content)["requestId"])
        if len(tries) == 1:
            raise httpx.ReadTimeout("timed out", request=request)
        return answer(elected)

    client, _ = client_of(FakeControllers({("c1", "POST", f"{SET_PATH}/elect"): lose_the_first}))

    assert client.order(ElectMaster(set_key=KEY)) == elected
    assert len(set(tries)) == 1
    assert len(tries) == 2


def test_outcome_is_unknown_if_no_definite_answer_ever_came() -> None:
    """Timed out after sending is neither done nor refused, also if all others are unreachable."""

    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    client, _ = client_of(FakeControllers({("c1", "POST", f"{SET_PATH}/elect"): never}))

    with pytest.raises(OutcomeUnknown) as caught:
        client.order(ElectMaster(set_key=KEY), request_id=RequestId("r-1"))

    assert caught.value.request_id == "r-1"
    assert "r-1" in str(caught.value)


def test_a_controller_that_hangs_was_told_in_words_of_the_tls_library() -> None:
    def hang(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("_ssl.c:989: The handshake operation timed out", request=request)

    client, _ = client_of(FakeControllers({(name, "GET", "/v1/sets"): hang for name in NAMES}))

    with pytest.raises(Unreachable, match="no connection within 500 ms: it hangs, or its host is down") as caught:
        client.sets()
    assert "_ssl" not in str(caught.value)


def test_a_dry_run_without_an_answer_is_unreachable_and_never_unknown() -> None:
    """It came back as "outcome unknown", with an id to repeat, although it asked for nothing to be done."""

    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    client, _ = client_of(FakeControllers({("c1", "POST", f"{SET_PATH}/elect"): never}))

    with pytest.raises(Unreachable):
        client.preview(ElectMaster(set_key=KEY))


def test_outcome_unknown_of_the_server_is_not_a_refusal() -> None:
    """A proposal whose fate the leader does not know comes out as unknown after repeating."""
    unknown = problem(503, "OUTCOME_UNKNOWN")
    client, _ = client_of(FakeControllers({(name, "POST", f"{SET_PATH}/elect"): unknown for name in NAMES}))

    with pytest.raises(OutcomeUnknown):
        client.order(ElectMaster(set_key=KEY))


@pytest.mark.parametrize(
    "response",
    [httpx.Response(502, text="Bad Gateway"), httpx.Response(500, text="Internal Server Error")],
    ids=["proxy", "fault"],
)
def test_an_order_that_a_proxy_answers_with_502_is_not_known_to_be_refused(response: httpx.Response) -> None:
    """What stands behind it may have the order; "bad answer" was taken for "nothing was executed"."""
    fake = FakeControllers({(name, "POST", f"{SET_PATH}/elect"): lambda _: response for name in NAMES})
    client, _ = client_of(fake)

    with pytest.raises(OutcomeUnknown, match=f"answered {response.status_code} without a problem document"):
        client.order(ElectMaster(set_key=KEY))

    identities = {msgspec.json.decode(request.content)["requestId"] for _, request in fake.requests}
    assert len(identities) == 1, "it was asked again under the same id"


def test_an_order_that_is_answered_with_a_page_is_not_known_to_be_done() -> None:
    """200 and the login page of a proxy: neither done nor refused. Of a read it is a bad answer."""
    page = httpx.Response(200, text="<html>")
    paths = (("POST", f"{SET_PATH}/elect"), ("POST", "/v1/feature-level"), ("GET", SET_PATH))
    fake = FakeControllers({("c1", method, path): lambda _: page for method, path in paths})
    client, _ = client_of(fake)

    with pytest.raises(OutcomeUnknown, match="the answer is not a Elected"):
        client.order(ElectMaster(set_key=KEY))
    with pytest.raises(OutcomeUnknown, match="the answer is not a Done"):
        client.order(RaiseLevel())
    with pytest.raises(BadAnswer):
        client.set(KEY)


def test_timed_out_read_is_not_an_unknown_outcome() -> None:
    """A read changes nothing, so nothing about it can be unknown."""

    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    client, _ = client_of(FakeControllers({("c1", "GET", "/v1/sets"): never}))

    with pytest.raises(Unreachable):
        client.sets()


def test_answer_of_somebody_else_is_named_as_such() -> None:
    """An HTML page on the port is neither a refusal nor a leaderless controller."""
    fake = FakeControllers({("c1", "GET", "/v1/sets"): lambda _: httpx.Response(404, text="<html>")})
    client, _ = client_of(fake)

    with pytest.raises(BadAnswer, match="404"):
        client.sets()


def test_all_pages_of_sets_are_fetched() -> None:
    """Ten thousand sets come in pages; the caller sees one answer."""
    first = msgspec.structs.replace(set_page(set_status()), next_after="demo/broker-a", sets_total=2)

    def pages(request: httpx.Request) -> httpx.Response:
        return answer(set_page(set_status()) if "after" in request.url.params else first)

    client, _ = client_of(FakeControllers({("c1", "GET", "/v1/sets"): pages}))
    page = client.sets()

    assert len(page.sets) == 2
    assert page.next_after is None


def test_survey_reports_who_does_not_answer() -> None:
    """One dead controller does not hide the others."""
    script = {(name, "GET", "/v1/status"): fleet_status(name) for name in ("c1", "c2")}
    client, _ = client_of(FakeControllers(script))
    reached = client.survey()

    assert [found.status is not None for found in reached] == [True, True, False]
    assert "refused" in reached[2].trouble


def test_orders_say_who_gave_them() -> None:
    """The record names the user."""
    fake = FakeControllers({("c1", "POST", f"{SET_PATH}/clean"): {"reply": "Done"}})
    client, _ = client_of(fake)

    client.order(CleanReplicas(set_key=KEY, broker_ids=(BrokerId(3),)))

    assert fake.requests[0][1].headers["X-Requested-By"] == "alice"
    assert msgspec.json.decode(fake.requests[0][1].content)["brokerIds"] == [3]


def test_addresses_may_be_urls() -> None:
    """Both spellings of an address mean the same."""
    assert base_url("h:1") == base_url("http://h:1/") == "http://h:1"


@pytest.mark.slow
@pytest.mark.parametrize("address", ["http://[::1", "h:x", "h:99999", "://", "a b", "ftp://h:1", ""])
def test_an_address_that_is_none_is_refused_with_its_value(address: str) -> None:
    """Some of them were a traceback of the HTTP library at the first call."""
    with pytest.raises(ValueError, match="is not the address of a controller: host:port") as refused:
        Client([address])

    assert repr(address) in str(refused.value)


@pytest.mark.slow
def test_first_answers_on_several_threads_do_not_end_the_process() -> None:
    """msgspec builds a type at its first use, and two threads at once end in a segmentation fault: built at import."""
    code = (
        "import sys, threading\n"
        "sys.setswitchinterval(1e-6)\n"
        "from rollcall_ha.client.client import Client\n"
        "from tests.support.fake_controllers import NAMES, FakeControllers, fleet_status\n"
        "fake = FakeControllers({(name, 'GET', '/v1/status'): fleet_status(name) for name in NAMES})\n"
        "reached = Client(NAMES, transport=fake.transport()).survey()\n"
        "assert all(found.status for found in reached)\n"
    )
    root = Path(__file__).resolve().parents[2]
    codes = {subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode for _ in range(3)}

    assert codes == {0}


def test_clients_do_not_ask_in_step() -> None:
    """Each pause between two rounds is drawn: from half of the mean to one and a half."""
    numbers = iter((0.0, 1.0, 0.5))
    pauses: list[float] = []
    client = Client(
        ["c1:9870"],
        limit_ms=3_000,
        transport=FakeControllers({}).transport(),
        clock=lambda: float(len(pauses)),
        pause=pauses.append,
        draw=lambda: next(numbers),
    )

    with pytest.raises(Unreachable):
        client.sets()

    assert pauses == pytest.approx([0.05, 0.15, 0.1])
