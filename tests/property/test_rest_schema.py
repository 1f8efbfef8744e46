"""The OpenAPI document and the answers of the real server agree over TLS, whoever asks, and whatever is sent."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, core, given, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from schemathesis.core.result import Ok
from schemathesis.generation import hypothesis as patches
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from rollcall_ha.api.rest import guard
from rollcall_ha.api.rest.limits import PROVED
from rollcall_ha.api.rest.roles import OPEN, allowed
from rollcall_ha.client.client import Client
from rollcall_ha.controller.contract.commands import IssueToken
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.core.tokens import digest_of
from rollcall_ha.node.certified import PeerKind
from tests.support.rest_server import RestThread

# It gives Hypothesis a printer that prints nothing, for every test of the process: a failure would read "seed=".
patches.setup()
core.__dict__["RepresentationPrinter"] = RepresentationPrinter

pytestmark = pytest.mark.slow
"""The whole file: the fast stage leaves out schemathesis (``deploy/check.sh``)."""
EXAMPLES = int(os.environ.get("ROLLCALL_SCHEMA_EXAMPLES", "8"))
"""Of each operation that the caller may use; a third of it of the others. Of those that are the same each time: a quarter."""
UNKNOWN, FORBIDDEN = 401, 403
NO_ROUTE = {400, 404, 405, 429}
"""A drawn name with a slash in it is another path."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestThread]:
    with pytest.MonkeyPatch.context() as patch, RestThread(tmp_path_factory.mktemp("rest")) as found:
        # The tool asks again without the token, and takes 429 for a way in.
        patch.setattr(guard, "UNPROVED", PROVED)
        yield found


@pytest.fixture(scope="module")
def tokens(server: RestThread) -> dict[Role | None, str]:
    """A token of each role."""
    found: dict[Role | None, str] = {None: ""}
    with Client([server.address], identity=server.identity(PeerKind.ADMIN)) as admin:
        for role in Role:
            found[role] = secrets.token_urlsafe(32)
            admin.order(
                IssueToken(
                    token_id=role.value,
                    digest=digest_of(found[role]),
                    role=role,
                    name=role.value,
                    set_key=SetKey(ClusterName("demo"), BrokerName("broker-a")) if role is Role.BROKER else None,
                    expires_at_ms=int(time.time() * 1000) + 3_600_000,
                )
            )
    return found


def test_a_law_that_fails_beside_schemathesis_shows_what_it_drew() -> None:
    @settings(database=None)
    @given(seed=st.just(4711))
    def law(seed: int) -> None:
        raise KeyError(seed)

    with pytest.raises(KeyError) as failed:
        law()
    assert "seed=4711" in "\n".join(failed.value.__notes__)


@schemathesis.hook
def map_query(_context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """A long-poll would be held for half a minute: that is what it is for."""
    if query and isinstance(query.get("waitMs"), int):
        query["waitMs"] = min(query["waitMs"], 5)
    return query


# The controllers of this process draw their election timeouts while Hypothesis draws its cases: it cannot tell who drew.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize("role", [None, *Role], ids=str)
def test_answers_are_those_that_the_document_promises_to_each_role(
    server: RestThread, tokens: dict[Role | None, str], role: Role | None
) -> None:
    """Status, media type and body of every answer are documented; nothing makes a 500; nothing is reached without its role."""
    verify = str(server.certificates.authority_file)
    reading = {"Authorization": f"Bearer {tokens[Role.VIEWER]}"}
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=reading, verify=verify)
    headers = {"Authorization": f"Bearer {tokens[role]}"} if role is not None else {}
    checked: Counter[str] = Counter()
    examples = max(1, EXAMPLES // 4) if settings().derandomize else EXAMPLES
    # Apply may refuse what the schema allows: a negative id, an unknown register code. And without a token there is
    # none to leave out.
    excluded = [positive_data_acceptance, *([ignored_auth] if role is None else [])]
    for found in document.exclude(path="/v1/events/stream").get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        name = operation.definition.raw["operationId"]
        is_allowed = name in OPEN or (role is not None and role in allowed(name))

        def judge(case: Any, *, name: str, is_allowed: bool) -> None:
            checked[name] += 1
            answer = case.call(headers=headers, verify=verify, timeout=5)
            # An admin may revoke the token of this very run.
            if role is not Role.ADMIN or answer.status_code != UNKNOWN:
                case.validate_response(
                    answer,
                    headers=headers,
                    excluded_checks=excluded,
                    transport_kwargs={"verify": verify, "headers": headers},
                )
            if not is_allowed:
                assert answer.status_code in {UNKNOWN if role is None else FORBIDDEN, *NO_ROUTE}, (
                    name,
                    role,
                    answer.status_code,
                )

        judged = partial(judge, name=name, is_allowed=is_allowed)
        _with_cases(operation, judged, count=examples if is_allowed else max(1, examples // 3))

    assert len(checked) >= 25


def _with_cases(operation: Any, judge: Callable[[Any], None], *, count: int) -> None:
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        judge(case)

    check()
