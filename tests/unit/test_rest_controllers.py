"""REST orders about which controllers there are: roles, dry run, refusals, and a repeated request."""

from __future__ import annotations

import pytest

from tests.support.runtime_controller import NAMES, Group, played, recorded

SEAT = {"name": "c4", "raft": "127.0.0.1:9001", "broker": "127.0.0.1:9002", "rest": "127.0.0.1:9003"}


async def _ordered(group: Group, name: str) -> list[tuple[str, str, str, str]]:
    await recorded(group[name])
    page = (await group[name].http.get("/v1/events", params={"limit": "200"})).json()["events"]
    return [
        (one["event"]["verb"], one["event"]["name"], one["event"]["reason"], one["requestedBy"])
        for one in page
        if one["event"]["kind"] == "controllers-change-ordered"
    ]


@pytest.mark.slow
@played(names=NAMES)
async def test_a_controller_is_added_and_removed_on_record_and_a_dry_run_changes_nothing(group: Group) -> None:
    """S68 for members of the controllers; any controller takes the order, the leader carries it out."""
    leader = await group.elect("c1")
    body = SEAT | {"reason": "larger", "requestId": "add-1"}
    dry = await group["c2"].http.post("/v1/controllers/add", json=body | {"dryRun": True})
    (told,) = dry.json()["events"]
    assert (dry.status_code, told["kind"], told["name"]) == (200, "controllers-change-ordered", "c4")
    assert not group.memory.membership.learners
    done = await group["c2"].http.post("/v1/controllers/add", json=body)
    assert done.status_code == 200, done.text
    assert done.json() == {"voters": ["c1", "c2", "c3"], "learners": ["c4"]}
    again = await leader.http.post("/v1/controllers/add", json=body)
    assert again.json() == done.json()
    status = (await leader.http.get("/v1/status")).json()["controller"]
    assert (status["voters"], status["learners"]) == (["c1", "c2", "c3"], ["c4"])
    gone = await leader.http.post("/v1/controllers/remove", json={"name": "c4", "reason": "a slip"})
    assert gone.json() == {"voters": ["c1", "c2", "c3"], "learners": []}
    # Its answer was lost, and comes now: c4 stays out.
    late = await leader.http.post("/v1/controllers/add", json=body)
    assert (late.status_code, late.json()["code"]) == (409, "MEMBERS_NOT_CHANGED")
    assert not group.memory.membership.learners
    assert await _ordered(group, "c1") == [("add", "c4", "larger", "admin"), ("remove", "c4", "a slip", "admin")]


@played(names=NAMES)
async def test_what_may_not_follow_is_refused_with_the_remedy_and_not_on_record(group: Group) -> None:
    leader = await group.elect("c1")
    for path, body, told in (
        ("remove", {"name": "c1"}, "rollcall controllers transfer"),
        ("remove", {"name": "c9"}, "there are c1, c2, c3"),
        ("add", SEAT | {"name": "c3"}, "c3 is a member already"),
        ("add", SEAT | {"raft": "c4"}, "is not host:port"),
    ):
        for is_dry_run in (True, False):
            wrong = await leader.http.post(f"/v1/controllers/{path}", json=body | {"dryRun": is_dry_run})
            assert (wrong.status_code, wrong.json()["code"]) == (409, "MEMBERS_NOT_CHANGED"), wrong.text
            assert told in wrong.json()["detail"] + wrong.json()["hint"]
    assert await _ordered(group, "c1") == []
