// The timeline of the fleet: what happened, newest first, drawn over time, live; and further back by pages.

import { get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { isSilent } from "./known.js";
import { listen, recent } from "./live.js";
import { clock, eventLine, isNotable, number, problemBox, refOf, shapeOf, utc } from "./words.js";

const SHOWN = 400;
const WIDTH = 1000, HEIGHT = 96;
const TITLES = 12; // of one mark
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

// Steps of the axis in ms, and how many ticks of the longest label have room.
const STEPS = [200, 1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3600e3, 6 * 3600e3, 86400e3, 7 * 86400e3, 30 * 86400e3, 365 * 86400e3];
const TICKS_MAX = 5, LEFT = 130, RIGHT = WIDTH - 15, MARK = 15, LABEL = 75;
const RANKS = ["bad", "warn", "elect", "good", "plain"];

function axis(from, span, x) {
  const step = STEPS.find((one) => span / one <= TICKS_MAX) ?? span;
  const length = step < 1e3 ? 23 : step < 60e3 ? 19 : 16;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= from + span; at += step) ticks.push(at);
  return ticks.map((at) => [svg("line", { x1: x(at), x2: x(at), y1: 4, y2: HEIGHT - 16, class: "lane" }),
    x(at) > RIGHT - LABEL + 15 ? null : svg("text", { x: x(at), y: HEIGHT - 4, class: "lane-label tick" }, new Date(at).toISOString().replace("T", " ").slice(0, length))]);
}

// Marks that would lie on each other are one, with its count: the worst of them gives it its shape.
function marksOf(seen, x) {
  const found = new Map();
  for (const record of seen) {
    const lane = LANES.findIndex(([, fits]) => fits(record.event.kind, record));
    const place = `${lane} ${Math.floor((x(record.stampedAtMs) - LEFT) / MARK)}`;
    found.set(place, { lane, records: [...(found.get(place)?.records ?? []), record] });
  }
  return [...found].map(([place, { lane, records }]) => {
    const worst = records.toSorted((a, b) => RANKS.indexOf(shapeOf(a.event.kind)[0]) - RANKS.indexOf(shapeOf(b.event.kind)[0]))[0];
    const [kind, shape] = shapeOf(worst.event.kind), at = LEFT + (Number(place.split(" ")[1]) + 0.5) * MARK;
    return svg("g", { class: `mark ${kind}`, "data-ref": refOf(worst), "data-lane": LANES[lane][0] },
      svg("title", null, records.slice(-TITLES).map((record) => `${clock(record.stampedAtMs)} ${record.setKey?.name ?? "fleet"} ${record.event.kind}`).join("\n"), records.length > TITLES ? `\n${number(records.length - TITLES)} more before` : ""),
      svg("text", { x: at, y: 19 + lane * 18 }, shape), records.length > 1 ? svg("text", { x: at, y: 26 + lane * 18, class: "many" }, records.length > 99 ? "99+" : String(records.length)) : null);
  });
}

function drawn(seen) {
  const from = seen[0].stampedAtMs, span = Math.max(1000, seen.at(-1).stampedAtMs - from);
  const x = (ms) => Number((LEFT + ((RIGHT - LEFT - MARK) * Math.max(0, ms - from)) / span).toFixed(1));
  const counted = LANES.map(([words], place) => `${seen.filter((record) => LANES.findIndex(([, fits]) => fits(record.event.kind, record)) === place).length} ${words}`);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "timeline", "aria-label": `Events over time: ${counted.join(", ")}` },
    axis(from, span, x),
    LANES.map(([words], place) => [svg("line", { x1: LEFT, x2: RIGHT, y1: 14 + place * 18, y2: 14 + place * 18, class: "lane" }), svg("text", { x: 0, y: 18 + place * 18, class: "lane-label" }, words)]),
    marksOf(seen, x));
}
