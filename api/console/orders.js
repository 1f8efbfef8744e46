// Orders: a preview by the server's dry run, a confirmation, and the answer. What may be done, and by whom, the server says.

import { pathOf, post, Problem, requestId } from "./api.js";
import { h, put, say } from "./dom.js";
import { label, labelled } from "./names.js";
import { badge, copyButton, duration, keyText, number, problemBox, told } from "./words.js";

const WAITS_MAX = 30;
const HOURS = [["30 min", 0.5], ["1 h", 1], ["2 h", 2], ["8 h", 8], ["24 h", 24], ["7 d", 167.9]];

// One dialog for every order. `fields` make the body; `path` is where it goes; both are asked again for the preview.
// Orders to the masters of sets are no entries: they are given once, and each set has its own outcome (adr/0039).
export function order({ title, words, about, path, fields, body, isUnderWay, done, command, isOfSets = false }) {
  const identity = requestId();
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const reason = h("input", { type: "text", id: "reason", maxlength: "200", autocomplete: "off", placeholder: isOfSets ? "is logged with your name" : "goes on record with your name" });
  const confirm = h("button", { type: "button", class: "main", disabled: true }, "Confirm");
  const preview = h("button", { type: "submit" }, "Preview");
  const close = h("button", { type: "button", class: "quiet" }, "Close");
  const asked = () => ({ ...body(), reason: reason.value });
  let previewed = "";
  const typed = h("code", { title: "the same order, typed" });
  const retype = () => put(typed, command ? ["rollcall", ...command(), ...(reason.value ? ["--reason", reason.value] : [])].map(quoted).join(" ") : "");
  const stale = () => { confirm.disabled = true; retype(); };
  const dialog = h("dialog", { class: "order", "aria-labelledby": "order-title" },
    h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); look(); }, oninput: stale },
      h("h2", { id: "order-title" }, title), words ? h("p", null, words) : null,
      fields, h("label", { for: "reason" }, "Reason"), reason, answer,
      command ? h("p", { class: "typed" }, typed, copyButton("Copy", () => typed.textContent)) : null,
      h("div", { class: "buttons" }, close, preview, confirm)));

  async function look() {
    preview.disabled = true;
    put(answer, h("p", { class: "hint" }, "Asking the controllers what would happen…"));
    try {
      const wanted = asked();
      const found = await everySet(path(), { ...wanted, requestId: identity, dryRun: true });
      previewed = JSON.stringify(wanted);
      // Where nothing would be done in any set, there is nothing to confirm.
      confirm.disabled = isOfSets && !found.outcomes.some((one) => one.outcome === "would-do");
      put(answer, h("h3", null, isOfSets ? "What would happen in each set" : "This would go on record"), isOfSets ? outcomes(found) : found.events?.length
        ? h("ul", { class: "foreseen" }, found.events.map((event) => h("li", { "data-kind": event.kind }, h("b", null, event.kind), " ", told(event, about))))
        : found.verdict ? h("p", null, `Replica ${label(about, found.verdict.winner)} would be elected in masterEpoch ${found.verdict.masterEpoch}.`) : h("p", null, "Nothing: it is so already."),
      found.freshness ? h("p", { class: "hint", title: `on the state at index ${number(found.freshness.index)}` }, "decided just now; nothing was done") : null);
      say(confirm.disabled ? "Preview ready. Nothing would be done." : "Preview ready. Confirm to give the order.");
      confirm.focus();
    } catch (error) {
      put(answer, problemBox(error));
    }
    preview.disabled = false;
  }
  async function give() {
    // What is confirmed is what was shown: a field that changed since asks for another preview.
    if (JSON.stringify(asked()) !== previewed) return stale();
    confirm.disabled = preview.disabled = true;
    try {
      let found;
      for (let turn = 0; turn < WAITS_MAX; turn++) {
        const work = () => everySet(path(), { ...asked(), requestId: identity });
        found = await (isOfSets ? work() : again(work));
        if (!isUnderWay?.(found)) break;
        put(answer, h("p", null, "Under way…"));
      }
      const isBad = isOfSets && found.outcomes.some((one) => BAD.has(one.outcome));
      const [tone, mark, words] = isBad ? ["warn", "▲", "Not everywhere"] : isUnderWay?.(found) ? ["warn", "▲", "Still under way"]
        : !found.row || found.row.end === "done" ? ["good", "●", "Done"] : ["warn", "▲", "Not done"];
      put(answer, h("p", { class: "done" }, badge([tone, mark, words]), " ", isUnderWay?.(found) ? "it is told here no longer; the set's page shows how it ends" : done(found)), isOfSets ? outcomes(found) : null);
      say(words);
      close.focus();
    } catch (error) {
      put(answer, problemBox(error));
      preview.disabled = false;
    }
  }
  confirm.addEventListener("click", give);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  retype();
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}

// As a shell takes it for one word: a name or a reason may hold anything.
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? String(word) : `'${String(word).replaceAll("'", "'\\''")}'`);
const forHours = (hours) => ["--for", hours < 1 ? `${hours * 60}m` : hours > 167 ? "167h" : `${hours}h`];
const scopeTyped = (scope) => scope.host || `${keyText(scope.setKey)}:${scope.brokerId}`;

const OUTCOMES = { done: "done", "would-do": "it would be done", unchanged: "it is so already", absent: "it is not there", refused: "refused", "not-reached": "not reached", unknown: "outcome unknown" };
const BAD = new Set(["refused", "not-reached", "unknown"]);
const outcomes = (found) => h("ul", { class: "foreseen" }, found.outcomes.map((one) => h("li", { "data-outcome": one.outcome, class: BAD.has(one.outcome) ? "warn" : "" },
  h("b", null, one.setKey ? keyText(one.setKey) : "other sets"), ` ${OUTCOMES[one.outcome] ?? one.outcome}${one.reason ? `: ${one.reason}` : ""}`)));

// An answer is about so many sets, and names the next one. What some have done is told, also if the rest cannot be asked.
async function everySet(where, body) {
  const found = await post(where, body);
  for (let next = found.nextSet; next;) {
    try {
      const more = await post(where, { ...body, fromSet: next });
      found.outcomes.push(...more.outcomes);
      next = more.nextSet;
    } catch (error) {
      found.outcomes.push({ setKey: null, outcome: "unknown", reason: `from ${next} on: ${error.message}` });
      break;
    }
  }
  return found;
}

// An outcome that is unknown is asked for again under the same id: it is never executed twice.
async function again(work) {
  for (let left = 5; ; left--) {
    try {
      return await work();
    } catch (error) {
      const isUnknown = error instanceof Problem && (error.status === 504 || error.status === 503 || error.status === 0);
      if (!isUnknown || !left) throw error;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

export function untilField() {
  const field = h("select", { id: "until" }, HOURS.map(([words, hours]) => h("option", { value: hours }, words)));
  field.value = "1";
  // Fixed when it is chosen, not when it is sent: preview and order must be the same.
  let chosen = 0;
  const at = () => chosen || (chosen = Date.now() + Number(field.value) * 3600000);
  field.addEventListener("change", () => { chosen = 0; });
  return [[h("label", { for: "until" }, "For"), field], at, () => forHours(Number(field.value))];
}

export function pause(key) {
  const [until, at, typed] = untilField();
  order({
    title: key ? `Pause elections of ${key.name}` : "Pause elections of the fleet",
    words: "Nobody is elected but by a person's word, until the time is over. A master that dies meanwhile has no successor.",
    path: () => (key ? `${pathOf(key)}/pause` : "/v1/pause"), fields: until, body: () => ({ expiresAtMs: at() }), done: () => "elections are paused",
    command: () => ["pause", key ? keyText(key) : "--fleet", ...typed()],
  });
}
export const resume = (key) => order({ title: key ? `Resume elections of ${key.name}` : "Resume elections of the fleet", path: () => (key ? `${pathOf(key)}/resume` : "/v1/resume"), body: () => ({}), done: () => "masters are elected again", command: () => ["resume", key ? keyText(key) : "--fleet"] });

export function switchover(key, set) {
  const others = set.replicas.filter((one) => !one.isMaster && !one.isLearner);
  const to = h("select", { id: "to" }, h("option", { value: "" }, "the best by policy"), others.map((one) => h("option", { value: one.brokerId }, `${label(key, one.brokerId)}${one.isInSync ? ", in sync" : ", not in sync"}${one.isAlive ? "" : ", gone"}`)));
  order({
    title: `Switch over ${key.name}`,
    words: `Master ${label(key, set.view.master)} takes no more messages, hands over what it has, and then the target is elected. If it cannot be done in time, the old master serves again.`,
    about: key, path: () => `${pathOf(key)}/switchover`, fields: [h("label", { for: "to" }, "To"), to],
    body: () => ({ to: to.value ? Number(to.value) : null, expectedMaster: set.view.master, expectedEpoch: set.view.masterEpoch }),
    // By ids: they are what this preview is about, whatever names are bound to later.
    command: () => ["switchover", keyText(key), ...(to.value ? ["--to", to.value] : []), "--expect-master", String(set.view.master), "--expect-epoch", String(set.view.masterEpoch)],
    isUnderWay: (answer) => answer.row.end === null,
    done: ({ row }) => (row.end === "done" ? `replica ${label(key, row.toMaster)} is master in masterEpoch ${row.epoch}${row.tookMs === null ? "" : `, after ${duration(row.tookMs * 1000)}`}` : `not done: ${row.end}${row.reason ? `: ${row.reason}` : ""}`),
  });
}

export function beginMaintenance(scope, words) {
  const [until, at, typed] = untilField();
  const host = h("input", { type: "text", id: "host", required: true, autocomplete: "off" });
  const last = h("input", { type: "checkbox", id: "last" });
  order({
    title: `Maintenance of ${scope ? words : "a host"}`,
    words: "It is elected by a person's word only, and nobody is alarmed that it is gone, until the time is over.",
    about: scope?.setKey, path: () => "/v1/maintenance",
    fields: [scope ? null : [h("label", { for: "host" }, "Host, as in the replicas' addresses"), host], ...until, h("label", { class: "check" }, last, " also if a set may then lose no further replica")],
    body: () => ({ scope: scope ?? { host: host.value.trim() }, expiresAtMs: at(), spendsLast: last.checked }), done: () => "it is in maintenance",
    command: () => ["maintenance", "begin", scopeTyped(scope ?? { host: host.value.trim() || "HOST" }), ...typed(), ...(last.checked ? ["--spend-last"] : [])],
  });
}
export const endMaintenance = (scope, words) => order({ title: `End maintenance of ${words}`, about: scope.setKey, path: () => "/v1/maintenance/end", body: () => ({ scope }), done: () => "it is elected and expected again", command: () => ["maintenance", "end", scopeTyped(scope)] });

// The buttons of a set. Made again only when what they offer has changed: a button under a finger must stay.
export function ordersOf(place, key, set, signal, changed) {
  const offers = JSON.stringify([set.view.master, set.view.masterEpoch, Boolean(set.pause), set.replicas.map((one) => [one.brokerId, one.name, one.isInSync, one.isAlive, Boolean(one.maintenance)])]);
  if (place.dataset.offers === offers) return;
  place.dataset.offers = offers;
  const button = (words, work) => h("button", { type: "button", "data-key": words, onclick: () => { work(); changed(); } }, words);
  const own = set.pause?.setKey;
  put(place,
    set.view.master === null ? null : button("Switch over…", () => switchover(key, set)),
    set.pause && own ? button("Resume elections…", () => resume(key)) : button("Pause elections…", () => pause(key)),
    set.replicas.map((one) => {
      const scope = { setKey: key, brokerId: one.brokerId }, name = labelled(one.brokerId, one.name);
      if (!one.maintenance) return button(`Maintenance of ${name}…`, () => beginMaintenance(scope, `${name} of ${key.name}`));
      return one.maintenance.scope.host ? null : button(`End maintenance of ${name}…`, () => endMaintenance(scope, `${name} of ${key.name}`));
    }));
}
