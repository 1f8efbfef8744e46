// Values as people read them. Sizes, durations and times are written as the command line writes them
// (cli/output.py): the same fact has the same figure wherever it is read. tests/unit/figures.json has what both must give.

import { h, say } from "./dom.js";
import { isSilent, whole as lapse } from "./known.js";
import { label, labelled, labels, onLearned } from "./names.js";
import { PROBLEMS } from "./problems.js";
import { SENTENCES } from "./sentences.js";

export const number = (value) => (value === null || value === undefined ? "unknown" : value.toLocaleString("en-US"));

// -1 is the epoch of a log that has none yet, null one that nobody has told.
export const epochOf = (value) => (value !== null && value < 0 ? "none" : number(value));

const COPIED_MS = 3000;

// Halves go up, counted in whole numbers, as there.
const whole = (value, unit) => Math.round(value / unit);
const tenths = (value, unit) => (Math.round((value * 10) / unit) / 10).toFixed(1);

export function size(value) {
  if (value === null || value === undefined) return "unknown";
  if (value < 1000) return `${value} B`;
  const units = { K: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  const [name, unit] = Object.entries(units).find(([, one]) => value < 999.95 * one) ?? ["T", units.T];
  return `${tenths(value, unit)} ${name}`;
}

export function duration(us) {
  if (us === null || us === undefined) return "unknown";
  if (us < 9950) return `${tenths(us, 1e3)} ms`;
  if (us < 999500) return `${whole(us, 1e3)} ms`;
  if (us < 59.95e6) return `${tenths(us, 1e6)} s`;
  if (us < 3600e6) return `${whole(us, 60e6)} min`;
  if (us < 86400e6) return `${tenths(us, 3600e6)} h`;
  return `${whole(us, 86400e6)} d`;
}

export function age(ms) {
  if (ms === null || ms === undefined) return "never";
  return ms < 59950 ? `${tenths(ms, 1e3)} s` : duration(ms * 1000);
}

export const utc = (ms) => (ms === null || ms === undefined ? "unknown" : new Date(Math.floor(ms / 1000) * 1000).toISOString().replace(".000Z", "Z"));
export const clock = (ms) => new Date(ms).toISOString().slice(11, 23);
export const refOf = (record) => `${record.term}.${record.index}.${record.ordinal}`;
export const keyText = (key) => (key ? `${key.cluster}/${key.name}` : "the fleet");

// A figure with what it was made of: tests, and people who copy, read the value in microseconds.
export const took = (us, properties) => h("data", { value: us ?? "", ...properties }, duration(us));
export const when = (ms) => (ms === null || ms === undefined ? "none" : h("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toISOString() }, utc(ms)));

export function ago(ms) {
  if (ms === null || ms === undefined) return "never";
  const past = Math.max(0, Date.now() - ms);
  return h("time", { datetime: new Date(ms).toISOString(), title: utc(ms) }, past < 1000 ? "just now" : `${duration(Math.floor(past) * 1000)} ago`);
}

// A code of a newer controller is shown as it is.
export const problemWords = (code) => PROBLEMS[code]?.words ?? code;
export const alarmOf = (code) => PROBLEMS[code]?.alarm;

// How it looks, by shape and word before colour: ● serves, ▲ serves and something is wrong, ■ does not serve.
export function mood(condition, problems) {
  if (condition === "cleaned") return ["none", "○", "cleaned"];
  if (condition !== "serving" || problems.includes("MASTER_NOT_SERVING")) return ["bad", "■", condition === "serving" ? "not serving" : condition.replaceAll("-", " ")];
  return problems.length ? ["warn", "▲", "serving"] : ["good", "●", "serving"];
}
// What it was, where nobody has confirmed it since.
export const lately = (look) => (isSilent() ? ["none", "◌", `last: ${look[2]}`] : look);
export const badge = ([kind, shape, words]) => h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true", class: "shape" }, shape), words);

export const callerText = (record) => {
  const caller = record.principal;
  if (!caller) return record.requestedBy;
  return `${caller.role}:${caller.name} (${caller.provedBy === "nothing" ? "unproven" : caller.provedBy})`;
};

export const scopeText = (scope) => scope.host || `${keyText(scope.setKey)}:${label(scope.setKey, scope.brokerId)}`;

// How facts look in a sentence (controller/contract/sentences.py); the command line has the same in cli/records.py.
const FORMS = {
  "": String, if: () => "", number, size, duration, utc, set: keyText, scope: scopeText,
  count: (facts) => facts.length,
  least: (count) => count || "half",
  broker: (id, key) => (id === null ? "nobody" : label(key, id)),
  brokers: (ids, key) => labels(key, ids),
  actor: (id, key) => (id === null ? "the leader" : `replica ${label(key, id)}`),
};
const isMissing = (fact) => fact === null || fact === undefined || fact === false || fact.length === 0;

function sentence(event, key) {
  const factOf = (path) => path.split(".").reduce((facts, name) => facts?.[name], event);
  const formed = ([path, form]) => {
    const fact = factOf(path);
    if (fact === undefined) throw new Error(`no ${path}`);
    return FORMS[form](fact, key);
  };
  return SENTENCES[event.kind]
    .filter(([isOptional, pieces]) => !isOptional || !pieces.some((piece) => Array.isArray(piece) && isMissing(factOf(piece[0]))))
    .flatMap(([, pieces]) => pieces.map((piece) => (Array.isArray(piece) ? formed(piece) : piece)))
    .join("");
}

// One sentence of each event; of those that have none here, its plain facts.
export function told(event, key) {
  if (SENTENCES[event.kind]) {
    try {
      return sentence(event, key);
    } catch {
      // Its version is another one than this page's: its facts are shown as they are.
    }
  }
  return Object.entries(event).filter(([name, value]) => name !== "kind" && value !== null && value !== "" && typeof value !== "object").map(([name, value]) => `${name}=${value}`).join(" ");
}

// What a person would be woken for, or wants to see first; the rest is in the full record.
const NOTABLE = new Set(["master-elected", "election-failed", "election-withheld", "replica-silent", "writes-stopped", "writes-resumed", "switchover-ordered", "switchover-ended", "elections-paused", "elections-resumed", "maintenance-begun", "maintenance-ended", "leadership-taken", "leadership-transfer-ordered", "controllers-change-ordered", "certificate-revoked", "fleet-restored", "replicas-cleaned", "set-configured", "settings-applied", "clock-stepped", "goodbye-said", "stop-announced"]);
export const isNotable = (record) => NOTABLE.has(record.event.kind) || (record.event.kind === "loss-graded" && record.event.verdict.grade !== "proven");

const SHAPES = { "master-elected": ["elect", "◆"], "election-failed": ["bad", "■"], "election-withheld": ["warn", "▲"], "replica-silent": ["bad", "✕"], "writes-stopped": ["bad", "■"], "writes-resumed": ["good", "●"], "replica-alive": ["good", "●"], "switchover-ordered": ["elect", "◇"], "switchover-ended": ["elect", "◆"], "elections-paused": ["warn", "‖"], "elections-resumed": ["good", "▸"], "leadership-taken": ["elect", "★"], "loss-graded": ["plain", "∎"], "command-refused": ["warn", "⊘"] };
export const shapeOf = (kind) => SHAPES[kind] ?? ["plain", "·"];

export function eventLine(record, { withSet = true, fresh = false } = {}) {
  const [kind, shape] = shapeOf(record.event.kind);
  const key = record.setKey;
  const epoch = record.event.kind === "master-elected" ? record.event.masterEpoch : null;
  const line = h("li", { class: `event ${kind}${fresh ? " fresh" : ""}`, "data-of": key ? keyText(key) : null, "data-ref": refOf(record), "data-kind": record.event.kind },
    h("span", { class: "shape", "aria-hidden": "true" }, shape),
    h("time", { datetime: new Date(record.stampedAtMs).toISOString(), title: `event ${refOf(record)}` }, clock(record.stampedAtMs)),
    withSet && h("span", { class: "of" }, key ? h("a", { href: setLink(key) }, key.name) : "fleet"),
    h("span", { class: "kind" }, record.event.kind),
    h("span", { class: "what" }, h("span", { class: "told" }, told(record.event, key)), epoch !== null && key ? [" ", h("a", { href: `${setLink(key)}/epoch/${epoch}` }, "why")] : null),
    h("span", { class: "by" }, callerText(record)));
  lines.set(line, record);
  return line;
}
// Newest first. The milestones of a reign are one line, which a click unfolds: they were half of the record of a set, and on a
// phone most of its page. `unfolded` keeps which are open when the list is made anew; events in `fresh` came a moment ago.
export function eventList(records, unfolded, fresh = new Set()) {
  const found = [], folds = new Map();
  for (const record of records.toReversed()) {
    const epoch = record.event.kind === "milestone-reached" ? record.event.milestone.masterEpoch : null;
    if (epoch === null) found.push(eventLine(record, { withSet: false, fresh: fresh.has(record) }));
    else if (folds.has(epoch)) folds.get(epoch).push(record);
    else found.push([epoch, folds.set(epoch, [record]).get(epoch)]);
  }
  return found.map((one) => (Array.isArray(one) ? fold(...one, unfolded) : one));
}
function fold(epoch, records, unfolded) {
  const phases = records.map((record) => record.event.milestone.phase), [first, last] = [phases.at(-1), phases[0]];
  return h("li", { class: "fold", "data-epoch": epoch },
    h("details", { open: unfolded.has(epoch), ontoggle: (event) => (event.target.open ? unfolded.add(epoch) : unfolded.delete(epoch)) },
      h("summary", { "data-key": `fold-${epoch}` }, h("time", { datetime: new Date(records[0].stampedAtMs).toISOString() }, clock(records[0].stampedAtMs)), ` masterEpoch ${number(epoch)}: ${records.length === 1 ? `milestone ${last}` : `${number(records.length)} milestones, ${first} to ${last}`}`),
      h("ol", { class: "events" }, records.map((record) => eventLine(record, { withSet: false })))));
}

// How old an answer is: app.js renews the words each second. The index is for whoever compares two answers.
export const readAt = (freshness, atMs) => h("span", { class: "at", title: `read at index ${number(freshness.index)}` }, h("span", { "data-read": atMs }, readAgo(atMs)), ` from ${freshness.readFrom}`);
export function readAgo(atMs) {
  const past = Date.now() - atMs;
  return past < 1000 && !isSilent() ? "read just now" : `read ${lapse(Math.max(0, past))} ago`;
}
// A button that puts a text where it can be pasted; where the browser forbids that, the text is there to be marked.
export function copyButton(words, text) {
  const button = h("button", { type: "button", class: "quiet copy", onclick: async () => {
    const found = text();
    const isDone = await (navigator.clipboard?.writeText(found) ?? Promise.reject(new Error("no clipboard"))).then(() => true, () => false);
    button.textContent = isDone ? "copied" : found;
    say(isDone ? "Copied" : found);
    setTimeout(() => { button.textContent = words; }, COPIED_MS);
  } }, words);
  return button;
}

// An event is shown at once, by the id where its set was never asked for; its names come after it.
const lines = new WeakMap();
onLearned((set) => {
  for (const line of document.querySelectorAll(`[data-of="${CSS.escape(set)}"]`)) {
    const record = lines.get(line);
    line.querySelector(".told").textContent = told(record.event, record.setKey);
  }
});
export const hostLink = (host) => `#/hosts/${encodeURIComponent(host)}`;
export const hostOf = (address) => address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1"); // as host_of (controller/contract/values.py)
export const setLink = (key) => `#/set/${encodeURIComponent(key.cluster)}/${encodeURIComponent(key.name)}`;

export function problemBox(error) {
  const found = error.document ?? { code: error.name, detail: error.message, hint: "" };
  const values = [["requested", found.requested], ["current", found.current]].filter(([, value]) => value !== null && value !== undefined);
  return h("div", { class: "problem", role: "alert" },
    h("p", null, h("strong", null, `■ ${found.code}`), ` ${found.detail}`),
    values.length ? h("p", null, values.map(([name, value]) => `${name} ${value}`).join("; ")) : null,
    Object.keys(found.names ?? {}).length ? h("p", { class: "hint" }, `Brokers: ${Object.entries(found.names).map(([id, name]) => labelled(id, name)).join(", ")}`) : null,
    found.hint ? h("p", { class: "hint" }, `What to do: ${found.hint}`) : null);
}
