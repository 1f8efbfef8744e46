// Topics and groups of consumers, as the masters of the sets tell them: lists, one topic, one group with who is stuck.

import { get, mayOrder } from "./api.js";
import { GROUP_ORDERS, makeGroup, makeTopic, TOPIC_ORDERS } from "./consuming_orders.js";
import { cells, h, put, svg, table } from "./dom.js";
import { isSilent } from "./known.js";
import { paced } from "./live.js";
import { age, badge, keyText, number, problemBox, setLink } from "./words.js";

const PAGE = 200;
const LOOK_MS = 3000;
const TOPICS = [["Topic", "name"], ["Set", "name"], ["Queues", "n"], ["Permission", "wide"]];
const GROUPS = [["Group", "name"], ["State", ""], ["Set", "name"], ["Members", "n"], ["Behind", "n"], ["Stuck queues", "n"]];
const ENDS = [["Set", "name"], ["Queue", "n"], ["First", "n"], ["End", "n"], ["Messages", "n"]];
const MEMBERS = [["Member", "name"], ["State", ""], ["Set", "name"], ["Queues", "n"], ["Behind", "n"], ["Address", "wide"]];
const SETTINGS = [["Set", "name"], ["Retries", "n"], ["May consume", ""], ["May broadcast", ""], ["Ordered", ""]];
const QUEUES = [["Queue", "name"], ["State", ""], ["Read", "bars"], ["Offset", "n"], ["End", "n"], ["Behind", "n"], ["Stood still", "n"], ["Held by", "wide"]];

const link = (kind, name) => h("a", { href: `#/${kind}/${encodeURIComponent(name)}`, "data-key": `${kind}-${name}` }, name);
const set = (row) => h("a", { href: setLink(row.setKey) }, keyText(row.setKey));
const sum = (rows, name) => rows.reduce((total, row) => total + (row[name] ?? 0), 0);
const state = (isStuck, lag) => badge(isStuck ? ["warn", "▲", "stuck"] : lag ? ["good", "●", "moves"] : ["good", "●", "has all"]);
const line = (columns, key, isStuck, values) => h("tr", { "data-row": key, class: isStuck ? "warn" : "" }, cells(columns, values));
const rowsOf = (title, columns, rows, none) => (rows.length ? table(title, columns, rows) : h("p", { class: "empty" }, none));
const yes = (value) => (value ? "● yes" : "○ no");
const part = (title, columns, rows, none) => [h("h2", null, title), rowsOf(title, columns, rows, none)];

const topicLine = (row) => line(TOPICS, row.topic, false, [link("topics", row.topic), set(row), number(row.readQueues), row.permission]);
const groupLine = (row) => line(GROUPS, row.group, row.stuckQueues, [link("groups", row.group), state(row.stuckQueues, row.lag), set(row), number(row.members), number(row.lag), number(row.stuckQueues)]);

export const topics = (main, [name], query, signal) => shown(main, "topics", "Topics", name, query, signal, name ? topic : (found) =>
  rowsOf("Topics", TOPICS, found.topics.filter((row) => !row.isOwn).map(topicLine), "There is none."));
export const groups = (main, [name], query, signal) => shown(main, "groups", "Groups", name, query, signal, name ? group : (found) =>
  rowsOf("Groups", GROUPS, found.groups.toSorted((a, b) => b.stuckQueues - a.stuckQueues || b.lag - a.lag).map(groupLine), "There is none."));

// A list with its filter and pages, or the page of one name; asked for again and again.
function shown(main, kind, title, name, query, signal, draw) {
  document.title = `${name ?? title} · Rollcall`;
  const filter = h("input", { type: "search", id: "filter", placeholder: "part of a name", autocomplete: "off", spellcheck: "false", value: query.get("name") ?? "" });
  const orders = h("p", { class: "orders" }), trouble = h("div"), body = h("div"), pager = h("div", { class: "pager" });
  let pages = [{}], turn = 0, last = null;
  // Made once: what an order is about it takes from the newest answer, and a button under a finger stays.
  const order = (words, work) => h("button", { type: "button", onclick: () => work(name, last) }, words);
  const offers = (found) => {
    if (!mayOrder() || (name && !found[kind].length) || found.topics?.some((row) => row.isOwn && row.topic === name)) return null;
    const [make, change] = kind === "topics" ? [["Make a topic…", makeTopic], TOPIC_ORDERS] : [["Make a group…", makeGroup], GROUP_ORDERS];
    return (name ? change : [make]).map((one) => order(...one));
  };
  async function load() {
    const mine = ++turn;
    const list = name ? "" : `?${new URLSearchParams({ name: filter.value.trim(), limit: PAGE, ...pages.at(-1) })}`;
    try {
      const found = await get(`/v1/${kind}${name ? `/${encodeURIComponent(name)}` : list}`, signal);
      if (mine !== turn) return;
      put(trouble);
      last = found;
      if (!orders.children.length) put(orders, offers(found));
      // Left out in silence, the topics of a set that does not answer would look deleted.
      put(body, found.read.filter((one) => one.trouble || one.leftOff).map((one) => h("p", { class: "warn" }, "▲ ", set(one), one.trouble ? ` did not answer: ${one.trouble}` : ` left off ${number(one.leftOff)} rows`)), draw(found));
      const next = found.nextAfter ? { ...pages.at(-1), after: found.nextAfter } : found.nextSet ? { fromSet: found.nextSet } : null;
      const button = (key, words, work) => h("button", { type: "button", "data-key": key, onclick: () => { work(); load(); } }, words);
      put(pager, pages.length > 1 ? button("back", "← Previous", () => pages.pop()) : null, next && !name ? button("next", "Next →", () => pages.push(next)) : null);
    } catch (error) {
      // What is known stays under it.
      if (!signal.aborted && !(isSilent() && body.children.length)) put(trouble, problemBox(error));
    }
  }
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { pages = [{}]; load(); }, 150);
  });
  put(main, name ? h("nav", { "aria-label": "Where", class: "where" }, h("a", { href: `#/${kind}` }, title), " / ", name) : null,
    h("section", { class: "head" }, h("h1", null, name ?? title)),
    name ? null : h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, h("label", { for: "filter" }, "Filter"), filter),
    h("section", { "aria-label": title }, orders, trouble, body, pager));
  const timer = setInterval(paced(load, LOOK_MS, signal), LOOK_MS);
  signal.addEventListener("abort", () => { clearInterval(timer); clearTimeout(typing); });
  return load();
}

const topic = (found) => [table("Sets", TOPICS, found.topics.map(topicLine)),
  part("Queues", ENDS, found.queues.map((row) => line(ENDS, row.queueId, false, [set(row), number(row.queueId), number(row.minOffset), number(row.maxOffset), number(row.maxOffset - row.minOffset)])), "No set has it."),
  part("Groups that read it", GROUPS, found.groups.map(groupLine), "No group reads it.")];

function group(found) {
  const holders = new Set(found.queues.filter((row) => row.isStuck).map((row) => row.holder || "nobody"));
  return [h("p", { class: holders.size ? "warn" : "read" }, `${number(sum(found.groups, "lag"))} messages behind`, holders.size ? `; stuck: ${[...holders].join(", ")}` : ""),
    part("Settings", SETTINGS, (found.settings ?? []).map((row) => line(SETTINGS, keyText(row.setKey), false, [set(row), number(row.retriesMax), yes(row.mayConsume), yes(row.mayBroadcast), yes(row.isOrdered)])), "No set tells them."),
    part("Members", MEMBERS, found.members.map((row) => line(MEMBERS, row.clientId, row.stuckQueues, [row.clientId, state(row.stuckQueues, row.lag), set(row), number(row.queues), number(row.lag), row.address || "not heard yet"])), "It has no member: nobody reads for it."),
    part("Queues", QUEUES, found.queues.map((row) => line(QUEUES, `${row.topic}:${row.queueId}`, row.isStuck, [
      [link("topics", row.topic), ` ${row.queueId} in `, set(row)], row.offset === null ? "no offset" : state(row.isStuck, row.lag), extent(row),
      row.offset === null ? "—" : number(row.offset), number(row.maxOffset), row.lag === null ? "—" : number(row.lag), row.stillMs === null ? "—" : age(row.stillMs), row.holder || "nobody"])), "It reads no queue.")];
}

// What is read of the messages that are there.
function extent(row) {
  const span = Math.max(1, row.maxOffset - row.minOffset);
  const share = row.offset === null ? 0 : Math.min(100, Math.max(0, (100 * (row.offset - row.minOffset)) / span));
  return svg("svg", { class: "extent", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${Math.round(share)} % read` },
    svg("rect", { x: 0, y: 4, width: 100, height: 2, class: "track" }), svg("rect", { x: 0, y: 2, width: share.toFixed(2), height: 6, class: row.isStuck ? "held behind" : "held" }));
}
