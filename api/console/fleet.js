// The fleet at a glance: the worst sets first, a page at a time, and what changed last.

import { get } from "./api.js";
import { cells, h, put, say, table } from "./dom.js";
import { consoleOf, CONTROLLERS, heardAt, isSilent, lastly, silentMs, watch } from "./known.js";
import { listen, paced, recent } from "./live.js";
import { labelled } from "./names.js";
import { causesOf, everyLine, MANY, mapOf } from "./whole.js";
import { ago, badge, eventLine, isNotable, lately, mood, number, problemBox, problemWords, readAt, setLink, size, utc } from "./words.js";

const serving = (count) => (count === 1 ? "The only set serves" : `All ${number(count)} sets serve`);
const capital = (words) => `${words[0].toUpperCase()}${words.slice(1)}`;
const PAGE = 100;
const PAUSE_MS = 2000; // of a storm of events; a change after a quiet time is shown at once
const SOFT_MS = 5000; // what only heartbeats tell makes no event
const SURVEY_MS = 30000; // it asks every controller; a lead that changes is an event, and asks at once
const LEADERLESS_MS = 5000; // no controller has led for so long: what this one has is of before
const CHANGES = 12;
const COLUMNS = [["Set", "name"], ["State", ""], ["Master", ""], ["Epoch", "n"], ["In sync", "n"], ["Alive", "n"], ["Lag", "n"], ["May lose", "n"], ["Last election", "when"], ["What is wrong", "wide"]];

export function fleet(main, query, signal) {
  const asked = { name: query.get("name") ?? "", problem: query.get("problem") ?? "", order: query.get("order") ?? "worst", pages: [null] };
  const verdict = h("h1", { id: "verdict" }, "…");
  const read = h("p", { class: "read" });
  const controllers = h("p", { class: "controllers" });
  const tiles = h("div", { class: "tiles", role: "group", "aria-label": "Sets by problem" });
  const trouble = h("div"), whole = h("section", { "aria-label": "All sets" });
  const rows = h("div", { class: "rows" });
  const pager = h("div", { class: "pager" });
  const changes = h("ol", { class: "events", id: "changes", "aria-label": "What changed last" });
  const name = h("input", { type: "search", id: "filter", placeholder: "part of a name", autocomplete: "off", spellcheck: "false", value: asked.name });
  const order = h("select", { id: "order" }, h("option", { value: "worst" }, "worst first"), h("option", { value: "name" }, "by name"));
  order.value = asked.order;
  put(main,
    h("section", { class: "head", "aria-labelledby": "verdict" }, verdict, read, controllers),
    tiles, whole,
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "filter" }, "Filter"), name, h("label", { for: "order" }, "Order"), order, h("span", { class: "hint keys" }, h("kbd", null, "/"), " to filter")),
    h("div", { class: "columns" },
      h("section", { "aria-label": "Sets", class: "grow" }, trouble, rows, pager),
      h("section", { "aria-label": "Changes", class: "side" }, h("h2", null, "What changed"), changes)));

  const url = () => {
    const parameters = new URLSearchParams({ order: asked.order, limit: PAGE, consistency: "local" });
    if (asked.name) parameters.set("name", asked.name);
    if (asked.problem) parameters.set("problem", asked.problem);
    const after = asked.pages.at(-1);
    if (after) parameters.set("after", after);
    return `/v1/overview?${parameters}`;
  };
  let last = null, turn = 0;
  async function load() {
    const mine = ++turn;
    try {
      const page = await get(url(), signal);
      if (mine !== turn) return;
      last = page;
      put(trouble);
      show(page);
    } catch (error) {
      // The table stays: it is what is known. That the controller is silent the page says above.
      if (!signal.aborted && (!isSilent() || !last)) put(trouble, problemBox(error));
    }
  }
  const renew = paced(load, PAUSE_MS, signal);

  function headline(page) {
    const wrong = page.setsWithProblems, bad = downOf(page);
    const words = page.setsTotal === 0 ? "No set is registered" : bad ? `${number(bad)} of ${number(page.setsTotal)} sets ${bad === 1 ? "does" : "do"} not serve`
      : wrong ? `${number(wrong)} of ${number(page.setsTotal)} sets ${wrong === 1 ? "needs" : "need"} a look` : serving(page.setsTotal);
    const fresh = page.freshness;
    // A green headline of a controller that is gone, or of a fleet that nobody leads, would say what nobody knows.
    const oldMs = isSilent() ? silentMs() : fresh.isStale && fresh.ageMs > LEADERLESS_MS ? fresh.ageMs : null;
    verdict.className = oldMs !== null ? "none" : bad ? "bad" : wrong ? "warn" : "good";
    put(verdict, h("span", { "aria-hidden": "true", class: "shape" }, oldMs !== null ? "◌ " : bad ? "■ " : wrong ? "▲ " : "● "),
      oldMs === null ? words : capital(lastly(`${words[0].toLowerCase()}${words.slice(1)}`, oldMs)));
    put(read, readAt(fresh, heardAt(url())),
      oldMs !== null && !isSilent() ? h("strong", { class: "bad" }, " · no controller leads") : "",
      fresh.isStale ? h("strong", { class: "warn" }, " · this controller does not lead: it hears no heartbeats, offsets are unknown here") : "",
      page.pause ? h("strong", { class: "warn" }, ` · elections of the fleet are paused until ${utc(page.pause.expiresAtMs)}`) : "",
      page.maintenances ? h("a", { href: "#/standing" }, ` · ${page.maintenances} in maintenance`) : "");
  }
  const showWhole = (lines, total) => put(whole, causesOf(lines), total > MANY ? mapOf(lines, total) : null);
  const renewWhole = paced(async () => showWhole(await everyLine(signal), last.setsTotal), SOFT_MS, signal);
  function show(page) {
    headline(page);
    if (asked.order === "worst" && page.sets.length === page.setsTotal) showWhole(page.sets, page.setsTotal);
    else if (page.setsTotal > MANY) renewWhole();
    const wrong = page.setsWithProblems;
    put(tiles, tile("", "all sets", page.setsTotal), wrong ? tile("any", "with a problem", wrong) : null,
      Object.entries(page.problems).map(([code, count]) => tile(code, problemWords(code), count)));
    put(rows, page.sets.length
      ? table("Sets", COLUMNS, page.sets.map(line), { class: "sets" })
      : h("p", { class: "empty" }, page.setsTotal ? "No set matches." : "No set is registered yet. A broker that starts makes its set known."));
    const first = (asked.pages.length - 1) * PAGE;
    put(pager,
      asked.pages.length > 1 ? h("button", { type: "button", "data-key": "back", onclick: () => { asked.pages.pop(); turnPage(); } }, "← Previous") : null,
      h("span", { id: "shown" }, page.sets.length ? `${number(first + 1)}–${number(first + page.sets.length)} of ${number(page.setsMatching)}` : ""),
      page.nextAfter ? h("button", { type: "button", "data-key": "next", onclick: () => { asked.pages.push(page.nextAfter); turnPage(); } }, "Next →") : null);
  }
  async function turnPage() {
    await load();
    rows.scrollIntoView({ block: "nearest" });
    say(document.getElementById("shown")?.textContent ?? "");
  }
  const tile = (code, words, count) => h("button", { type: "button", class: `tile${asked.problem === code ? " on" : ""}`, "aria-pressed": String(asked.problem === code), "data-key": `tile-${code}`, onclick: () => { asked.problem = code; again(); } }, h("b", null, number(count)), " ", words);

  function again() {
    asked.pages = [null];
    const parameters = new URLSearchParams(Object.entries({ name: asked.name, problem: asked.problem, order: asked.order === "worst" ? "" : asked.order }).filter(([, value]) => value));
    history.replaceState(null, "", `#/fleet${parameters.size ? `?${parameters}` : ""}`);
    load().then(() => last && say(`${number(last.setsMatching)} sets`));
  }
  let typing = 0;
  name.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { asked.name = name.value.trim(); again(); }, 150);
  });
  order.addEventListener("change", () => { asked.order = order.value; again(); });

  const notable = recent.filter(isNotable).slice(-CHANGES).reverse();
  put(changes, notable.length ? notable.map((record) => eventLine(record)) : h("li", { class: "empty" }, "Nothing yet."));
  const unlisten = listen((records) => {
    const fresh = records.filter(isNotable).slice(-CHANGES).reverse();
    if (fresh.length) {
      changes.querySelector(".empty")?.remove();
      changes.prepend(...fresh.map((record) => eventLine(record, { fresh: true })));
      while (changes.children.length > CHANGES) changes.lastElementChild.remove();
    }
    renew();
  });
  const timer = setInterval(renew, SOFT_MS);
  watch((_, changes) => {
    if (last) (changes ? show : headline)(last);
    if (changes) survey();
  }, signal);
  let known = null;
  const survey = () => {
    if (!known) return;
    const dead = isSilent() ? known.readFrom : null;
    put(controllers, "Controllers: ", known.controllers.map((one) => {
      const isGone = one.role === "unreachable" || one.name === dead;
      const role = one.name === dead ? "does not answer" : isSilent() ? `last: ${one.role}` : one.role;
      const name = one.name === known.readFrom || !consoleOf(one) ? one.name : h("a", { href: consoleOf(one), title: "its console, where you sign in again" }, one.name);
      return [h("span", { class: isGone ? "bad" : one.hasAuthority && !isSilent() ? "good" : "" }, isGone ? "✕ " : isSilent() ? "◌ " : one.hasAuthority ? "★ " : "○ ", name, " ", role), "  "];
    }), known.controllers.some((one) => one.isInsecure) ? h("strong", { class: "warn" }, "▲ insecure: ports are plain and believe whoever connects") : "");
  };
  const resurvey = paced(async () => { known = await get(CONTROLLERS, signal); survey(); }, PAUSE_MS, signal);
  const unlistenLead = listen((records) => { if (records.some((record) => /^(leadership|controllers)-/.test(record.event.kind))) resurvey(); });
  const surveys = setInterval(resurvey, SURVEY_MS);
  signal.addEventListener("abort", () => { unlisten(); unlistenLead(); clearInterval(timer); clearInterval(surveys); clearTimeout(typing); });
  resurvey();
  return load();
}

function downOf(page) {
  return page.setsTotal - (page.conditions.serving ?? 0) - (page.conditions.cleaned ?? 0);
}

function line(set) {
  const look = lately(mood(set.condition, set.problems));
  const key = set.setKey;
  return h("tr", { "data-set": `${key.cluster}/${key.name}`, class: look[0] }, cells(COLUMNS, [
    h("a", { href: setLink(key), title: `${key.cluster}/${key.name}`, "data-key": `set-${key.cluster}/${key.name}` }, key.name),
    badge(look),
    set.master === null ? "none" : labelled(set.master, set.masterName),
    number(set.masterEpoch),
    `${set.inSync}/${set.expected}`,
    `${set.alive}/${set.registered}`,
    set.lagBytesMax === null ? "unknown" : size(set.lagBytesMax),
    number(set.failureBudget),
    ago(set.lastElectionMs),
    h("span", { title: set.conditionReason }, set.problems.map(problemWords).join("; ") || "—"),
  ]));
}
