// The film: what happened in one reign, step by step, out of its own events and the phases of its history row.
//
// A step is a phase with the figure that the history has, or an event behind it. Until SERVING the time is the sum of the
// phases so far; from then on it is the distance of stamps to that of the election, and says so.

import { h, put, say, svg } from "./dom.js";
import { label, labels } from "./names.js";
import { isOfLost, WORDS, wordsOf } from "./phases.js";
import { copyButton, duration, number, size, told } from "./words.js";

const STEP_MS = 1600;
const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;
const LATER = new Set(["master-entered", "loss-graded", "replica-registered", "replica-silent", "replica-alive", "session-opened", "sync-state-set-altered", "writes-stopped", "writes-resumed", "goodbye-said", "switchover-ended", "replicas-cleaned"]);
const LATER_PHASES = new Set(["truncated", "in-sync", "full-redundancy", "route-converged"]);

export function stepsOf(key, found) {
  const { row, election } = found, event = election.event, verdict = event.verdict;
  const ids = verdict.candidates.map((one) => one.brokerId).sort((a, b) => a - b);
  const wasLost = isOfLost(row);
  let scene = {
    master: verdict.previousMaster, members: verdict.previousSet, replicas: ids, note: {},
    gone: verdict.candidates.filter((one) => !one.isAlive && one.brokerId !== verdict.previousMaster).map((one) => one.brokerId), serving: verdict.previousMaster !== null,
  };
  const steps = [];
  const add = (title, text, change, time) => {
    scene = { ...scene, ...change };
    steps.push({ title, text, scene, ...time });
  };
  const cause = `${row.cause[0]?.toUpperCase() ?? ""}${row.cause.slice(1)}`;
  const begins = wasLost ? { serving: false, gone: [...scene.gone, ...(verdict.previousMaster === null ? [] : [verdict.previousMaster])] } : {};
  add(wasLost ? "fault" : "before", wasLost ? `Replica ${label(key, row.fromMaster)} is master of masterEpoch ${verdict.previousEpoch}. ${cause}.` : `${row.fromMaster === null ? "No replica is master" : `Replica ${label(key, row.fromMaster)} is master of masterEpoch ${verdict.previousEpoch}`}. ${cause}.`, begins, { atUs: 0, spanUs: null });
  let atUs = 0;
  for (const span of row.phases) {
    if (span.phase === "first-ack") continue;
    atUs += span.durationUs ?? 0;
    const [text, change] = phaseTold(key, span.phase, row, event);
    // What took no time is no step to look at; what it changed is to be seen in the next one.
    if (span.durationUs === 0 && span.phase !== "serving") scene = { ...scene, ...change };
    else add(span.phase, span.durationUs === null ? `${text} No stamp.` : text, change, { atUs, spanUs: span.durationUs });
  }
  if (row.totalUs !== null) steps.at(-1).text += ` The leader timed the outage: ${duration(row.totalUs)}${row.unattributedUs ? `, of which no phase explains ${duration(row.unattributedUs)}` : ""}.`;
  const first = row.phases.find((span) => span.phase === "first-ack");
  if (first && first.durationUs !== null) add("first-ack", `${WORDS["first-ack"][0].toUpperCase()}${WORDS["first-ack"].slice(1)}, ${duration(first.durationUs)} after it began to serve${row.waitedUs === null ? "" : `; a sender waited ${duration(row.waitedUs)} of this`}.`, {}, { atUs: atUs + first.durationUs, spanUs: first.durationUs });
  const place = (record) => [record.index, record.ordinal];
  const [index, ordinal] = place(election);
  for (const record of found.events) {
    if (record.index < index || (record.index === index && record.ordinal <= ordinal)) continue;
    const later = laterTold(key, record, scene);
    if (later) add(later.title, later.text, later.change, { laterMs: Math.max(0, record.stampedAtMs - election.stampedAtMs) });
  }
  return steps;
}

function phaseTold(key, phase, row, event) {
  const winner = row.toMaster, name = label(key, winner);
  return {
    detected: [isOfLost(row) ? `The leading controller finds that replica ${label(key, row.fromMaster)} is gone.` : sentence(wordsOf(row, "detected")), {}],
    proposed: [`It proposes an election with what it knows of each replica, read at index ${number(event.evidence.readAtIndex)}.`, {}],
    committed: [`A majority of controllers has the entry. Replica ${name} is elected in masterEpoch ${row.masterEpoch}; SyncStateSet ${labels(key, event.verdict.previousSet)} → ${labels(key, event.syncStateSet)}.`, { master: winner, members: event.syncStateSet, serving: false }],
    notified: [`Replica ${name} is told.`, {}],
    promised: [`It promises, on disk, to take nothing of an older epoch.`, { note: { [winner]: "promised" } }],
    "role-applied": [`Its entry of masterEpoch ${row.masterEpoch} is on disk.`, { note: { [winner]: "entered" } }],
    serving: [`Replica ${name} takes messages.`, { serving: true, note: { [winner]: "serving" } }],
  }[phase] ?? [`${phase}.`, {}];
}

function laterTold(key, record, scene) {
  const event = record.event;
  if (event.kind === "milestone-reached") {
    const reached = event.milestone;
    if (!LATER_PHASES.has(reached.phase)) return null;
    const cut = reached.phase === "truncated" ? (reached.cutFrom === null || reached.cutFrom === undefined ? ": nothing to cut" : `: ${size(reached.cutTo - reached.cutFrom)} cut from ${number(reached.cutFrom)} on`) : "";
    return { title: reached.phase, text: `${reached.brokerId === null ? "The set" : `Replica ${label(key, reached.brokerId)}`}: ${reached.phase}${cut}.`, change: {} };
  }
  if (!LATER.has(event.kind)) return null;
  const change = {};
  if (event.kind === "replica-silent" || event.kind === "goodbye-said") change.gone = [...new Set([...scene.gone, event.brokerId])];
  if (["replica-registered", "replica-alive", "session-opened"].includes(event.kind)) {
    change.gone = scene.gone.filter((one) => one !== event.brokerId);
    change.replicas = [...new Set([...scene.replicas, event.brokerId])].sort((a, b) => a - b);
  }
  if (event.kind === "sync-state-set-altered") change.members = event.verdict.syncStateSet;
  if (event.kind === "replica-registered") change.members = event.syncStateSet;
  if (event.kind === "writes-stopped") change.serving = false;
  if (event.kind === "writes-resumed") change.serving = true;
  return { title: event.kind.replaceAll("-", " "), text: sentence(told(event, key)), change };
}

const time = (step) => ("laterMs" in step ? `${duration(step.laterMs * 1000)} after the election, by stamps` : duration(step.atUs));

export function film(place, key, found, signal) {
  let steps = stepsOf(key, found), at = 0, timer = 0;
  const stage = h("div", { class: "stage" });
  const caption = h("p", { class: "caption", "aria-live": "polite" });
  const slider = h("input", { type: "range", min: 0, max: steps.length - 1, step: 1, value: 0, "aria-label": "Step of the film" });
  const play = h("button", { type: "button", class: "main", "data-film": "play" }, "▶ Play");
  const list = h("ol", { class: "steps" });
  put(place, h("h2", null, "Film"), stage, caption,
    h("div", { class: "buttons" }, h("button", { type: "button", "data-film": "first", onclick: () => go(0), "aria-label": "First step" }, "|◀"), h("button", { type: "button", "data-film": "back", onclick: () => go(at - 1), "aria-label": "Step back" }, "◀"), play, h("button", { type: "button", "data-film": "on", onclick: () => go(at + 1), "aria-label": "Step on" }, "▶"), slider, h("span", { class: "hint keys" }, h("kbd", null, "←"), " ", h("kbd", null, "→"), " step, ", h("kbd", null, "space"), " plays"), copyButton("Copy its link", () => location.href)),
    list);

  function listed() {
    put(list, steps.map((step, number_) => h("li", { "data-step": step.title },
      h("button", { type: "button", class: "step", "data-key": `step-${number_}`, onclick: () => go(number_) },
        h("b", null, step.title), " ", "laterMs" in step ? h("span", { class: "hint" }, `+${duration(step.laterMs * 1000)}`)
          : step.spanUs === null ? h("span", { class: "hint" }, number_ ? "no stamp" : "0") : h("data", { value: step.spanUs, class: "us" }, duration(step.spanUs))))));
  }
  function go(to, isByHand = true) {
    at = Math.max(0, Math.min(steps.length - 1, to));
    if (isByHand) stop();
    const step = steps[at];
    slider.value = at;
    slider.max = steps.length - 1;
    slider.setAttribute("aria-valuetext", `${at + 1} of ${steps.length}: ${step.title}, ${time(step)}`);
    put(stage, sceneOf(key, step));
    put(caption, h("b", null, `${at + 1}/${steps.length} ${step.title}`), " ", h("span", { class: "clock" }, time(step)), " — ", step.text);
    for (const [number_, item] of [...list.children].entries()) {
      item.classList.toggle("past", number_ < at);
      if (number_ === at) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    }
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    put(play, "▶ Play");
  }
  function start() {
    if (at === steps.length - 1) go(0, false);
    put(play, "❚❚ Pause");
    timer = setInterval(() => {
      if (at === steps.length - 1) return stop();
      go(at + 1, false);
    }, STEP_MS);
  }
  play.addEventListener("click", () => (timer ? stop() : start()));
  slider.addEventListener("input", () => go(Number(slider.value)));
  place.addEventListener("keydown", (event) => {
    if (event.target === slider) return;
    if (event.key === "ArrowRight") go(at + 1);
    else if (event.key === "ArrowLeft") go(at - 1);
    else if (event.key === " " && event.target.tagName !== "BUTTON") (timer ? stop() : start());
    else return;
    event.preventDefault();
  });
  signal.addEventListener("abort", stop);
  listed();
  go(0);
  return {
    renew(next) {
      found = next;
      steps = stepsOf(key, found);
      listed();
      go(at, false);
      say(`The film has ${steps.length} steps now`);
    },
  };
}

const WIDTH = 640, HEIGHT = 190, LETTER = 7.5;
const fitting = (text, width) => (text.length * LETTER <= width ? text : `…${text.slice(-Math.floor(width / LETTER))}`);

// The replicas as a person would draw them: ◆ master, ○ slave, a line to each that follows; dashed and crossed is gone.
function sceneOf(key, { scene, title }) {
  const across = WIDTH / (scene.replicas.length + 1);
  const x = new Map(scene.replicas.map((id, place) => [id, across * (place + 1)]));
  const isGone = (id) => scene.gone.includes(id);
  const words = scene.replicas.map((id) => `replica ${label(key, id)}: ${isGone(id) ? "gone" : id === scene.master ? (scene.serving ? "master, serves" : "master, not serving") : scene.members.includes(id) ? "slave, in sync" : "slave, not in sync"}`).join("; ");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words },
    svg("rect", { x: WIDTH / 2 - 92, y: 8, width: 184, height: 30, rx: 6, class: `controllers${["proposed", "committed", "notified", "detected"].includes(title) ? " busy" : ""}` }),
    svg("text", { x: WIDTH / 2, y: 28, class: "label" }, "controllers"),
    scene.replicas.map((id) => svg("line", { x1: WIDTH / 2, y1: 38, x2: x.get(id), y2: 92, class: `wire${isGone(id) ? " cut" : ""}${title === "notified" && id === scene.master ? " busy" : ""}` })),
    scene.replicas.filter((id) => id !== scene.master && scene.members.includes(id) && !isGone(id) && x.has(scene.master) && !isGone(scene.master)).map((id) => svg("path", { d: `M ${x.get(scene.master)} 138 Q ${(x.get(scene.master) + x.get(id)) / 2} 154 ${x.get(id)} 138`, class: "follows" })),
    scene.replicas.map((id) => svg("g", { class: `node${isGone(id) ? " gone" : ""}${id === scene.master ? " master" : ""}${id === scene.master && scene.serving && !isGone(id) ? " serving" : ""}` },
      id === scene.master ? svg("rect", { x: x.get(id) - 21, y: 93, width: 42, height: 42, rx: 4, transform: `rotate(45 ${x.get(id)} 114)` }) : svg("circle", { cx: x.get(id), cy: 114, r: 24 }),
      svg("text", { x: x.get(id), y: 120, class: "id" }, String(id)),
      isGone(id) ? svg("path", { d: `M ${x.get(id) - 20} 94 l 40 40 m 0 -40 l -40 40`, class: "cross" }) : null,
      label(key, id) === String(id) ? null : svg("text", { x: x.get(id), y: 164, class: "name" }, fitting(label(key, id), across)),
      svg("text", { x: x.get(id), y: 182, class: "label" }, isGone(id) ? "gone" : id === scene.master ? (scene.note[id] ?? (scene.serving ? "master" : "elected")) : scene.members.includes(id) ? "in sync" : "not in sync"))));
}
