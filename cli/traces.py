"""
``rollcall trace SET [EPOCH]``: one change of reign as a trace, sent to a collector of OpenTelemetry by OTLP over HTTP.

Here: spans out of a row of history. Not here: the phases (``controller.core.history``), the protocol (OpenTelemetry's
own library, the extra ``otlp``).

Rule 1: a trace is made of the record, afterwards: nothing is measured for it, and no decision waits for a collector.
Rule 2: the phases chain as in history: a span begins where the one before ended. A phase without a stamp is no span;
the whole has it in ``rollcall.missing``.
Rule 3: ids are hashes of the set, the epoch, the place of its election and the phase: sent twice, it is the same trace,
also if a stamp came in between.
Rule 4: each span has the resource of the process that it passed in: the leading controller up to the push, then the new
master.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, Tracer, format_trace_id, set_span_in_context

from rollcall_ha.controller.contract.values import Phase

if TYPE_CHECKING:
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.views import HistoryRow

SEND_TIMEOUT_S = 10
BEFORE_ELECTION = (Phase.DETECTED, Phase.PROPOSED)
OF_CONTROLLER = (*BEFORE_ELECTION, Phase.COMMITTED, Phase.NOTIFIED)


class _Ids(IdGenerator):
    """One trace (rule 3). ``phase`` is that of the span that begins next; empty: the whole."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self.phase = ""

    def _of(self, what: str, size: int) -> int:
        return int.from_bytes(hashlib.blake2b(f"{self._seed} {what}".encode(), digest_size=size).digest()) or 1

    def generate_trace_id(self) -> int:
        return self._of("trace", 16)

    def generate_span_id(self) -> int:
        # Numbered, a phase would have another one's id in the trace that is sent when a missing stamp has come.
        return self._of(f"span {self.phase}", 8)


class _Kept(SpanProcessor):
    """Keeps what has ended, for one request."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def spans_of(key: SetKey, row: HistoryRow) -> Sequence[ReadableSpan]:
    """The spans of one reign: its phases in their order, and behind them the span of the whole, their parent."""
    kept, ids = _Kept(), _Ids(f"{key.cluster}/{key.name} {row.master_epoch} {row.event}")

    def tracer(service: str, instance: str) -> Tracer:
        named = {"service.namespace": key.cluster, "service.name": service, "service.instance.id": instance}
        provider = TracerProvider(resource=Resource(named), id_generator=ids, sampler=ALWAYS_ON, shutdown_on_exit=False)
        provider.add_span_processor(kept)
        return provider.get_tracer("rollcall")

    asker = row.requested_by
    # An order is carried out by the leading controller, which an election by order does not name.
    controller = tracer(
        "rollcall-controller", asker.removeprefix("controller:") if asker.startswith("controller:") else "leader"
    )
    broker = tracer("rollcall-broker", f"{key.name}-{row.to_master}")
    at_ns = row.elected_at_ms * 1_000_000 - 1_000 * sum(
        span.duration_us or 0 for span in row.phases if span.phase in BEFORE_ELECTION
    )
    whole = controller.start_span(f"{row.kind.value} {key.name}", start_time=at_ns, attributes=_told(key, row))
    inside = set_span_in_context(NonRecordingSpan(whole.get_span_context()))
    ends_ns = [at_ns]
    for phase in row.phases:
        if phase.duration_us is None:
            continue
        process, ids.phase = (controller if phase.phase in OF_CONTROLLER else broker), phase.phase.value
        child = process.start_span(phase.phase.value, context=inside, start_time=ends_ns[-1])
        ends_ns.append(ends_ns[-1] + phase.duration_us * 1_000)
        child.end(end_time=ends_ns[-1])
    # Timed by the leader. While the master does not serve yet, up to what is known.
    whole.end(end_time=ends_ns[-1] if row.total_us is None else at_ns + row.total_us * 1_000)
    return kept.spans


def _told(key: SetKey, row: HistoryRow) -> dict[str, str | int | Sequence[str]]:
    told: dict[str, str | int | Sequence[str] | None] = {
        "rollcall.cluster": key.cluster,
        "rollcall.set": key.name,
        "rollcall.master_epoch": row.master_epoch,
        "rollcall.kind": row.kind.value,
        "rollcall.cause": row.cause,
        "rollcall.from_master": row.from_master,
        "rollcall.to_master": row.to_master,
        "rollcall.requested_by": row.requested_by,
        "rollcall.total_us": row.total_us,
        "rollcall.total_us_max": row.total_us_max,
        "rollcall.waited_us": row.waited_us,
        "rollcall.grade": None if row.grade is None else row.grade.value,
        "rollcall.loss_bytes": row.loss_bytes,
        "rollcall.missing": [phase.value for phase in row.missing],
    }
    # An attribute cannot be null, and 0 would be a claim.
    return {name: value for name, value in told.items() if value is not None}


def id_of(spans: Sequence[ReadableSpan]) -> str:
    """The id of their trace, as a viewer of traces takes it."""
    context = spans[-1].get_span_context()
    assert context is not None  # each was started by a tracer
    return format_trace_id(context.trace_id)


def send(spans: Sequence[ReadableSpan], collector: str | None) -> bool:
    """
    In one request; whether the collector took them.

    Args:
        spans: Of one trace.
        collector: URL of its route for traces; None = as ``OTEL_EXPORTER_OTLP_ENDPOINT`` says.
    """
    exporter = OTLPSpanExporter(endpoint=collector, timeout=SEND_TIMEOUT_S)
    try:
        return exporter.export(spans) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]  # the library has no type for it
