// The timeline of the fleet: what happened, newest first, drawn over time, live; all of it or a part.

import { get } from "./api.js";
import { h, put, say, svg } from "./dom.js";
import { isSilent } from "./known.js";
import { listen, recent } from "./live.js";
import { clock, copyButton, eventLine, isNotable, number, problemBox, refOf, shapeOf, utc } from "./words.js";

const SHOWN = 400;
const WIDTH = 1000, HEIGHT = 96;
const TITLES = 12; // of one mark
const isOfPeople = (record) => ["operator", "admin"].includes(record.principal?.role);
const LANES = [["elections", (kind, record) => kind === "master-elected" || kind === "switchover-ended" || (kind === "switchover-ordered" && !isOfPeople(record))], ["losses and stops", (kind) => ["replica-silent", "writes-stopped", "election-failed", "goodbye-said", "stop-announced"].includes(kind)], ["orders of people", (kind, record) => isOfPeople(record)], ["everything else", () => true]];

// The part that is shown: between two stamps, or so much before the newest event, which moves on; null: all that is known.
const LASTS = [["1 min", 60e3], ["10 min", 600e3], ["1 h", 3600e3], ["1 d", 86400e3]];
const SPAN_MIN = 1000, STEP = 0.5;

function partOf(query) {
  const [from, to] = ["from", "to"].map((name) => Date.parse(query.get(name) ?? "")), lastMs = 1000 * Number(query.get("last"));
  return from < to ? { from, to } : lastMs > 0 ? { lastMs } : null;
}
function addressOf(part) {
  const instant = (ms) => new Date(ms).toISOString();
  return !part ? "#/timeline" : part.lastMs ? `#/timeline?last=${part.lastMs / 1000}` : `#/timeline?from=${instant(part.from)}&to=${instant(part.to)}`;
}

export async function show(main, parts, query, signal) {
  document.title = "Timeline · Rollcall";
  const chart = h("div", { class: "chart", tabindex: "0", role: "group", "aria-label": "Chart: + and − zoom, arrows move, 0 shows all" });
  const list = h("ol", { class: "events full", "aria-label": "Events, newest first" });
  const all = h("input", { type: "checkbox", id: "all" });
  const hold = h("input", { type: "checkbox", id: "hold" });
  const filter = h("input", { type: "search", id: "filter", placeholder: "set, kind or word", autocomplete: "off" });
  const count = h("p", { class: "read" });
  let records = [], part = partOf(query), whole = [0, 0];
  const button = (words, work, more) => h("button", { type: "button", onclick: work, ...more }, words);
  const lasts = [button("all", () => choose(null), { "data-last": "" }), ...LASTS.map(([words, lastMs]) => button(`last ${words}`, () => choose({ lastMs }), { "data-last": lastMs }))];
  const steps = [button("◀", () => move(-STEP), { "aria-label": "Earlier" }), button("−", () => zoom(1 / STEP), { "aria-label": "Zoom out" }), button("+", () => zoom(STEP), { "aria-label": "Zoom in" }), button("▶", () => move(STEP), { "aria-label": "Later" })];
  put(main, h("section", { class: "head" }, h("h1", null, "Timeline of the fleet"), count),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, h("label", { for: "filter" }, "Filter"), filter,
      h("label", { class: "check" }, all, " every event"), h("label", { class: "check" }, hold, " hold still")),
    chart, h("div", { class: "ranges", role: "group", "aria-label": "Part of the time" }, lasts, steps, copyButton("Copy its link", () => location.href), h("span", { class: "hint keys" }, "drag over the chart, or ", h("kbd", null, "+"), " ", h("kbd", null, "−"), " ", h("kbd", null, "←"), " ", h("kbd", null, "→"), " ", h("kbd", null, "0"), " in it")), list);
  const spanned = () => (!part ? whole : part.lastMs ? [whole[1] - part.lastMs, whole[1]] : [part.from, part.to]);
  const wanted = (record) => (all.checked || isNotable(record)) && (!filter.value || JSON.stringify([record.setKey, record.event.kind, record.requestedBy, record.event]).toLowerCase().includes(filter.value.toLowerCase()));
  function draw() {
    const every = records.filter(wanted), stamps = every.map((record) => record.stampedAtMs);
    if (every.length) whole = [Math.min(...stamps), Math.max(...stamps)];
    const [from, to] = spanned(), seen = every.filter((record) => record.stampedAtMs >= from && record.stampedAtMs <= to);
    put(list, seen.length ? seen.slice(-SHOWN).toReversed().map((record) => eventLine(record)) : h("li", { class: "empty" }, every.length ? "No event in this part of the time." : "No event matches. Tick “every event” for the whole record."));
    put(count, `${number(seen.length)} of the newest ${number(records.length)} events${every.length ? `, ${utc(from)} to ${utc(to)}` : ""}`);
    for (const one of lasts) one.setAttribute("aria-pressed", String(one.dataset.last === String(part ? part.lastMs : "")));
    // Drawn anew under a hand that drags, the chart would let it go.
    if (!chart.querySelector(".brush")) put(chart, every.length ? drawn(seen, from, to) : null);
  }
  function choose(next) {
    part = next;
    history.replaceState(null, "", addressOf(part));
    draw();
    say(count.textContent);
  }
  // Of a part that would reach beyond what is known, what is known.
  const within = (from, to) => choose(from <= whole[0] && to >= whole[1] ? null : { from: Math.round(Math.max(from, whole[0])), to: Math.round(Math.min(to, whole[1])) });
  function zoom(by) {
    const [from, to] = spanned(), half = Math.max(SPAN_MIN, (to - from) * by) / 2, middle = (from + to) / 2;
    within(middle - half, middle + half);
  }
  function move(by) {
    const [from, to] = spanned(), step = Math.max(whole[0] - from, Math.min(whole[1] - to, (to - from) * by));
    within(from + step, to + step);
  }
  const KEYS = { "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), ArrowLeft: () => move(-STEP), ArrowRight: () => move(STEP), 0: () => choose(null) };
  chart.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  brush(chart, spanned, within, draw);
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

// A part that is dragged over with the mouse; a finger scrolls, and has the buttons.
function brush(chart, spanned, chosen, left) {
  chart.addEventListener("pointerdown", (event) => {
    const picture = event.target.closest("svg.timeline");
    if (!picture || event.button || event.pointerType === "touch") return;
    const box = picture.getBoundingClientRect(), [from, to] = spanned();
    const at = ({ clientX }) => Math.min(RIGHT - MARK, Math.max(LEFT, ((clientX - box.left) * WIDTH) / box.width));
    const begun = at(event), shade = svg("rect", { class: "brush", x: begun, y: 4, width: 0, height: HEIGHT - 20 });
    const stamp = (x) => from + ((x - LEFT) * Math.max(SPAN_MIN, to - from)) / (RIGHT - LEFT - MARK);
    const moved = (now) => {
      shade.setAttribute("x", Math.min(begun, at(now)));
      shade.setAttribute("width", Math.abs(at(now) - begun));
    };
    const ended = (now) => {
      picture.removeEventListener("pointermove", moved);
      shade.remove();
      const ends = [begun, at(now)].sort((a, b) => a - b);
      if (now.type === "pointerup" && ends[1] - ends[0] > BRUSH_MIN) chosen(...ends.map(stamp));
      else left();
    };
    picture.append(shade);
    picture.setPointerCapture(event.pointerId);
    picture.addEventListener("pointermove", moved);
    for (const kind of ["pointerup", "pointercancel"]) picture.addEventListener(kind, ended, { once: true });
  });
}

// Steps of the axis in ms, and how many ticks of the longest label have room.
const STEPS = [200, 1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3600e3, 6 * 3600e3, 86400e3, 7 * 86400e3, 30 * 86400e3, 365 * 86400e3];
const TICKS_MAX = 5, LEFT = 130, RIGHT = WIDTH - 15, MARK = 15, LABEL = 75, BRUSH_MIN = 5;
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

function drawn(seen, from, to) {
  const span = Math.max(SPAN_MIN, to - from);
  const x = (ms) => Number((LEFT + ((RIGHT - LEFT - MARK) * Math.max(0, ms - from)) / span).toFixed(1));
  const counted = LANES.map(([words], place) => `${seen.filter((record) => LANES.findIndex(([, fits]) => fits(record.event.kind, record)) === place).length} ${words}`);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "timeline", "aria-label": `Events over time: ${counted.join(", ")}` },
    axis(from, span, x),
    LANES.map(([words], place) => [svg("line", { x1: LEFT, x2: RIGHT, y1: 14 + place * 18, y2: 14 + place * 18, class: "lane" }), svg("text", { x: 0, y: 18 + place * 18, class: "lane-label" }, words)]),
    marksOf(seen, x));
}
