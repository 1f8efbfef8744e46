"""``rollcall trace``: one change of reign as spans, and what a collector of OTLP over HTTP gets."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan

from rollcall_ha.cli import context, traces
from rollcall_ha.cli.main import app
from rollcall_ha.client.client import Client
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.views import HistoryPage, HistoryRow, PhaseSpan
from tests.support.cli import CliRunner
from tests.support.fake_controllers import KEY, NAMES, FakeControllers, freshness, history_row, set_page, set_status
from tests.support.otlp import collector

MS = 1_000_000


def named(row: HistoryRow) -> dict[str, Any]:
    """Its spans, by name."""
    found: dict[str, ReadableSpan] = {span.name: span for span in traces.spans_of(KEY, row)}
    return found


def test_the_phases_of_a_failover_chain_and_the_whole_is_what_the_leader_timed() -> None:
    spans = named(history_row())
    whole = spans["failover broker-a"]
    begins = 1_763_433_673_000 * MS - 3_102 * MS

    assert (whole.start_time, whole.end_time) == (begins, begins + 3_165 * MS)
    assert [(name, (span.start_time - begins) / MS, (span.end_time - begins) / MS) for name, span in spans.items()] == [
        ("detected", 0, 3_100),
        ("proposed", 3_100, 3_102),
        ("committed", 3_102, 3_112),
        ("serving", 3_112, 3_162),
        ("failover broker-a", 0, 3_165),
    ]
    assert {span.parent.span_id for span in spans.values() if span.parent} == {whole.context.span_id}
    assert whole.parent is None
    assert {span.context.trace_id for span in spans.values()} == {whole.context.trace_id}
    assert whole.attributes["rollcall.missing"] == ("first-ack",)
    assert whole.attributes["rollcall.total_us"] == 3_165_000
    assert "rollcall.cut_bytes" not in whole.attributes


def test_each_span_names_the_process_that_it_passed_in() -> None:
    told = {name: span.resource.attributes for name, span in named(history_row()).items()}

    assert {name: one["service.instance.id"] for name, one in told.items()} == {
        "detected": "c2",
        "proposed": "c2",
        "committed": "c2",
        "serving": "broker-a-1",
        "failover broker-a": "c2",
    }
    assert told["serving"]["service.name"] == "rollcall-broker"


def test_a_trace_that_is_sent_twice_is_one_trace_and_another_epoch_is_another() -> None:
    def ids(epoch: int) -> list[tuple[int, int]]:
        return [(span.context.trace_id, span.context.span_id) for span in named(history_row(epoch)).values()]

    assert ids(8) == ids(8)
    assert {trace for trace, _ in ids(8)}.isdisjoint(trace for trace, _ in ids(9))
    assert len(set(ids(8))) == 5


def test_a_span_keeps_its_id_when_the_stamp_of_an_earlier_phase_comes_later() -> None:
    whole = history_row()
    early = replace(whole, phases=tuple(one for one in whole.phases if one.phase is not Phase.COMMITTED))

    def ids(row: HistoryRow) -> dict[str, int]:
        return {name: span.context.span_id for name, span in named(row).items()}

    assert ids(early).items() < ids(whole).items()


def test_a_phase_without_a_stamp_is_no_span_and_an_outage_that_goes_on_ends_at_what_is_known() -> None:
    phases = (
        PhaseSpan(phase=Phase.COMMITTED, duration_us=10_000),
        PhaseSpan(phase=Phase.NOTIFIED, duration_us=None),
        PhaseSpan(phase=Phase.PROMISED, duration_us=5_000),
    )
    spans = named(replace(history_row(), phases=phases, total_us=None, missing=(Phase.FAULT, Phase.NOTIFIED)))

    assert list(spans) == ["committed", "promised", "failover broker-a"]
    whole = spans["failover broker-a"]
    assert (whole.end_time - whole.start_time) / MS == 15
    assert whole.attributes["rollcall.missing"] == ("fault", "notified")
    assert "rollcall.total_us" not in whole.attributes


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    rows = (history_row(),)
    script = {
        ("c1", "GET", "/v1/sets"): set_page(set_status()),
        ("c1", "GET", "/v1/sets/demo/broker-a/history"): HistoryPage(
            freshness=freshness(), set_key=KEY, rows=rows, next_before=None
        ),
    }
    transport = FakeControllers(script).transport()
    monkeypatch.setattr(context, "make_client", lambda: Client(NAMES, transport=transport))
    done = CliRunner().invoke(app, ["trace", "broker-a", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_collector_gets_all_spans_in_one_request_with_the_resource_of_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collector() as (url, got):
        code, out, _ = run(monkeypatch, "8", "--collector", url)

    assert (code, out.split(" of ")[1].strip()) == (0, "demo/broker-a, masterEpoch 8: 5 spans")
    (request,) = got
    instances = {
        attribute.value.string_value: sum(len(scope.spans) for scope in process.scope_spans)
        for process in request.resource_spans
        for attribute in process.resource.attributes
        if attribute.key == "service.instance.id"
    }
    assert instances == {"c2": 4, "broker-a-1": 1}


def test_an_epoch_that_is_not_on_record_is_not_traced_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (url, got):
        code, _, err = run(monkeypatch, "9", "--collector", url)

    assert (code, got) == (1, [])
    assert "no masterEpoch 9 in the record" in err


def test_a_collector_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(status=400) as (url, got):
        code, _, err = run(monkeypatch, "--collector", url)

    assert (code, len(got)) == (4, 1)
    assert f"{url} did not take the trace" in err
