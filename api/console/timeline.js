// The timeline of the fleet: what happened, newest first, drawn over time, live; and further back by pages.

import { get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { isSilent } from "./known.js";
import { listen, recent } from "./live.js";
import { clock, eventLine, isNotable, number, problemBox, refOf, shapeOf, utc } from "./words.js";

const SHOWN = 400;
const WIDTH = 1000, HEIGHT = 92;
const isOfPeople = (record) => ["operator", "admin"].includes(record.principal?.role);
const LANES = [["elections", (kind, record) => kind === "master-elected" || kind === "switchover-ended" || (kind === "switchover-ordered" && !isOfPeople(record))], ["losses and stops", (kind) => ["replica-silent", "writes-stopped", "election-failed", "goodbye-said", "stop-announced"].includes(kind)], ["orders of people", (kind, record) => isOfPeople(record)], ["everything else", () => true]];

export async function show(main, parts, query, signal) {
  document.title = "Timeline · Rollcall";
  const chart = h("div", { class: "chart" });
  const list = h("ol", { class: "events full", "aria-label": "Events, newest first" });
  const all = h("input", { type: "checkbox", id: "all" });
  const hold = h("input", { type: "checkbox", id: "hold" });
  const filter = h("input", { type: "search", id: "filter", placeholder: "set, kind or word", autocomplete: "off" });
  const count = h("p", { class: "read" });
  put(main, h("section", { class: "head" }, h("h1", null, "Timeline of the fleet"), count),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, h("label", { for: "filter" }, "Filter"), filter,
      h("label", { class: "check" }, all, " every event"), h("label", { class: "check" }, hold, " hold still")),
    chart, list);
  let records = [];
  const wanted = (record) => (all.checked || isNotable(record)) && (!filter.value || JSON.stringify([record.setKey, record.event.kind, record.requestedBy, record.event]).toLowerCase().includes(filter.value.toLowerCase()));
  function draw() {
    const seen = records.filter(wanted);
    put(list, seen.length ? seen.slice(-SHOWN).toReversed().map((record) => eventLine(record)) : h("li", { class: "empty" }, "No event matches. Tick “every event” for the whole record."));
    put(count, `${number(seen.length)} of the newest ${number(records.length)} events${records.length ? `, ${utc(records[0].stampedAtMs)} to ${utc(records.at(-1).stampedAtMs)}` : ""}`);
    put(chart, seen.length ? drawn(seen) : null);
  }
  let isDue = 0;
  const later = () => { isDue ||= requestAnimationFrame(() => { isDue = 0; if (!signal.aborted) draw(); }); };
  for (const field of [all, filter]) field.addEventListener("input", later);
  try {
    records = [...(await get("/v1/events?newest=true&limit=500", signal)).events];
  } catch (error) {
    if (!isSilent()) return put(list, problemBox(error));
    records = [...recent];
  }
  draw();
  const unlisten = listen((fresh) => {
    if (hold.checked) return;
    const last = records.at(-1);
    records.push(...fresh.filter((one) => !last || one.index > last.index || (one.index === last.index && one.ordinal > last.ordinal)));
    records = records.slice(-1000);
    if (fresh.some(wanted)) later();
  });
  signal.addEventListener("abort", unlisten);
}

function drawn(seen) {
  const from = seen[0].stampedAtMs, span = Math.max(1000, seen.at(-1).stampedAtMs - from);
  const x = (record) => 130 + ((WIDTH - 145) * Math.max(0, record.stampedAtMs - from)) / span;
  const lane = (record) => LANES.findIndex(([, fits]) => fits(record.event.kind, record));
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "timeline", "aria-label": `Events over time: ${LANES.map(([words], place) => `${seen.filter((record) => lane(record) === place).length} ${words}`).join(", ")}` },
    LANES.map(([words], place) => [svg("line", { x1: 130, x2: WIDTH - 15, y1: 14 + place * 18, y2: 14 + place * 18, class: "lane" }), svg("text", { x: 0, y: 18 + place * 18, class: "lane-label" }, words)]),
    seen.map((record) => svg("text", { x: x(record).toFixed(1), y: 19 + lane(record) * 18, class: `mark ${shapeOf(record.event.kind)[0]}`, "data-ref": refOf(record), "data-lane": LANES[lane(record)][0] }, shapeOf(record.event.kind)[1], svg("title", null, `${clock(record.stampedAtMs)} ${record.setKey?.name ?? "fleet"} ${record.event.kind}`))),
    svg("text", { x: 130, y: HEIGHT - 4, class: "lane-label" }, clock(from)), svg("text", { x: WIDTH - 15, y: HEIGHT - 4, class: "lane-label end" }, clock(from + span)));
}
