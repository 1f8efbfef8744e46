"""Every kind of event has a sentence, of facts that it has, and says what happened."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from rollcall_ha.cli import output
from rollcall_ha.cli.output import Report, Table
from rollcall_ha.cli.records import _forms
from rollcall_ha.controller.contract.events import AnyEvent
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.sentences import SENTENCES, sections, sentence

KINDS: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in AnyEvent.__args__}
NAMES = {BrokerId(1): "orders-3", BrokerId(2): "orders-1"}
KEY = {"cluster": "demo", "name": "orders"}


def fact_of(of: Any, path: str) -> Any:
    """Its type; None: there is no such fact."""
    for name in path.split("."):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(of)}
        if name not in fields:
            return None
        structs = [one for one in get_args(fields[name]) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        found, of = fields[name], structs[0] if structs else fields[name]
    return found


def test_sentences_are_of_facts_that_the_events_have_in_forms_that_there_are() -> None:
    assert SENTENCES.keys() == KINDS.keys()
    told = [(kind, *one) for kind in KINDS for _, all_ in sections(kind) for one in all_ if isinstance(one, tuple)]
    assert len(told) > 60
    assert [(kind, fact) for kind, fact, _ in told if fact_of(KINDS[kind], fact) is None] == []
    assert {form for *_, form in told} == _forms({}).keys()


def test_a_fact_that_may_be_missing_is_said_so_or_left_out() -> None:
    """A pause of the whole fleet, which names no set, ended ``events`` and showed bare facts in the console."""
    whole = {
        form
        for kind in KINDS
        for is_optional, pieces in sections(kind)
        for fact, form in (piece for piece in pieces if isinstance(piece, tuple) and not is_optional)
        if type(None) in get_args(fact_of(KINDS[kind], fact))
    }
    assert whole == {"actor", "broker", "set"}
    assert [_forms({})[form](None) for form in sorted(whole)] == ["the leader", "nobody", "the fleet"]


@pytest.mark.parametrize(
    ("kind", "facts", "told"),
    [
        ("replica-silent", {"brokerId": 1, "cause": "session-close"}, "replica orders-3 (1) is gone: session-close"),
        (
            "elections-paused",
            {"pausedSet": KEY, "expiresAtMs": 0, "reason": "a drill"},
            "elections of demo/orders paused until 1970-01-01T00:00:00Z: a drill",
        ),
        ("elections-resumed", {"pausedSet": KEY, "isExpired": False, "reason": ""}, "elections of demo/orders resumed"),
        (
            "elections-resumed",
            {"pausedSet": KEY, "isExpired": True, "reason": ""},
            "elections of demo/orders resumed: its time was over",
        ),
        (
            "maintenance-ended",
            {"scope": {"setKey": KEY, "brokerId": 2}, "isExpired": True, "reason": ""},
            "maintenance of demo/orders:orders-1 (2) ended: its time was over",
        ),
        (
            "loss-graded",
            {"verdict": {"masterEpoch": 7, "grade": "bounded", "boundBytes": 2_048, "cutBytes": 0}},
            "loss of masterEpoch 7: bounded, at most 2.0 K, 0 B cut",
        ),
        ("loss-graded", {"verdict": {"masterEpoch": 7, "grade": "proven"}}, "loss of masterEpoch 7: proven"),
        (
            "milestone-reached",
            {"milestone": {"brokerId": None, "phase": "detected", "elapsedUs": 12_000}},
            "the leader: detected after 12 ms",
        ),
        (
            "replicas-cleaned",
            {"brokerIds": [1], "remaining": [2, 3]},
            "replicas {orders-3 (1)} forgotten; {orders-1 (2), 3} remain",
        ),
        (
            "set-configured",
            {
                "expectedReplicas": 5,
                "previousExpectedReplicas": 3,
                "minInSync": 0,
                "previousMinInSync": 2,
                "reason": "",
            },
            "expects 5 replicas (3), min_in_sync half (2)",
        ),
    ],
)
def test_a_sentence_says_its_facts_and_leaves_out_what_is_not_there(
    kind: str, facts: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msgspec, "to_builtins", lambda event: event)
    event: Any = {"kind": kind, **facts}
    assert sentence(event, _forms(NAMES)) == told


def test_a_long_sentence_goes_on_in_the_next_line_and_no_row_is_wider_than_the_terminal() -> None:
    what = "replica orders-3 (1) elected in masterEpoch 7 (failover), SyncStateSet {orders-3 (1), orders-1 (2)}"
    columns = output.columns("EVENT", "WHEN", "SET?", "KIND", "WHAT", "BY")
    row = ("12.1034.0", "2026-11-28T07:14:34Z", "orders", "master-elected", what, "controller:c1")
    table = Table(columns=columns, rows=(row, row), leaving=("BY", "KIND", "SET"), wrapped="WHAT")
    for width, titles in ((80, 3), (120, 6), (200, 6)):
        lines = output.render_text(Report(document=None, parts=(table,)), width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines[0].split()) == titles
        assert " ".join(lines[1:]).count("SyncStateSet") == 2
        assert "..." not in " ".join(lines[1:])
